"""What a run stores, and for how many frames there is room."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tyro", reason="the configuration needs the extra `train`")

from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.storage import make_replay


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
                    for name in ("reward", "action", "terminated", "truncated", "discount")
                }
                replay.add(**rows, **rest)
        assert len(replay[:]["reward"]) == len(replay) == 3000


def pictures(environments, steps):
    stacks = np.zeros((len(steps), 4, 36, 36), np.uint8)
    shown = stacks.reshape(len(steps), 4, -1)[:, :, :4].view(np.int32)[:, :, 0]
    shown[...] = (environments * 10_000 + steps)[:, np.newaxis] + np.arange(4)
    return stacks
