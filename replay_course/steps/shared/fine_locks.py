"""Fine-grained locks: one for the row counter, and eight for the slots.

Improvement over one lock: each lock is held only while one row is copied, and blocks only the processes that
need it. Two writers can copy at the same time, and a writer makes the sampler wait only for one slot in
eight.

Each slot now needs the index of its row. A row is counted before it is written, so the sampler could draw a
slot that is still empty. A writer delayed for a whole lap could overwrite a newer row with its old one.

Remaining problems: every row requires a lock, which limits the total throughput, however many processes there
are. And a writer that is killed while it holds a lock never releases it, so every process that needs this
lock waits forever.
"""

import ctypes
import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np

PARTS = 8
spawn = multiprocessing.get_context("spawn")  # the start method available on every system


class FineLocks:
    """A ring of the newest rows in shared memory, with several locks."""

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
        self.counts = spawn.RawArray(ctypes.c_int64, capacity)  # index + 1 of the row in each slot, or 0
        self.added = spawn.RawValue(ctypes.c_int64)  # rows counted so far, including those not yet written
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
                    continue  # this writer was delayed, and the slot has a newer row
                for name, values in rows.items():
                    ring[name][slot] = values[i]
                self.counts[slot] = index + 1

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw rows uniformly, with replacement: for each field an array [batch_size, *shape]."""
        stored, ring = min(self.added.value, self.capacity), self.rows
        if stored == 0:
            raise ValueError(f"sample({batch_size}) requires at least 1 row; the buffer is empty.")
        batch, done = np.empty(batch_size, self.record), 0
        while done < batch_size:
            slot = int(self.rng.integers(stored))
            with self.locks[slot % PARTS]:
                if self.counts[slot]:  # otherwise it is counted but not written: draw again
                    batch[done] = ring[slot]
                    done += 1
        return {name: batch[name] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the system frees the memory when the last process that maps it exits."""
