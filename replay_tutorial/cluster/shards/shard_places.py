"""Where shards live, and how much memory they ask for.

A shard asks Ray for as much memory as its rows may come to need. It gets it on the driver's host as long as
there is some, because that is the learner's, and else on any other.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.storage import make_replay
from replay_tutorial.cluster import placement

MEASURED_ROWS = 1_000


def bytes_of_shard(config: Config, spaces: Spaces, shards: int) -> int:
    """Return the bytes that the rows of a shard may come to need, by those of a small one."""
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder, "rows"), replace(config, capacity=MEASURED_ROWS, replay_start=1)
        make_replay(small, spaces, np.random.SeedSequence(0), path).close()
        return path.stat().st_size * -(-config.capacity // shards) // MEASURED_ROWS


def of_shard(size: int) -> dict[str, Any]:
    """Return Ray's options for a shard of so many bytes: on this host if it has the memory."""
    here = ray.get_runtime_context().get_node_id()
    place = NodeAffinitySchedulingStrategy(here, soft=True, _spill_on_unavailable=True)
    return {"num_cpus": 0, "memory": size, "scheduling_strategy": place}


def room_for_shards(size: int) -> int:
    """Return how many shards of so many bytes fit on the hosts together, whoever else uses them."""
    return sum(int(host["Resources"].get("memory", 0.0)) // size for host in placement.hosts())


def await_memory(config: Config, spaces: Spaces, shards: int) -> None:
    """Wait until the hosts of the cluster have memory for the shards; one that can grow is asked to.

    Raises:
        ClusterUnavailable: If they have not within ten minutes.
    """
    size = bytes_of_shard(config, spaces, shards)

    def shortage(room: int) -> str:
        return (
            f"the cluster has memory for {room} of {shards} shards of {size / 1e9:.3g} GB. Add hosts, "
            "raise --shards, or lower --capacity."
        )

    needs = {"memory": float(size)}
    placement.await_places("shards", shards, needs, lambda: room_for_shards(size), shortage)
