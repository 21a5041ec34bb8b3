"""The learning benchmark: statistics, record, requirements, and one small task that is really learned."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.stats import trim_mean

from benchmarks import learning
from benchmarks.__main__ import main
from benchmarks.comparison import interquartile_mean, interval_of
from benchmarks.learning import CARTPOLE, OUR_AGENT, Score, Task, misses_of, summary_of
from replay_tutorial.apex.config import preset


def score_of(mean, seed=0, seconds=10.0, seconds_to_target=5.0):
    return Score(seed, mean, seconds, seconds_to_target, steps=1_000, end="solved")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 10, 11])
def test_interquartile_mean_is_scipys_trimmed_mean(count):
    values = np.random.default_rng(count).normal(size=count)
    assert interquartile_mean(values.tolist()) == pytest.approx(trim_mean(values, 0.25))


def test_interval_holds_the_true_value_in_about_95_of_100_cases():
    generator = np.random.default_rng(0)
    held = 0
    for trial in range(60):
        low, high = interval_of(generator.normal(3.0, 1.0, size=20).tolist(), seed=trial)
        held += low <= 3.0 <= high
    # The bootstrap of 20 seeds is a little too narrow (about 92%); 46 of 60 or fewer happen once in 10,000.
    assert held > 46
    assert interval_of([7.0] * 5) == (7.0, 7.0)


def test_summary_counts_the_seeds_at_the_target_and_takes_medians():
    scores = [
        score_of(480.0),
        score_of(470.0, seconds_to_target=None),
        score_of(500.0, seconds_to_target=7.0),
    ]
    summary = summary_of(scores, target=475.0)
    assert summary.reached == 2
    assert summary.median_seconds_to_target == 7.0
    never = summary_of([score_of(1.0, seconds_to_target=None)] * 2 + [score_of(500.0)], target=475.0)
    assert never.median_seconds_to_target is None


def test_each_missed_requirement_is_named():
    task = Task("X-v0", seeds=2, target=475.0, seconds=60.0, every_seed=True)
    good, bad = score_of(480.0), score_of(10.0, seconds=61.0)
    assert misses_of(task, {OUR_AGENT: summary_of([good] * 10, 475.0)}) == []
    faults = misses_of(task, {OUR_AGENT: summary_of([good] * 9 + [bad], 475.0)})
    assert faults == ["1 seeds are below the target", "a seed took 61 s"]
    below = misses_of(task, {OUR_AGENT: summary_of([bad] * 10, 475.0)})
    assert "the interquartile mean is below the target" in below
    lenient = replace(task, every_seed=False)
    assert misses_of(lenient, {OUR_AGENT: summary_of([good] * 9 + [score_of(1.0)], 475.0)}) == []
    hasty = replace(task, seconds_to_target=4.0)
    slow = misses_of(hasty, {OUR_AGENT: summary_of([good], 475.0)})
    assert slow == ["the median time to the target is 5 s"]
    eager, never = replace(task, times_faster=2.0), score_of(9.0, seconds_to_target=None)
    factor = "only 1.8 times as fast to the target as peer"
    for seconds, expected in ((10.0, []), (9.0, [factor]), (None, [])):
        peer = never if seconds is None else score_of(500.0, seconds_to_target=seconds)
        both = {OUR_AGENT: summary_of([good], 475.0), "peer": summary_of([peer], 475.0)}
        assert misses_of(eager, both) == expected


def test_small_table_is_learned_recorded_and_drawn(tmp_path, monkeypatch, capsys):
    # In one process: starting five takes longer than all the rest.
    monkeypatch.setattr(learning, "preset", lambda environment: replace(preset(environment), actors=0))
    arguments = ["--environments", "CartPole-v1", "--seeds", "1", "--steps", "2000", "--no-peer"]
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- learning:begin -->\nold\n<!-- learning:end -->\n")
    # Nobody learns it in 2,000 steps.
    assert main(["learning", *arguments, "--output", str(tmp_path), "--markdown", str(page)]) == 1
    record = json.loads((tmp_path / "learning.json").read_text())["CartPole-v1"]
    (score,) = record["agents"][OUR_AGENT]["scores"]
    assert score["seed"] == 0
    assert 2_000 <= score["steps"] < 3_000
    assert 8 < score["mean"] < 475
    assert "</svg>" in (tmp_path / "learning.svg").read_text()
    printed = capsys.readouterr().out
    assert "| CartPole-v1 | replay_tutorial | 1 |" in printed
    assert "CartPole-v1: the interquartile mean is below the target\n" in printed
    written = page.read_text()
    assert written.startswith("above\n<!-- learning:begin -->\n| environment |")
    table = printed[printed.index("| environment") :]
    assert written in f"above\n<!-- learning:begin -->\n{table}<!-- learning:end -->\n"


def test_other_environments_in_an_old_record_stay_and_each_new_one_is_written_at_once(tmp_path, monkeypatch):
    about = {"command": "old", "date": "2026-01-01", "machine": {"processor": "A", "cores": 1, "system": "B"}}
    agent = asdict(summary_of([score_of(-80.0)], target=-95.0))
    task = asdict(Task("Acrobot-v1", seeds=1, target=-95.0, seconds=240.0))  # not the target of today
    old = {"task": task, **about, "versions": {}, "agents": {OUR_AGENT: agent}}
    (tmp_path / "learning.json").write_text(json.dumps({"Acrobot-v1": old}))
    page = tmp_path / "page.md"
    page.write_text("<!-- learning:begin -->\n<!-- learning:end -->\n")

    def train_once(task, seed, changes):
        if task.environment == "LunarLander-v3":
            raise KeyboardInterrupt
        return {OUR_AGENT: score_of(-150.0, seed)}

    monkeypatch.setattr(learning, "train_once", train_once)
    arguments = ["--environments", "Pendulum-v1", "LunarLander-v3", "--output", str(tmp_path)]
    assert main(["learning", *arguments, "--markdown", str(page)]) == 130
    records = json.loads((tmp_path / "learning.json").read_text())
    assert records["Acrobot-v1"] == json.loads(json.dumps(old))
    written = page.read_text()
    row = "| Acrobot-v1 | replay_tutorial | 1 | -80.0 (-80.0, -80.0) | -95 | 1 |"
    assert written.index(row) < written.index("| Pendulum-v1 |")
    assert "Acrobot-v1. Measured on 2026-01-01 with `old`; A, 1 cores, B" in written


def test_missing_peer_is_named(monkeypatch, capsys):
    monkeypatch.setattr(learning, "find_spec", {}.get)
    assert learning.measure(replace(CARTPOLE, seeds=0), {}, with_peer=True) == {}
    assert "Stable-Baselines3: not installed; pip install stable-baselines3" in capsys.readouterr().out


def test_peer_learns_and_is_measured():
    pytest.importorskip("stable_baselines3", reason="needs the extra `peers`")
    scores = learning.train_peer(seed=0, target=9.0, steps=2_000)
    assert set(scores) == {learning.LAST, learning.BEST}
    for score in scores.values():
        assert 8.0 <= score.mean <= 500.0
        assert 0.0 < score.seconds_to_target <= score.seconds
