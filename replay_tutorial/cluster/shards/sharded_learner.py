"""The learner's process when the rows lie in shards: it joins the cluster, then it is the learner as ever.

Nothing here imports Ray before it is told what it has to know.
"""

import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, Replay
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.apex.storage import n_step_windows, saved_rows
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.cluster.chunk import Chunk, ChunkFormat
from replay_tutorial.cluster.shards.rows_elsewhere import RowsElsewhere
from replay_tutorial.cluster.shards.sharded_replay import ShardedReplay
from replay_tutorial.local.workers import learn_and_save

# Of a parcel, unless one batch alone is more. Two parcels of each shard lie in Ray's store at a time; if it
# is full, they go over the disk, and the learner gets a tenth.
PARCEL_BYTES = 32 << 20
MOST_BATCHES = 4  # that a parcel is for: rows were asked for twice as many batches ago


class Way(NamedTuple):
    """How a process gets to the shards."""

    address: str  # of the cluster
    namespace: str  # of the run
    environment: Mapping[str, str]  # Ray's settings, with the token
    names: Sequence[str]  # of the shards


def batches_of_parcel(config: Config, spaces: Spaces) -> int:
    """Return for how many batches the learner asks at once."""
    batch = config.batch_size * Fields(n_step_windows(config, spaces).env_dict).dtype.itemsize
    return max(1, min(MOST_BATCHES, PARCEL_BYTES // batch))


def saved_chunks(config: Config, spaces: Spaces, path: Path) -> Iterator[Chunk]:
    """Yield the rows of a saved replay as chunks."""
    form = ChunkFormat(config, spaces)
    for rows in saved_rows(config, spaces, path):
        yield form.pack(rows, rows.pop("priorities").astype(np.float32))


def learn_from_shards(way: Way, context: Context, seed: int, folder: Path, checkpoint: Path | None) -> None:
    """Do the learner's work, from a checkpoint on if there is one."""
    os.environ.update(way.environment)

    import ray

    from replay_tutorial.cluster.ray_session import is_lost
    from replay_tutorial.cluster.shards.remote_shard import NamedShard

    ray.init(way.address, namespace=way.namespace, log_to_driver=False, logging_level=logging.ERROR)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ray has given it another meaning
    try:
        config = context.config
        replay = ShardedReplay(
            [NamedShard(name).calls for name in way.names],
            cast(RowsElsewhere, context.replay).limiter,
            is_lost,
            RunSeeds(config).replay,
            batches_of_parcel(config, context.spaces),
            partial(saved_chunks, config, context.spaces),
        )
        learn_and_save(replace(context, replay=cast(Replay, replay)), seed, folder, checkpoint)
    finally:
        ray.shutdown()
