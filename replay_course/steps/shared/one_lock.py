"""Shared memory under one lock: a ring of records that all processes map but only one at a time accesses.

Improvement over the manager: nothing is sent. A writer copies each row to its slot, and the sampler reads
batches from there. Every call acquires the lock first, so the sampler never reads an incomplete row.

Remaining problems: every process waits for the one that holds the lock, the sampler for writers and writers
for each other. And if a writer is killed while it holds the lock, all other processes wait forever: the lock
doesn't record its holder, so no process knows that the holder is dead, or which rows are half written.
"""

import ctypes
import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np

spawn = multiprocessing.get_context("spawn")  # the start method available on every system


class OneLock:
    """A ring of the newest rows in shared memory, with one lock."""

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
        self.lock = spawn.Lock()
        self.rng = np.random.default_rng(seed)

    @property
    def rows(self) -> np.ndarray:
        """The ring, [capacity] records: this process's view of the shared bytes."""
        return np.frombuffer(self.memory, self.record)

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]."""
        count = len(next(iter(rows.values())))
        with self.lock:
            slots = np.arange(self.added.value, self.added.value + count) % self.capacity
            for name, values in rows.items():
                self.rows[name][slots] = values
            self.added.value += count

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw rows uniformly, with replacement: for each field an array [batch_size, *shape]."""
        with self.lock:
            stored = min(self.added.value, self.capacity)
            if stored == 0:
                raise ValueError(f"sample({batch_size}) requires at least 1 row; the buffer is empty.")
            batch = self.rows[self.rng.integers(stored, size=batch_size)]
        return {name: batch[name] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the system frees the memory when the last process that maps it exits."""
