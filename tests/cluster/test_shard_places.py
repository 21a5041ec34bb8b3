"""How much memory a shard asks Ray for."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

pytest.importorskip("ray", reason="needs the extra `cluster`")

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.cluster.shards.shard_places import bytes_of_shard

FRAME = 84 * 84
ATARI = Spaces(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), stacked=True)


def test_shard_of_images_asks_for_its_part_of_the_frames_and_not_for_stacks():
    config = replace(Config(), capacity=2_000_000, replay_start=50_000)  # more than a small replay holds
    whole, part = (bytes_of_shard(config, ATARI, shards) for shards in (1, 4))
    assert part == pytest.approx(whole / 4, rel=1e-3)
    assert 500_000 * FRAME < part < 500_000 * 3 * FRAME
