"""Shards as Ray actors, one of which is killed."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="needs the extra `cluster`")

PROGRAM = """
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import ray

from replay_tutorial import SamplesPerInsert
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.cluster.chunk import ChunkFormat
from replay_tutorial.cluster.ray_session import is_lost
from replay_tutorial.cluster.shards import remote_shard, shard as shard_module
from replay_tutorial.cluster.shards.remote_shard import OPTIONS, NamedShard
from replay_tutorial.cluster.shards.shard import Shard, ShardPart
from replay_tutorial.cluster.shards.sharded_replay import ShardedReplay

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
config, spaces = replace(preset("CartPole-v1"), capacity=1000), spaces_of("CartPole-v1")
remote = ray.remote(num_cpus=0.1, **OPTIONS)(Shard)
names = ["one", "another"]
shards = [remote.options(name=n).remote(ShardPart(config, spaces, i, 2, 0)) for i, n in enumerate(names)]
rows = {name: np.zeros((300, 4), np.float32) for name in ("obs", "next_obs")}
rows |= {name: np.arange(300) for name in ("act", "rew", "discount")}
rows |= {name: np.zeros(300, bool) for name in ("terminated", "truncated")}
chunk = ChunkFormat(config, spaces).pack(rows, np.ones(300, np.float32))
assert ray.get([shard.add.remote(chunk) for shard in shards], timeout=60) == [300, 300]
limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1e9)
limiter.inserted(600)
calls = [NamedShard(name).calls for name in names]
replay = ShardedReplay(calls, limiter, is_lost, np.random.SeedSequence(0))


def shards_in_batches(count):
    found = set()
    for _ in range(count):
        rows, weights, indexes = replay.sample(64, 0.4, 60.0)
        assert (rows["rew"] == indexes // 2).all() and rows["obs"].flags.writeable
        replay.update_priorities(indexes, np.full(64, 2.0, np.float32))
        found = set((indexes % 2).tolist())
    return found


assert shards_in_batches(40) == {0, 1}
path = Path(sys.argv[2], "replay.npz")
replay.save(path)
assert sorted(file.name for file in path.parent.iterdir()) == ["replay_0_of_2.npz", "replay_1_of_2.npz"]
ray.kill(shards[0])
assert shards_in_batches(40) == {1}
replay.save(path)
left = [file.name for file in path.parent.iterdir()]
assert left == ["replay_1_of_2.npz"], left
nowhere = {"name": "one", "resources": {"elsewhere": 1}}
waiting = remote.options(**nowhere).remote(ShardPart(config, spaces, 0, 2, 1))
remote_shard.LIFE_SECONDS = 2.0
replay.save(path)
left = [file.name for file in path.parent.iterdir()]
assert left == ["replay_1_of_2.npz"], left


class Counted(Shard):
    # Counts the pieces that it has made.

    made = 0

    def save(self):
        shard_module.PIECE_BYTES = 500
        for piece in super().save():
            self.made += 1
            yield piece

    def pieces_made(self):
        return self.made


count = ray.remote(num_cpus=0.1, **OPTIONS)(Counted).options(name="counted")
counted = count.remote(ShardPart(config, spaces, 0, 2, 0))
assert ray.get(counted.add.remote(chunk), timeout=60) == 300
pieces = NamedShard("counted").calls.save()
assert len(next(pieces).result(60)) == 500
time.sleep(1.0)
made = ray.get(counted.pieces_made.remote(), timeout=60)
assert made <= 4, f"{made} pieces lie in the store"
assert len([piece.result(60) for piece in pieces]) > 20
print("done", replay.stale_updates)
"""


def test_shard_that_is_killed_leaves_batches_of_the_other(running_ray, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, running_ray.address, str(tmp_path)],
        env=running_ray.environment | {"PYTHONWARNINGS": "ignore", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.startswith("done"), done.stderr
