"""Shared memory without a lock: the same ring, accessed by all processes at once. It is incorrect.

Improvement over locks: no process waits, and a killed writer cannot leave a lock behind.

Problems: the sampler can read a row while a writer is copying it, and get the beginning of the new row with
the end of the old one: a **torn** row. And counting takes three steps: read, add, write. Two writers that
read the same count write to the same slots, and the rows of one of them are lost.
"""

import ctypes
import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np

spawn = multiprocessing.get_context("spawn")  # the start method available on every system


class NoLock:
    """A ring of the newest rows in shared memory, which can contain torn rows."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Reserve shared memory for `capacity` rows.

        Args:
            capacity: Number of rows kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": float}}`.
            seed: Seed for sampling.
        """
        self.capacity = capacity
        self.record = np.dtype(
            [(name, field["dtype"], field.get("shape", ())) for name, field in fields.items()]
        )
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
            self.rows[name][slots] = values  # the sampler can read at any point of this copy
        self.added.value = first + count  # and another writer can have read the same `first`

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw rows uniformly, with replacement: for each field an array [batch_size, *shape]."""
        stored = min(self.added.value, self.capacity)
        if stored == 0:
            raise ValueError(f"sample({batch_size}) requires at least 1 row; the buffer is empty.")
        batch = self.rows[self.rng.integers(stored, size=batch_size)]
        return {name: batch[name] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the system frees the memory when the last process that maps it exits."""
