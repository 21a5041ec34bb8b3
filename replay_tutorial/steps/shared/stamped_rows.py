"""A stamp in each slot: no lock, and no torn row either.

What it fixes: a slot's stamp says which row is in it, and whether somebody is writing it: `2 * (index + 1)`,
and 1 more while the slot is held. A writer takes a slot by swapping its stamp, which only one can do. The
sampler looks at the stamp before and after it copies a row: the same even stamp twice means a whole row.

Still wrong with it: the stamp does not say *who* holds the slot, so that of a killed writer stays held for
ever. The last rung before the package's `MPReplayBuffer`, which asks whether the holder is alive.

The atomics come from the package: written down here they would be longer than all the rest.
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

spawn = multiprocessing.get_context("spawn")  # the way to start processes that every system has


@njit(cache=True)
def write(next_index: np.ndarray, stamps: np.ndarray, rows: np.ndarray, row: np.ndarray) -> None:
    """Put a row into the ring. If something stands in the way of its index, it takes the next one."""
    while True:
        index = fetch_add(next_index, 0, 1)
        slot, whole = index % len(stamps), 2 * (index + 1)
        stamp = load_acquire(stamps, slot)
        if stamp % 2 == 1 or stamp > whole:
            continue  # held by another, or this writer was stopped for a lap and a newer row is there
        if compare_and_swap(stamps, slot, stamp, whole + 1):
            fence_release()  # or somebody might see new bytes under the old stamp
            rows[slot] = row
            store_release(stamps, slot, whole)  # who sees this sees the whole row
            return


@njit(cache=True)
def read(stamps: np.ndarray, rows: np.ndarray, slots: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Copy the rows in slots; return for each copy whether it is whole."""
    whole = np.zeros(len(slots), np.bool_)
    for i, slot in enumerate(slots):
        stamp = load_acquire(stamps, slot)
        if stamp > 0 and stamp % 2 == 0:
            copies[i] = rows[slot]
            fence_acquire()  # or the second look might come before the last byte was read
            whole[i] = load_acquire(stamps, slot) == stamp
    return whole


class StampedRows:
    """The newest rows of many processes, in shared memory, with a stamp in each slot."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Reserve shared memory for `capacity` rows.

        Args:
            capacity: Number of rows kept.
            fields: For each field of a row its shape and dtype, float64: `{"obs": {"shape": (4,), ...}}`.
            seed: Seeds the drawing.
        """
        self.capacity = capacity
        self.record = np.dtype([(name, float, field["shape"]) for name, field in fields.items()])
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
            raise ValueError(f"sample({batch_size}) needs at least 1 row; the buffer is empty.")
        batch, missing = np.empty((batch_size, rows.shape[1])), np.arange(batch_size)
        while len(missing):  # those that were changing are drawn again
            copies = np.empty((len(missing), rows.shape[1]))
            whole = read(stamps, rows, self.rng.integers(stored, size=len(missing)), copies)
            batch[missing[whole]] = copies[whole]
            missing = missing[~whole]
        return {name: batch.view(self.record)[name][:, 0] for name in self.record.names or ()}

    def close(self) -> None:
        """Do nothing: the memory goes with the last process that sees it."""
