"""Shared memory and no lock: what is left of the ring if everybody goes in at once. It is wrong.

What it fixes of the locks: nobody waits, and no lock can be left behind by a writer that is killed.

Wrong with it: the sampler reads a row while a writer is in the middle of it, and gets the beginning of the
new row with the end of the old one, a **torn** row. And to count is three steps, to read, to add and to
write: two writers that read the same count write to the same slots, and the rows of one of them are lost.
"""

import ctypes
import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np

spawn = multiprocessing.get_context("spawn")  # the way to start processes that every system has


class NoLock:
    """The newest rows of many processes, in shared memory, and some that nobody has added."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Reserve shared memory for `capacity` rows.

        Args:
            capacity: Number of rows kept.
            fields: For each field of a row its shape and dtype, `{"obs": {"shape": (4,), "dtype": float}}`.
            seed: Seeds the drawing.
        """
        self.capacity = capacity
        self.record = np.dtype([(name, field["dtype"], field["shape"]) for name, field in fields.items()])
        self.memory: Any = spawn.RawArray(ctypes.c_byte, capacity * self.record.itemsize)
        self.added = spawn.RawValue(ctypes.c_int64)  # rows so far
        self.rng = np.random.default_rng(seed)

    @property
    def rows(self) -> np.ndarray:
        """The ring, [capacity] records: this process's view of the shared bytes."""
        return np.frombuffer(self.memory, self.record)

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]."""
        first, count = self.added.value, len(next(iter(rows.values())))
        slots = np.arange(first, first + count) % self.capacity
        for name, values in rows.items():
            self.rows[name][slots] = values  # the sampler may look at any moment of this
        self.added.value = first + count  # and another writer may have the same `first`

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw rows uniformly, with replacement: for each field an array [batch_size, *shape]."""
        stored = min(self.added.value, self.capacity)
        if stored == 0:
            raise ValueError(f"sample({batch_size}) needs at least 1 row; the buffer is empty.")
        batch = self.rows[self.rng.integers(stored, size=batch_size)]
        return {name: batch[name] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the memory goes with the last process that sees it."""
