"""The configuration: presets, refusals, flags, and its way into the run's folder and back."""

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import tyro

from replay_tutorial.agents.dqn import epsilon_schedule
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.agents.networks import NATURE, get_parameters
from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.evaluator import Candidate
from replay_tutorial.apex.parts import exploration_schedule, make_optimizer, make_policy
from replay_tutorial.apex.presets import PRESETS
from replay_tutorial.apex.runs.run_folder import RunFolder

REFUSED = {
    "actors": [-1],
    "n_step": [0],
    "seed": [-1],
    "gamma": [1.1, math.nan],
    "alpha": [-0.1],
    "learning_rate": [0.0],
    "samples_per_insert": [math.inf],
    "samples_per_insert is 1e+308; it must be at most 1,000,000": [1e308],
    "hidden_sizes": [(), (64, 0)],
    "convolutions": [((16, 3, 1), layer) for layer in ((16, 3, 0), (1, 2), (), (16, 3, 1.5))],
    "policy_hidden_sizes": [()],
    "policy_learning_rate": [-1.0],
    "noise": [-0.1, math.inf],
    "epsilon_exponent": [math.inf],
    "action_gradient": [0.0],
    "evaluation_step_limit": [0],
    "replay_start": [60_000],
    "final_episodes": [1],
    "prefetch": [-1],
    "threads": [0],
    "threads is 1000000000000; it must be at most 1,024": [10**12],
}


@pytest.mark.parametrize(
    ("named", "value"), [(named, value) for named in REFUSED for value in REFUSED[named]]
)
def test_settings_that_cannot_work_are_refused_by_name(named, value):
    with pytest.raises(ValueError, match=re.escape(named)):
        Config(**{named.split()[0]: value})


def test_the_folder_of_the_runs_may_be_a_string():
    assert Config(runs="somewhere").runs == Path("somewhere")


@pytest.mark.parametrize("environment", [*PRESETS, "Somebodys-v7"])
def test_presets_are_settings_for_their_environment(environment):
    assert preset(environment).environment == environment


def test_presets_of_a_family_are_for_all_its_environments():
    for game in ("ALE/Pong-v5", "ALE/Breakout-v5"):
        assert (preset(game).batch_size, preset(game).optimizer) == (512, "rmsprop")
    assert preset("dm_control/cheetah-run-v0").policy_hidden_sizes == (300, 200)
    assert preset("Somebodys-v7") == Config(environment="Somebodys-v7")


def test_optimizers_are_adam_and_the_papers_centered_rmsprop():
    network = torch.nn.Linear(1, 1)
    adam = make_optimizer(Config(learning_rate=0.5), network)
    assert isinstance(adam, torch.optim.Adam)
    assert adam.param_groups[0]["lr"] == 0.5
    papers = make_optimizer(preset("ALE/Pong-v5"), network).param_groups[0]
    assert (papers["lr"], papers["alpha"], papers["eps"]) == (0.00025 / 4, 0.95, 1.5e-7)
    assert papers["centered"]
    assert papers["momentum"] == 0


@pytest.mark.parametrize("agent", ["as asked", None])
def test_exploration_is_epsilon_per_environment_for_dqn_and_the_same_noise_for_dpg(agent):
    settings = Config(actors=2, environments_per_actor=2, noise=0.2)
    # With None, too, the actions decide: σ for numbers, never ε, which is another quantity.
    for name, environment, expected in (
        ("dqn", "CartPole-v1", epsilon_schedule(4).tolist()),
        ("dpg", "Pendulum-v1", [0.2] * 4),
    ):
        config = replace(settings, environment=environment, agent=agent and name)
        assert exploration_schedule(config, spaces_of(environment)).tolist() == expected


def test_every_setting_is_a_flag_with_a_sentence(capsys):
    with pytest.raises(SystemExit) as end:
        tyro.cli(Config, args=["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    source = Path(__import__("replay_tutorial.apex.config", fromlist=["x"]).__file__).read_text("utf-8")
    for field in fields(Config):
        if field.name != "environment":
            assert f"--{field.name.replace('_', '-')}" in text
        after = source.split(f"    {field.name}: ", 1)[1].splitlines()[1]
        assert after.strip().startswith('"""'), f"{field.name} has no sentence"


def test_new_policy_has_no_evaluation_of_the_policy_before(tmp_path):
    folder = RunFolder.create(replace(preset("CartPole-v1"), runs=tmp_path))
    folder.save_policy(Candidate(np.zeros(3, np.float32), 1, Evaluation(np.zeros(0))))
    proof = folder.save_evaluation(Evaluation(np.ones(2)), step=1, seconds=1.0)
    folder.save_policy(Candidate(np.ones(3, np.float32), 2, Evaluation(np.zeros(0))))
    assert not proof.exists()


def test_run_that_another_process_makes_in_the_same_moment_gets_another_folder(tmp_path, monkeypatch):
    config = replace(preset("CartPole-v1"), runs=tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "now")
    monkeypatch.setattr(Path, "exists", lambda _: False)  # it makes its folder right after anybody looks
    assert len({RunFolder.create(config).path for _ in range(3)}) == 3


def test_folder_says_environment_agent_and_seed_and_a_name_of_a_module_makes_no_others(tmp_path):
    config = Config(environment="some.module:Space/Name-v0", agent="dqn", seed=3, runs=tmp_path)
    path = RunFolder.create(config).path
    assert path.parent == tmp_path
    assert path.name.startswith("some.module-Space-Name-v0__apex_dqn__3__")
    versions = json.loads((path / "config.json").read_text())["versions"]
    assert {"python", "numpy", "torch", "gymnasium", "replay_tutorial"} <= versions.keys()


def test_policy_comes_back_from_the_folder(tmp_path):
    config = replace(preset("CartPole-v1"), runs=tmp_path, hidden_sizes=(8,))
    folder, count = RunFolder.create(config), make_policy(config, spaces_of("CartPole-v1")).parameter_count
    parameters = np.random.default_rng(0).normal(size=count).astype(np.float32)
    folder.save_policy(Candidate(parameters, 1234, Evaluation(np.zeros(0))))
    assert {path.name for path in folder.path.iterdir()} == {"config.json", "policy.pt"}  # nothing unfinished
    loaded, step = RunFolder.open(folder.path).load_policy()
    assert step == 1234
    np.testing.assert_array_equal(get_parameters(loaded.networks), parameters)


def test_missing_policy_and_foreign_folder_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not the folder of a run"):
        RunFolder.open(tmp_path)
    folder = RunFolder.create(replace(preset("CartPole-v1"), runs=tmp_path))
    with pytest.raises(FileNotFoundError, match="before its first evaluation"):
        folder.load_policy()
    (folder.path / "checkpoints" / "0001_step_7").mkdir(parents=True)
    (folder.path / "checkpoints" / "0001_step_7" / "policy.pt").touch()
    with pytest.raises(FileNotFoundError, match=r"Restore it from a backup, or .*checkpoints"):
        folder.load_policy()


def test_default_convolutions_are_those_of_the_networks():
    assert Config().convolutions == NATURE
