"""The shared ring: the rows and counters of a ring that several processes see, behind one lock.

It is `buffers.ring.Ring` with its rows and counters in shared memory. Whoever reads or writes holds the lock.

Left out: doing without the lock. A process that is killed while it holds the lock stops all others.
"""

# pyright: reportIncompatibleVariableOverride=false
import numpy as np

from replay_tutorial.buffers.ring import Ring
from replay_tutorial.shared.memory import SharedArrays, Specs

NEXT_INDEX, STORED, SAMPLER = range(3)  # the counters, int64


def ring_specs(capacity: int, dtype: np.dtype[np.void]) -> Specs:
    """Tell the shared arrays that a ring needs."""
    return {"rows": ((capacity,), dtype), "counters": ((3,), np.dtype(np.int64))}


class SharedRing(Ring):
    """A ring whose rows and counters lie in shared memory."""

    def __init__(self, arrays: SharedArrays) -> None:
        """Look into arrays that `ring_specs` described."""
        self._counters = arrays["counters"]
        super().__init__(arrays["rows"])

    @property
    def sampler(self) -> int:
        """The process that samples, 0 before there is one."""
        return int(self._counters[SAMPLER])

    @sampler.setter
    def sampler(self, process: int) -> None:
        self._counters[SAMPLER] = process

    @property
    def next_index(self) -> int:
        """The index that the next row will get."""
        return int(self._counters[NEXT_INDEX])

    @next_index.setter
    def next_index(self, index: int) -> None:
        self._counters[NEXT_INDEX] = index

    @property
    def stored(self) -> int:
        """Number of rows held, at most the capacity."""
        return int(self._counters[STORED])

    @stored.setter
    def stored(self, count: int) -> None:
        self._counters[STORED] = count
