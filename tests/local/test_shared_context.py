"""What a run has in common: the replay holds as many rows of pictures as it says, whatever the pictures are."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.local.shared_context import make_replay, n_step_windows

STACK, SIDE, EPISODE = 3, 36, 50  # pictures in an observation, pixels, steps


@pytest.mark.parametrize("stacked", [False, True], ids=["colours", "stack"])
def test_replay_of_pictures_keeps_all_its_rows_when_it_has_gone_round(stacked):
    spaces = Spaces(Box(0, 255, (STACK, SIDE, SIDE), np.uint8), Discrete(2), stacked)
    config = replace(Config(), capacity=2_000, environments_per_actor=1)
    windows, memory = n_step_windows(config, spaces), make_replay(config, spaces, np.random.SeedSequence(0))
    generator = np.random.default_rng(0)
    fresh = 1 if stacked else STACK  # pictures that each step brings
    for _ in range(2 * config.capacity // EPISODE):
        pictures = generator.integers(256, size=(fresh * EPISODE + STACK, SIDE, SIDE), dtype=np.uint8)
        seen = np.stack([pictures[fresh * step : fresh * step + STACK] for step in range(EPISODE + 1)])
        rows = windows.add(
            0,
            obs=seen[:-1],
            act=np.zeros(EPISODE, np.int64),
            rew=np.ones(EPISODE, np.float32),
            next_obs=seen[1:],
            terminated=np.arange(EPISODE) == EPISODE - 1,
            truncated=np.zeros(EPISODE, np.bool_),
        )
        memory.add(**rows, priorities=np.ones(EPISODE))
    assert len(memory.get_all_transitions()["rew"]) == config.capacity
    np.testing.assert_array_equal(memory.get_all_transitions()["next_obs"][-1], seen[-1])
