"""Uniform selection: the slots stand without a gap in a vector, so that a place in it can be drawn.

insert 7    3 5 2 7         at the end
delete 3    7 5 2           the last one moves into the hole
"""

import sys

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers
from replay_tutorial.buffers.rows import random_below
from replay_tutorial.tables.selection import Selected, Selection, Slots


class Dense(Selection):
    """Every slot is as likely; priorities change nothing."""

    low, high = -sys.float_info.max, sys.float_info.max

    def __init__(self, slots: int) -> None:
        """Begin empty."""
        self.size = 0
        self._slots: Slots = np.zeros(slots, np.int32)  # the first `size` count
        self._places: Slots = np.zeros(slots, np.int32)  # where each slot stands

    def insert(self, slot: int, priority: float) -> None:
        self._slots[self.size] = slot
        self._places[slot] = self.size
        self.size += 1

    def update(self, slots: Integers, priorities: Floats) -> None:
        pass

    def delete(self, slot: int) -> None:
        self.size -= 1
        place, last = self._places[slot], self._slots[self.size]
        self._slots[place] = last
        self._places[last] = place

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        probability = 1.0 / self.size
        slots = self._slots[random_below(self.size, count, rng)].astype(np.int64)
        return Selected(slots, np.full(count, probability), probability)

    def probabilities(self, slots: Integers) -> Floats:
        return np.full(len(slots), 1.0 / max(self.size, 1))

    def in_order(self) -> Integers:
        return self._slots[: self.size].astype(np.int64)
