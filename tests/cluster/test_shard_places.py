"""How much memory a shard asks Ray for, and who is asked when there is too little."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

pytest.importorskip("ray", reason="needs the extra `cluster`")

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.cluster import placement
from replay_tutorial.cluster.connection import ClusterUnavailable
from replay_tutorial.cluster.shards.shard_places import await_memory, bytes_of_shard

FRAME = 84 * 84
ATARI = Spaces(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), stacked=True)


def test_shard_of_images_asks_for_its_part_of_the_frames_and_not_for_stacks():
    config = replace(Config(), capacity=2_000_000, replay_start=50_000)  # more than a small replay holds
    whole, part = (bytes_of_shard(config, ATARI, shards) for shards in (1, 4))
    assert part == pytest.approx(whole / 4, rel=1e-3)
    assert 500_000 * FRAME < part < 500_000 * 3 * FRAME


def test_cluster_without_memory_for_the_shards_is_asked_to_grow_and_the_wish_is_taken_back(monkeypatch):
    config, hosts, wishes = replace(Config(), capacity=100_000), [{"Resources": {"memory": 1.0}}], []
    size = bytes_of_shard(config, ATARI, 3)

    def grow(bundles):
        wishes.append(bundles)
        if len(bundles) == 3:  # at most
            hosts.extend({"Resources": {"memory": 1.6 * size}} for _ in bundles)
        return "wish"

    monkeypatch.setattr(placement, "hosts", lambda: hosts)
    monkeypatch.setattr(placement, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(placement, "ROOM_SECONDS", 5.0)
    monkeypatch.setattr(placement, "placement_group", grow)
    monkeypatch.setattr(placement, "remove_placement_group", wishes.append)
    await_memory(config, ATARI, 3)
    assert wishes == [[{"memory": size}] * 3, "wish"]
    await_memory(config, ATARI, 3)
    assert len(wishes) == 2, "there is room"
    monkeypatch.setattr(placement, "ROOM_SECONDS", 0.0)
    with pytest.raises(ClusterUnavailable, match=r"has memory for 3 of 5 shards of .* Add hosts"):
        await_memory(replace(config, capacity=166_666), ATARI, 5)
    assert len(wishes) == 4
