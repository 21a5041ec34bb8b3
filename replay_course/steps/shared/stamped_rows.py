"""A stamp in each slot: no lock, and no torn rows.

Improvement: a slot's stamp states which row it contains and whether it is held: `2 * (index + 1)`, plus 1 if
it is. A writer claims a slot by swapping its stamp, which succeeds for one writer only. The sampler loads the
stamp before and after it copies a row: two equal, even stamps mean that the row is complete.

Remaining problem: the stamp does not contain *which* process holds the slot, so the slot of a killed writer
stays held forever. `MPReplayBuffer`, the next version, checks whether the holder is alive.

The atomic operations are imported from the package, because they are longer than the rest of this file.
"""

import ctypes
import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from replay_tutorial.shared.atomics import (
    compare_and_swap,
    fence_acquire,
    fence_release,
    fetch_add,
    load_acquire,
    store_release,
)

spawn = multiprocessing.get_context("spawn")  # the start method available on every system


@njit(cache=True)
def write(next_index: np.ndarray, stamps: np.ndarray, rows: np.ndarray, row: np.ndarray) -> None:
    """Write a row to the ring. If its slot is unavailable, the row gets the next index."""
    while True:
        index = fetch_add(next_index, 0, 1)
        slot, whole = index % len(stamps), 2 * (index + 1)
        stamp = load_acquire(stamps, slot)
        if stamp % 2 == 1 or stamp > whole:
            continue  # held by another writer, or newer, because this writer was stopped for a lap
        if compare_and_swap(stamps, slot, stamp, whole + 1):
            fence_release()  # otherwise the sampler could see new data under the old stamp
            rows[slot] = row
            store_release(stamps, slot, whole)  # publishes the whole row
            return


@njit(cache=True)
def read(stamps: np.ndarray, rows: np.ndarray, slots: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Copy the rows in `slots`; return for each copy whether it is complete."""
    whole = np.zeros(len(slots), np.bool_)
    for i, slot in enumerate(slots):
        stamp = load_acquire(stamps, slot)
        if stamp > 0 and stamp % 2 == 0:
            copies[i] = rows[slot]
            fence_acquire()  # otherwise the second load could precede the end of the copy
            whole[i] = load_acquire(stamps, slot) == stamp
    return whole


class StampedRows:
    """A ring of the newest rows in shared memory, with a stamp for each slot."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Reserve shared memory for `capacity` rows.

        Args:
            capacity: Number of rows kept.
            fields: Shape (default ()) of each field, float64, `{"obs": {"shape": (4,), ...}}`.
            seed: Seed for sampling.
        """
        self.capacity = capacity
        self.record = np.dtype([(name, float, field.get("shape", ())) for name, field in fields.items()])
        self.memory: Any = spawn.RawArray(ctypes.c_byte, capacity * self.record.itemsize)
        self.words: Any = spawn.RawArray(ctypes.c_int64, 1 + capacity)
        self.rng = np.random.default_rng(seed)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """This process's view of the next index, int64[1], stamps, int64[capacity], and rows, float64."""
        words, rows = np.frombuffer(self.words, np.int64), np.frombuffer(self.memory, np.float64)
        return words[:1], words[1:], rows.reshape(self.capacity, -1)

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]."""
        new = np.empty(len(next(iter(rows.values()))), self.record)
        for name, values in rows.items():
            new[name] = values
        arrays = self.arrays
        for row in new.view(np.float64).reshape(len(new), -1):
            write(*arrays, row)

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw rows uniformly, with replacement: for each field an array [batch_size, *shape]."""
        next_index, stamps, rows = self.arrays
        stored = min(int(next_index[0]), self.capacity)
        if stored == 0:
            raise ValueError(f"sample({batch_size}) requires at least 1 row; the buffer is empty.")
        batch, missing = np.empty((batch_size, rows.shape[1])), np.arange(batch_size)
        while len(missing):  # rows that changed during the copy are drawn again
            copies = np.empty((len(missing), rows.shape[1]))
            whole = read(stamps, rows, self.rng.integers(stored, size=len(missing)), copies)
            batch[missing[whole]] = copies[whole]
            missing = missing[~whole]
        return {name: batch.view(self.record)[name][:, 0] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the system frees the memory when the last process that maps it exits."""
