"""What a run stores, and that a run of an earlier version goes on with it."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tyro", reason="the configuration needs the extra `train`")

from replay_tutorial import MPPrioritizedReplayBuffer
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.apex.storage import make_replay, n_step_windows

FLOAT64 = "small_environments:Grid-v0"  # its observations, flat, are Box(-1, 1, (6,), float64)
SMALL = {"capacity": 50, "replay_start": 10, "progress": False}


def test_replay_that_was_saved_with_float64_observations_is_loaded(tmp_path):
    """Written out, because what `fields_from_spaces` makes of a space may change, and did."""
    numbers, flags = {"shape": (6,), "dtype": np.float64}, {"shape": (), "dtype": np.bool_}
    before = {
        "obs": numbers,
        "act": {"shape": (), "dtype": np.int64},
        "rew": {"shape": (), "dtype": np.float32},
        "next_obs": numbers,
        "terminated": flags,
        "truncated": flags,
        "discount": {"shape": (), "dtype": np.float32},
    }
    config = replace(preset(FLOAT64), **SMALL)
    random = np.random.default_rng(0)
    rows = {name: random.random((20, *spec["shape"])) for name, spec in before.items() if name[-3:] != "ted"}
    rows |= {"act": np.arange(20) % 2, "terminated": np.arange(20) == 3, "truncated": np.arange(20) == 7}
    saved = MPPrioritizedReplayBuffer(50, before, alpha=config.alpha)
    saved.add(**rows)
    saved.save(tmp_path / "replay.npz")

    replay = make_replay(config, spaces_of(FLOAT64), np.random.SeedSequence(0))
    replay.load(tmp_path / "replay.npz")
    np.testing.assert_array_equal(replay.get_all_transitions()["obs"], rows["obs"])


def test_steps_that_waited_with_float64_observations_are_restored():
    record = {
        "names": ["obs", "act", "rew", "next_obs", "terminated", "truncated"],
        "formats": [("f8", 6), "i8", "f4", ("f8", 6), "?", "?"],
        "offsets": [0, 48, 56, 64, 112, 113],
        "itemsize": 120,
    }
    config = replace(preset(FLOAT64), environments_per_actor=2)
    waiting = np.ones(2, record)
    windows = n_step_windows(config, spaces_of(FLOAT64))
    windows.restore([waiting, waiting[:1]])
    np.testing.assert_array_equal(windows.state()[0], waiting)


def test_run_in_a_float64_environment_is_resumed(tmp_path):
    config = replace(preset(FLOAT64), **SMALL, actors=0, total_steps=200, runs=tmp_path, final_episodes=2)
    stopped = train(config)
    resumed = resume(stopped.folder, total_steps=400, progress=False)
    assert resumed.folder == stopped.folder
    assert 200 <= stopped.steps < 400 <= resumed.steps
    assert resumed.updates > stopped.updates
