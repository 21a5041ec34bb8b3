"""Shared memory under one lock: a ring of records that all processes see, and one of them at a time may use.

What it fixes of the manager: nobody sends anything. A row is written once, to where it stays, and a batch is
read from there. Every call takes the lock first, so that nobody sees half of a row.

Still wrong with it: everybody waits for whoever is inside, the sampler for writers and writers for each
other. And the lock is given back by the one who took it, or by nobody: kill a writer inside, and all the
others wait forever.
"""

import ctypes
import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np

spawn = multiprocessing.get_context("spawn")  # the way to start processes that every system has


class OneLock:
    """The newest rows of many processes, in shared memory."""

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
                raise ValueError(f"sample({batch_size}) needs at least 1 row; the buffer is empty.")
            batch = self.rows[self.rng.integers(stored, size=batch_size)]
        return {name: batch[name] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the memory goes with the last process that sees it."""
