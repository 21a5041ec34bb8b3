"""The learning curves of Stable-Baselines3: resuming, statistics over seeds, and runs that are repeatable."""

import json
from dataclasses import asdict, replace

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import trim_mean

from benchmarks import sb3
from benchmarks.__main__ import main
from benchmarks.comparison import Run
from benchmarks.measuring import provenance
from benchmarks.sb3 import AGENTS, PLAIN, PRIORITIZED, UNIFORM

SHORT = {"learning_starts": 10, "train_freq": 8, "gradient_steps": 1}
TASK = replace(sb3.CARTPOLE, steps=64, interval=32, settings={**sb3.CARTPOLE.settings, **SHORT})
GAIN = {PLAIN: 0.0, UNIFORM: 0.0, PRIORITIZED: 10.0}


@pytest.fixture
def trained(monkeypatch):
    """The runs that the command makes; the fourth is interrupted."""
    made = []

    def train_once(task, agent, seed):
        made.append((agent, seed))
        if len(made) == 4:
            raise KeyboardInterrupt
        return Run(agent, seed, 100.0 * seed + GAIN[agent], [0.0, 50.0 * seed])

    monkeypatch.setattr(sb3, "train_once", train_once)
    return made


def test_interrupted_benchmark_makes_only_the_missing_runs(tmp_path, trained, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- sb3:begin -->\n<!-- sb3:end -->\n")
    arguments = ["--environments", "Pendulum-v1", "--seeds", "6", "--output", str(tmp_path)]
    command = ["sb3", *arguments, "--markdown", str(page)]
    assert main(command) == 130
    assert trained == [*((agent, 0) for agent in AGENTS), (PLAIN, 1)]
    assert main(command) == 0
    assert trained[4:] == [(agent, seed) for seed in range(1, 6) for agent in AGENTS]
    record = json.loads((tmp_path / "sb3.json").read_text())["Pendulum-v1"]
    assert record["task"] == asdict(sb3.PENDULUM)
    assert len(record["runs"]) == 18
    # Six seeds with scores 0, 100, ... 500: the mean without the lowest and the highest.
    mean = trim_mean([0, 100, 200, 300, 400, 500], 0.25)
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| Pendulum-v1")]
    assert [row[4].split(" (")[0] for row in rows] == [f"{mean:.1f}", f"{mean:.1f}", f"{mean + 10:.1f}"]
    # The scores of the seeds differ widely, but the difference is the same with each seed.
    assert [row[5] for row in rows] == ["", "0.0 (0.0, 0.0)", "10.0 (10.0, 10.0)"]
    assert [row[6].split(" (")[0] for row in rows] == [f"{mean / 4:.1f}"] * 3
    assert "</svg>" in (tmp_path / "sb3.svg").read_text()


def test_seed_that_not_all_agents_have_finished_is_in_the_record_only(tmp_path, trained):
    assert main(["sb3", "--environments", "Pendulum-v1", "--output", str(tmp_path)]) == 130
    record = json.loads((tmp_path / "sb3.json").read_text())["Pendulum-v1"]
    record["runs"].append(asdict(Run(PLAIN, 1, 1.0, [1.0])))
    assert {agent: list(runs) for agent, runs in sb3.COMPARISON.runs_of(record).items()} == {
        agent: [0] for agent in AGENTS
    }


def test_runs_of_other_settings_are_not_continued(tmp_path, trained, capsys):
    command = ["sb3", "--environments", "CartPole-v1", "Pendulum-v1", "--output", str(tmp_path)]
    assert main([command[0], *command[-2:], "--environments", "Pendulum-v1"]) == 130
    records = json.loads((tmp_path / "sb3.json").read_text())
    records["Pendulum-v1"]["task"]["steps"] = 7
    (tmp_path / "sb3.json").write_text(json.dumps(records))
    with pytest.raises(SystemExit):
        main(command)
    assert "contains runs of Pendulum-v1 with other settings; remove it first" in capsys.readouterr().err
    assert len(trained) == 4, "nothing is trained before, in CartPole either"


def test_runs_are_continued_after_a_commit_and_both_are_stated(tmp_path, trained, monkeypatch, capsys):
    command = ["sb3", "--environments", "Pendulum-v1", "--output", str(tmp_path), "--seeds"]
    monkeypatch.setattr(provenance, "revision", lambda: " (abc1234)")
    assert main([*command, "10"]) == 130
    assert main([*command, "2"]) == 0
    monkeypatch.setattr(provenance, "revision", lambda: " (def5678)")
    assert main([*command, "3"]) == 0
    record = json.loads((tmp_path / "sb3.json").read_text())["Pendulum-v1"]
    printed = capsys.readouterr().out
    for stated, revision, seeds in zip(record["measured"], ("abc1234", "def5678"), (2, 3), strict=True):
        assert revision in stated["versions"]["replay_tutorial"]
        assert f"--seeds {seeds}`; " in str(provenance.Provenance.read(stated)), "the last command"
        assert str(provenance.Provenance.read(stated)) in printed


@pytest.mark.parametrize("agent", AGENTS)
def test_run_is_repeatable(agent):
    pytest.importorskip("stable_baselines3", reason="needs the extra `peers`")
    run = sb3.train_once(TASK, agent, seed=0)
    assert run == sb3.train_once(TASK, agent, seed=0)
    assert len(run.curve) == 2
    assert all(8.0 <= mean <= 500.0 for mean in [run.score, *run.curve])


def test_agents_differ_only_in_replay_and_returns():
    pytest.importorskip("stable_baselines3", reason="needs the extra `peers`")
    models = {agent: sb3.new_model(TASK, agent, seed=0) for agent in AGENTS}
    for model in models.values():
        assert (model.batch_size, model.learning_rate, model.gamma) == (64, 2.3e-3, 0.99)
        for own, plain in zip(model.policy.parameters(), models[PLAIN].policy.parameters(), strict=True):
            assert own.equal(plain)
    assert type(models[PLAIN].replay_buffer).__module__ == "stable_baselines3.common.buffers"
    assert type(models[UNIFORM]) is type(models[PLAIN])
    assert models[PRIORITIZED].replay_buffer.n_steps == 3


def test_evaluation_passes_continuous_actions_in_the_environments_units():
    pytest.importorskip("stable_baselines3", reason="needs the extra `peers`")
    policy = sb3.new_model(sb3.PENDULUM, PLAIN, seed=0).policy
    policy.predict = lambda obs, deterministic: ([[0.5]] * len(obs), None)  # a torque in N m
    env = gym.make("Pendulum-v1")
    env.reset(seed=3)
    expected = sum(float(env.step(np.array([0.5], np.float32))[1]) for _ in range(200))
    assert sb3.mean_return(policy, "Pendulum-v1", [3]) == pytest.approx(expected)
