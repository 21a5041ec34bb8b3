"""A lock for each part: one for the count of rows, and one for every eighth slot.

What it fixes of the one lock: a lock is held for as long as one row takes, and only by those who want that
part. Two writers copy side by side, and the sampler meets a closed door one time in eight.

It needs something that the one lock did not: a row's index in its slot. A row is counted before it is
written, so the sampler could draw a slot that is still empty; and a writer that is slow for a whole lap could
put its old row over a newer one.

Still wrong with it: a lock is taken for every row, twice eight processes can't run faster than the locks, and
a writer that is killed inside takes its part with it. Everybody who comes there waits forever.
"""

import ctypes
import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np

PARTS = 8
spawn = multiprocessing.get_context("spawn")  # the way to start processes that every system has


class FineLocks:
    """The newest rows of many processes, in shared memory, a lock for each part."""

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
        self.counts = spawn.RawArray(ctypes.c_int64, capacity)  # index + 1 of the row in a slot, 0 for none
        self.added = spawn.RawValue(ctypes.c_int64)  # rows so far, written or about to be
        self.lock_of_added = spawn.Lock()
        self.locks = [spawn.Lock() for _ in range(PARTS)]
        self.rng = np.random.default_rng(seed)

    @property
    def rows(self) -> np.ndarray:
        """The ring, [capacity] records: this process's view of the shared bytes."""
        return np.frombuffer(self.memory, self.record)

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]."""
        count, ring = len(next(iter(rows.values()))), self.rows
        with self.lock_of_added:
            first_index = self.added.value
            self.added.value += count
        for i in range(count):
            index = first_index + i
            slot = index % self.capacity
            with self.locks[slot % PARTS]:
                if index < self.counts[slot]:
                    continue  # this writer was slow, and a newer row is there
                for name, values in rows.items():
                    ring[name][slot] = values[i]
                self.counts[slot] = index + 1

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw rows uniformly, with replacement: for each field an array [batch_size, *shape]."""
        stored, ring = min(self.added.value, self.capacity), self.rows
        if stored == 0:
            raise ValueError(f"sample({batch_size}) needs at least 1 row; the buffer is empty.")
        batch, done = np.empty(batch_size, self.record), 0
        while done < batch_size:
            slot = int(self.rng.integers(stored))
            with self.locks[slot % PARTS]:
                if self.counts[slot]:  # else it is counted and not yet written: draw again
                    batch[done] = ring[slot]
                    done += 1
        return {name: batch[name] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the memory goes with the last process that sees it."""
