"""The six selectors: who is sampled next, and who is evicted next."""

import math
import sys
from dataclasses import dataclass

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers, kernel
from replay_tutorial.buffers.priorities import power
from replay_tutorial.buffers.rows import random_below
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, set_leaves
from replay_tutorial.tables.core.heap import Heap
from replay_tutorial.tables.core.selection import Selected, Selector, Slots


class Uniform(Selector):
    """Every item is as likely: the slots stand without a gap in a vector, so that a place in it can be drawn.

    insert 7    3 5 2 7         at the end
    delete 3    7 5 2           the last one moves into the hole
    """

    def begin(self, slots: int) -> None:
        self._size = 0
        self._slots: Slots = np.zeros(slots, np.int32)  # the first `_size` count
        self._places: Slots = np.zeros(slots, np.int32)  # where each slot stands

    def insert(self, slot: int, priority: float) -> None:
        self._slots[self._size] = slot
        self._places[slot] = self._size
        self._size += 1

    def delete(self, slot: int) -> None:
        self._size -= 1
        place, last = self._places[slot], self._slots[self._size]
        self._slots[place] = last
        self._places[last] = place

    def pick(self, rng: np.random.Generator) -> int:
        return int(self.select(1, rng).slots[0])

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        probability = 1.0 / self._size
        slots = self._slots[random_below(self._size, count, rng)].astype(np.int64)
        return Selected(slots, np.full(count, probability), probability)

    def probabilities(self, slots: Integers) -> Floats:
        return np.full(len(slots), 1.0 / max(self._size, 1))

    def in_order(self) -> Integers:
        return self._slots[: self._size].astype(np.int64)


class Fifo(Selector):
    """The item that was inserted first: a list, linked both ways, so that any slot can leave it.

    ⟷ oldest ⟷ … ⟷ newest ⟷ end ⟷      the end stands before the oldest and after the newest

    Updates don't count.
    """

    def begin(self, slots: int) -> None:
        self._end = slots  # stands for no slot
        self._after: Slots = np.full(slots + 1, slots, np.int32)
        self._before: Slots = np.full(slots + 1, slots, np.int32)

    def insert(self, slot: int, priority: float) -> None:
        newest = self._before[self._end]
        self._after[newest] = slot
        self._before[slot] = newest
        self._after[slot] = self._end
        self._before[self._end] = slot

    def delete(self, slot: int) -> None:
        before, after = self._before[slot], self._after[slot]
        self._after[before] = after
        self._before[after] = before

    def first(self) -> int:
        return int(self._after[self._end])

    def in_order(self) -> Integers:
        slots: list[int] = []
        slot = int(self._after[self._end])
        while slot != self._end:
            slots.append(slot)
            slot = int(self._after[slot])
        return np.array(slots, np.int64)


class Lifo(Fifo):
    """The item that was inserted last; updates don't count."""

    def first(self) -> int:
        """Return the newest."""
        return int(self._before[self._end])


class MinHeap(Heap):
    """The item of the least priority; of several the one inserted or updated longest ago."""


class MaxHeap(Heap):
    """The item of the greatest priority; of several the one inserted or updated longest ago."""

    sign = -1.0


@kernel
def powers_of(priorities: Floats, exponent: float) -> Floats:
    """Return the masses of slots with these priorities, float64[n]."""
    masses = np.zeros(priorities.shape[0])
    for i in range(priorities.shape[0]):
        if priorities[i] > 0.0:
            small = exponent <= 1.0  # all that `power` can
            masses[i] = power(priorities[i], exponent) if small else priorities[i] ** exponent
    return masses


@kernel
def put_mass(sums: Floats, minima: Floats, slot: int, priority: float, exponent: float) -> None:
    """Set the mass of one slot; one call, where two with arrays of one would cost twice as much."""
    set_leaves(sums, minima, np.full(1, slot), powers_of(np.full(1, priority), exponent))


@dataclass
class Prioritized(Selector):
    """An item with a probability proportional to priority ** exponent: a sum tree over the slots.

        P(i) = p_i^α / Σ_k p_k^α,   α ≥ 0

    A priority of 0 has no mass, whatever α is. If no slot has any, all are as likely; then a draw looks at
    every slot. Draws are independent of each other, as their probabilities say; those of the buffers are
    stratified.

    Source: Schaul et al. 2016, "Prioritized Experience Replay", eq. 1, with ε = 0; the rules for 0 are
    Reverb's.

    Attributes:
        exponent: α, finite and at least 0. With 0 all items are as likely, but those of priority 0.
    """

    exponent: float

    low = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.exponent < math.inf:
            raise ValueError(f"exponent must be finite and at least 0, not {self.exponent}.")
        self.exponent = float(self.exponent)

    def begin(self, slots: int) -> None:
        # The total of all masses can't overflow, with a margin for rounding.
        self.high = (sys.float_info.max / (16 * slots)) ** (1.0 / max(self.exponent, 1.0))
        self._tree = SumTree(slots)
        self._is_in = np.zeros(slots, np.bool_)  # also those without mass

    def insert(self, slot: int, priority: float) -> None:
        self._is_in[slot] = True
        put_mass(self._tree.sums, self._tree.minima, slot, priority, self.exponent)

    def update(self, slots: Integers, priorities: Floats) -> None:
        self._tree.set(slots, powers_of(priorities, self.exponent))

    def delete(self, slot: int) -> None:
        self._is_in[slot] = False
        put_mass(self._tree.sums, self._tree.minima, slot, 0.0, self.exponent)

    def pick(self, rng: np.random.Generator) -> int:
        return int(self.select(1, rng).slots[0])

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        total = self._tree.total
        if total == 0.0:
            slots = self.in_order()
            probability = 1.0 / len(slots)
            drawn = slots[random_below(len(slots), count, rng)]
            return Selected(drawn, np.full(count, probability), probability)
        slots, masses = self._tree.find(rng.random(count) * total)
        return Selected(slots, masses / total, float(self._tree.minima[ROOT]) / total)

    def probabilities(self, slots: Integers) -> Floats:
        total = self._tree.total
        if total == 0.0:
            return np.full(len(slots), 1.0 / max(int(self._is_in.sum()), 1))
        return self._tree.leaves[slots] / total

    def in_order(self) -> Integers:
        return np.flatnonzero(self._is_in)  # the order changes nothing
