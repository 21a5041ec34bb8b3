"""Selection by age: a list in the order of insertion, linked both ways, so that any slot can leave it.

⟷ oldest ⟷ … ⟷ newest ⟷ end ⟷      the end stands before the oldest and after the newest
"""

import sys

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers
from replay_tutorial.tables.selection import Selected, Selection, Slots


class Linked(Selection):
    """The oldest slot is next, or the newest; priorities change nothing, nor do updates."""

    low, high = -sys.float_info.max, sys.float_info.max

    def __init__(self, slots: int, newest_first: bool) -> None:
        """Begin empty."""
        self._end = slots  # stands for no slot
        self._after: Slots = np.full(slots + 1, slots, np.int32)
        self._before: Slots = np.full(slots + 1, slots, np.int32)
        self._first = self._before if newest_first else self._after  # read at the end, it says who is next

    def insert(self, slot: int, priority: float) -> None:
        newest = self._before[self._end]
        self._after[newest] = slot
        self._before[slot] = newest
        self._after[slot] = self._end
        self._before[self._end] = slot

    def update(self, slots: Integers, priorities: Floats) -> None:
        pass

    def delete(self, slot: int) -> None:
        before, after = self._before[slot], self._after[slot]
        self._after[before] = after
        self._before[after] = before

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        return Selected(np.full(count, self._first[self._end], np.int64), np.ones(count), 1.0)

    def pick(self, rng: np.random.Generator) -> int:
        return int(self._first[self._end])

    def probabilities(self, slots: Integers) -> Floats:
        return (slots == self._first[self._end]).astype(np.float64)

    def in_order(self) -> Integers:
        slots: list[int] = []
        slot = int(self._after[self._end])
        while slot != self._end:
            slots.append(slot)
            slot = int(self._after[slot])
        return np.array(slots, np.int64)
