"""Counts how many times each row was sampled.

Only `sample` reads and writes the counts. Each count is stored together with the index of its row, so that
the count of a replaced row is recognized and `add` doesn't need to reset it.
"""

import numpy as np

from replay_tutorial.buffers.archive import MAX_COUNT, Damaged, Reader
from replay_tutorial.buffers.gather import ArraySpec
from replay_tutorial.buffers.runtime.jit import Integers, kernel

COUNT_SPECS: dict[str, ArraySpec] = {"times_sampled": (np.dtype(np.int64), ())}


@kernel
def count_rows(counted: Integers, counts: Integers, indexes: Integers, times: Integers) -> None:
    """Count each of the rows; write how many times each has been sampled so far."""
    for i in range(indexes.shape[0]):
        slot = indexes[i] % counts.shape[0]
        if counted[slot] != indexes[i] + 1:
            counts[slot] = 0
            counted[slot] = indexes[i] + 1
        counts[slot] += 1
    for i in range(indexes.shape[0]):
        times[i] = counts[indexes[i] % counts.shape[0]]


class SampleCounts:
    """The number of times that each row was sampled, by slot.

    Example:
        >>> counts = SampleCounts.zeros(4)
        >>> counts.count(np.array([7, 5, 7])).tolist(), counts.of(np.array([3, 5])).tolist()
        ([2, 1, 2], [0, 1])
    """

    def __init__(self, counted: Integers, counts: Integers) -> None:
        """Use existing arrays, int64[capacity], which may be in shared memory.

        `counts` is the number of times each row was sampled, and `counted` the index + 1 of that row, or 0.
        """
        self._counted, self._counts = counted, counts

    @classmethod
    def zeros(cls, capacity: int) -> "SampleCounts":
        """Create counts for a number of slots."""
        return cls(np.zeros(capacity, np.int64), np.zeros(capacity, np.int64))

    def count(self, indexes: Integers) -> Integers:
        """Count the rows of a batch; return how many times each has been sampled, including this batch."""
        times = np.empty(len(indexes), np.int64)
        count_rows(self._counted, self._counts, indexes, times)
        return times

    def of(self, indexes: Integers) -> Integers:
        """Return how many times each row was sampled, int64[n]."""
        slots = indexes % len(self._counts)
        return np.where(self._counted[slots] == indexes + 1, self._counts[slots], 0)

    def from_state(self, reader: Reader, indexes: Integers) -> "SampleCounts":
        """Return new counts of the rows with these indexes, read from a file."""
        loaded, times = SampleCounts.zeros(len(self._counts)), np.zeros(len(indexes), np.int64)
        reader.read_into("times_sampled", [times])
        check_times(times)
        loaded.restore(indexes, times)
        return loaded

    def restore(self, indexes: Integers, times: Integers) -> None:
        """Set the counts of rows to values from a file, which `check_times` has checked."""
        slots = indexes % len(self._counts)
        self._counts[slots], self._counted[slots] = times, indexes + 1


def check_times(times: Integers) -> None:
    """Raise Damaged if a count in a file is out of range."""
    if not ((times >= 0) & (times <= MAX_COUNT)).all():
        raise Damaged(f"a count in times_sampled is not between 0 and {MAX_COUNT}")
