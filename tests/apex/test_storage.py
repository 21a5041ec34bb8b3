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


@pytest.mark.parametrize(("actors", "environments", "n_step"), [(1, 64, 5), (16, 16, 5), (2, 4, 3)])
def test_replay_of_pictures_has_room_for_the_frames_of_its_actors(actors, environments, n_step):
    """A picture shows its environment and number; an actor sends some steps of all its own at once."""
    options = {"actors": actors, "environments_per_actor": environments, "n_step": n_step, "capacity": 3000}
    config = replace(preset("small_environments:Film-v0"), replay_start=10, send_interval=3, **options)
    spaces = spaces_of(config.environment)
    assert spaces.stacked
    with make_replay(config, spaces, np.random.SeedSequence(0)) as replay:
        for sent in range(0, 7000 // actors // environments, 3):
            for actor in range(actors):
                step, environment = np.divmod(np.arange(3 * environments), environments)
                environment, step = environment + actor * environments, step + sent
                rows = {"obs": pictures(environment, step), "next_obs": pictures(environment, step + n_step)}
                rest = {
                    name: np.zeros(len(step))
                    for name in ("rew", "act", "terminated", "truncated", "discount")
                }
                replay.add(**rows, **rest)
        assert len(replay.get_all_transitions()["rew"]) == len(replay) == 3000


def pictures(environments, steps):
    stacks = np.zeros((len(steps), 4, 36, 36), np.uint8)
    shown = stacks.reshape(len(steps), 4, -1)[:, :, :4].view(np.int32)[:, :, 0]
    shown[...] = (environments * 10_000 + steps)[:, np.newaxis] + np.arange(4)
    return stacks
