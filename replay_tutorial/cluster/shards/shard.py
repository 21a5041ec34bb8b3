"""A shard: one of several replays of a run, with a part of its rows.

    actors ── chunks ──▶ add ──▶ its buffer ──▶ sample ── parcels ──▶ learner
                                     ▲                                   │
                                     └───────────── update ◀── priorities┘

A call costs the same whatever it carries, so that the learner asks for its rows of several batches at once: a
parcel. Each batch's rows are drawn on their own, stratified. What a parcel says of the shard as a whole is of
the moment of the draw; with that, the learner weighs rows of several shards (`weighting`).

A shard that dies loses its rows, and the one in its place counts indexes from 0 again. Lives are numbered, so
that a priority for a row of an earlier life does not get to another row: it is dropped.

Left out: what carries the calls. The limiter is asked by those who send and sample.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.apex.storage import make_replay
from replay_tutorial.buffers.gather import LARGE
from replay_tutorial.cluster.chunk import Chunk, ChunkFormat
from replay_tutorial.cluster.shards.weighting import Totals

FILE = "rows.npz"
PIECE_BYTES = 8 << 20  # of a saved shard: large enough to be fast, and another call hardly waits for it


class ShardLost(ConnectionError):
    """A shard does not answer, or has no rows yet."""


class Parcel(NamedTuple):
    """A shard's rows of some batches, one batch after the other; what arrives is read-only."""

    life: int
    rows: int  # of each batch
    records: NDArray[np.void]  # [n], the small fields, "weights" and "indexes", all as in the shard's sample
    images: dict[str, NDArray[Any]]  # large field → [n, ...]
    totals: Totals  # when they were drawn


class ShardPart(NamedTuple):
    """A shard's part in a run."""

    config: Config
    spaces: Spaces
    number: int  # of the shard, from 0
    shards: int  # that there are; each has room for as many rows
    life: int  # how many shards have been in this place before
    filling: bool = False  # whether it begins so
    name: str = "shard"  # that it is found by; those of its temporary folders begin with it
    sources: str = ""  # the digest of the learner's host


class Shard:
    """A buffer, and which life it is; it draws by random numbers of its own.

    Attributes:
        filling: Whether the rows of a checkpoint are on their way. Until then it takes no others.

    Args:
        part: Which one.

    Raises:
        MemoryError: If there is less room than it may come to need.
    """

    def __init__(self, part: ShardPart) -> None:
        run, config = RunSeeds(part.config).replay, part.config
        seed = np.random.SeedSequence(run.entropy, spawn_key=(*run.spawn_key, part.number, part.life))
        own = replace(config, capacity=-(-config.capacity // part.shards), replay_start=1)
        self.buffer = make_replay(own, part.spaces, seed)
        self.life = part.life
        self.filling = part.filling
        self.scratch = f"{part.name}-"  # what the names of its folders begin with
        self.format = ChunkFormat(config, part.spaces)
        self._arriving: tempfile.TemporaryDirectory[str] | None = None  # holds the pieces that `load` got

    def add(self, chunk: Chunk) -> int:
        """Store the rows of a chunk; return how many: all, or none while the shard is being filled.

        Raises:
            ValueError: If it is not of this run. Nothing has changed then.
        """
        if self.filling:
            return 0
        rows, priorities = self.format.unpack(chunk)
        self.buffer.add(**rows, priorities=priorities)
        return len(priorities)

    def sample(self, rows: int, batches: int, beta: float) -> Parcel:
        """Draw rows for some batches; none if no row has mass.

        Args:
            rows: For each batch; 0 asks only for the totals.
            batches: How many.
            beta: The exponent of the weights.
        """
        buffer = self.buffer
        totals = Totals(buffer.total_mass, buffer.min_mass, len(buffer), buffer.get_next_index())
        if rows == 0 or totals.mass == 0.0:
            return Parcel(self.life, rows, np.empty(0, np.dtype([])), {}, totals)
        drawn = [buffer.sample(rows, beta) for _ in range(batches)]
        columns = {name: [batch[name] for batch in drawn] for name in drawn[0]}
        small = {name: parts for name, parts in columns.items() if parts[0].nbytes < LARGE * rows}
        dtype = [(name, parts[0].dtype, parts[0].shape[1:]) for name, parts in small.items()]
        records = np.empty(rows * batches, dtype)  # one array: each more would cost as much as a small call
        for name in small:
            np.concatenate(columns.pop(name), out=records[name])
        images = {
            name: parts[0] if batches == 1 else np.concatenate(parts) for name, parts in columns.items()
        }
        return Parcel(self.life, rows, records, images, totals)

    def update(self, life: int, indexes: NDArray[np.int64], priorities: NDArray[np.float32]) -> int:
        """Give rows of a life new priorities; return how many were dropped, since their rows are gone."""
        if life != self.life:
            return len(indexes)
        stale = self.buffer.stale_updates
        self.buffer.update_priorities(indexes, priorities)
        return self.buffer.stale_updates - stale

    def save(self) -> Iterator[bytes]:
        """Write all rows to this machine's disk, then yield the file in pieces.

        Others may add and sample meanwhile, in another thread.

        Raises:
            OSError: If it can't be written.
            ShardLost: If it is being filled: then the file that it is filled from is better.
        """
        if self.filling:
            raise ShardLost("a shard is being filled")
        with tempfile.TemporaryDirectory(prefix=self.scratch) as folder:
            path = Path(folder, FILE)
            self.buffer.save(path)
            with path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece

    def load(self, piece: bytes) -> None:
        """Take in the pieces of a file that `save` yielded, one by one; an empty one is the end.

        Then the rows are in the buffer, which must be a new one. The life stays: rows and priorities of the
        saved one are unknown to everybody by now.

        Raises:
            OSError: If there is no room.
            ValueError: If the file is damaged, or of another run.
        """
        if self._arriving is None:
            self._arriving = tempfile.TemporaryDirectory(prefix=self.scratch)
        path = Path(self._arriving.name, FILE)
        with path.open("ab") as file:
            file.write(piece)
        if not piece:
            with self._arriving:
                self._arriving = None
                self.buffer.load(path)

    def open(self) -> None:
        """Take rows from now on: it is filled, or can't be."""
        self.filling = False
