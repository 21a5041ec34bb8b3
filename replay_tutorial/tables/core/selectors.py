"""The six selectors, which decide which item is sampled or evicted next.

A table has two of them, a sampler and a remover. The table owns the items and their priorities; a selector
keeps only its own index structure over the slots, and the table checks its arguments. A selector that the
user creates, such as `Fifo()`, is only a configuration; each table creates its own instance with `for_slots`.
"""

import copy
import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from replay_tutorial.buffers.priorities import power
from replay_tutorial.buffers.rows import random_below
from replay_tutorial.buffers.runtime.jit import Floats, Int32s, Integers, kernel
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, set_leaves


class Selected(NamedTuple):
    """Selected slots and their probabilities."""

    slots: Integers  # int64[n]
    probabilities: Floats  # float64[n]
    least_probability: float  # smallest non-zero probability of any slot


@dataclass
class Selector(ABC):
    """Base class of selectors; two of the same class are equal if their parameters are equal."""

    low = -sys.float_info.max  # smallest valid priority
    high = sys.float_info.max  # largest valid priority

    def for_slots(self, num_slots: int) -> Self:
        """Return an empty selector with the same parameters, for slots 0 to num_slots - 1."""
        selector = copy.copy(self)
        selector.allocate(num_slots)
        return selector

    @abstractmethod
    def allocate(self, num_slots: int) -> None:
        """Allocate the arrays for `num_slots` slots."""

    @abstractmethod
    def insert(self, slot: int, priority: float) -> None:
        """Add a slot."""

    def update(self, slots: Integers, priorities: Floats) -> None:  # noqa: B027 - by default without effect
        """Set new priorities of slots, one after the other."""

    @abstractmethod
    def delete(self, slot: int) -> None:
        """Remove a slot."""

    def select_one(self, rng: np.random.Generator) -> int:
        """Select one slot and return it without its probability."""
        return int(self.select(1, rng).slots[0])

    @abstractmethod
    def select(self, count: int, rng: np.random.Generator) -> Selected:
        """Select `count` slots with replacement; the selector must not be empty."""

    @abstractmethod
    def probabilities(self, slots: Integers) -> Floats:
        """Return the current probability of selecting each of the given slots, float64[n]."""

    @abstractmethod
    def in_order(self) -> Integers:
        """Return all slots, int64[size], in an order whose insertion rebuilds an equal selector."""


class DeterministicSelector(Selector, ABC):
    """Base class of deterministic selectors."""

    @abstractmethod
    def first(self) -> int:
        """Return the slot to select next."""

    def select_one(self, rng: np.random.Generator) -> int:
        return self.first()

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        return Selected(np.full(count, self.first(), np.int64), np.ones(count), 1.0)

    def probabilities(self, slots: Integers) -> Floats:
        return (slots == self.first()).astype(np.float64)


class Uniform(Selector):
    """Selects all items with equal probability.

    The slots are kept without gaps in an array, so that a random position selects a slot:

        insert 7    3 5 2 7         append
        delete 3    7 5 2           move the last slot into the gap
    """

    def allocate(self, num_slots: int) -> None:
        self._size = 0
        self._slots: Int32s = np.zeros(num_slots, np.int32)  # the first `_size` elements are valid
        self._positions: Int32s = np.zeros(num_slots, np.int32)  # position of each slot in `_slots`

    def insert(self, slot: int, priority: float) -> None:
        self._slots[self._size] = slot
        self._positions[slot] = self._size
        self._size += 1

    def delete(self, slot: int) -> None:
        self._size -= 1
        position, last = self._positions[slot], self._slots[self._size]
        self._slots[position] = last
        self._positions[last] = position

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        probability = 1.0 / self._size
        slots = self._slots[random_below(self._size, count, rng)].astype(np.int64)
        return Selected(slots, np.full(count, probability), probability)

    def probabilities(self, slots: Integers) -> Floats:
        return np.full(len(slots), 1.0 / max(self._size, 1))

    def in_order(self) -> Integers:
        return self._slots[: self._size].astype(np.int64)


class Fifo(DeterministicSelector):
    """Selects the oldest item; updates have no effect.

    The slots form a doubly linked list with a sentinel, so any slot can be removed in O(1):

        ⟷ oldest ⟷ … ⟷ newest ⟷ sentinel ⟷
    """

    def allocate(self, num_slots: int) -> None:
        self._sentinel = num_slots
        self._next: Int32s = np.full(num_slots + 1, num_slots, np.int32)
        self._previous: Int32s = np.full(num_slots + 1, num_slots, np.int32)

    def insert(self, slot: int, priority: float) -> None:
        newest = self._previous[self._sentinel]
        self._next[newest] = slot
        self._previous[slot] = newest
        self._next[slot] = self._sentinel
        self._previous[self._sentinel] = slot

    def delete(self, slot: int) -> None:
        previous, next_ = self._previous[slot], self._next[slot]
        self._next[previous] = next_
        self._previous[next_] = previous

    def first(self) -> int:
        return int(self._next[self._sentinel])

    def in_order(self) -> Integers:
        slots: list[int] = []
        slot = int(self._next[self._sentinel])
        while slot != self._sentinel:
            slots.append(slot)
            slot = int(self._next[slot])
        return np.array(slots, np.int64)


class Lifo(Fifo):
    """Selects the newest item; updates have no effect."""

    def first(self) -> int:
        return int(self._previous[self._sentinel])


@kernel
def set_rank(winners: Int32s, ranks: Floats, stamps: Integers, slot: int, rank: float, stamp: int) -> None:
    """Set the rank and the stamp of a slot, and replay its matches; infinity removes the slot."""
    ranks[slot] = rank
    stamps[slot] = stamp
    node = (len(winners) // 2 + slot) // 2  # the parent of the slot's leaf
    while node > 0:
        winner, other = winners[2 * node], winners[2 * node + 1]
        if ranks[other] < ranks[winner] or (ranks[other] == ranks[winner] and stamps[other] < stamps[winner]):
            winner = other
        if winner == winners[node] and winner != slot:
            break  # the matches above are unchanged
        winners[node] = winner
        node //= 2


@kernel
def set_ranks(
    winners: Int32s, ranks: Floats, stamps: Integers, slots: Integers, values: Floats, first_stamp: int
) -> None:
    """Set the ranks of slots to the given values, one after the other."""
    for i in range(len(slots)):
        set_rank(winners, ranks, stamps, slots[i], values[i], first_stamp + i)


class MinHeap(DeterministicSelector):
    """Selects the item with the lowest priority; ties go to the item inserted or updated longest ago.

    A tournament: a binary tree like the sum tree, in which each node holds the better slot of its two
    children, and node 1 the winner. The rank of a slot is its priority, and infinite if the slot is empty.
    Because stamps break ties, the order never depends on earlier matches.
    """

    sign = 1.0  # rank = sign · priority

    def allocate(self, num_slots: int) -> None:
        self._next_stamp = 0
        winners = np.full(2 * num_slots, num_slots, np.int32)  # initially, a slot that is always empty
        winners[num_slots:] = np.arange(num_slots)  # the leaves
        self._tree = winners, np.full(num_slots + 1, math.inf), np.zeros(num_slots + 1, np.int64)

    def insert(self, slot: int, priority: float) -> None:
        set_rank(*self._tree, slot, self.sign * priority, self._next_stamp)
        self._next_stamp += 1

    def update(self, slots: Integers, priorities: Floats) -> None:
        set_ranks(*self._tree, slots, self.sign * priorities, self._next_stamp)
        self._next_stamp += len(slots)

    def delete(self, slot: int) -> None:
        set_rank(*self._tree, slot, math.inf, 0)

    def first(self) -> int:
        return int(self._tree[0][1])

    def in_order(self) -> Integers:
        _, ranks, stamps = self._tree
        slots = np.flatnonzero(ranks < math.inf)
        return slots[np.argsort(stamps[slots])]


class MaxHeap(MinHeap):
    """Selects the item with the highest priority; ties go to the item inserted or updated longest ago."""

    sign = -1.0


@kernel
def write_masses(priorities: Floats, exponent: float, masses: Floats) -> None:
    """Write the mass for each priority."""
    for i in range(priorities.shape[0]):
        if priorities[i] > 0.0:
            small = exponent <= 1.0  # the range that `power` supports
            masses[i] = power(priorities[i], exponent) if small else priorities[i] ** exponent
        else:
            masses[i] = 0.0


@kernel
def set_mass(sums: Floats, minima: Floats, slot: int, priority: float, exponent: float) -> None:
    """Set the mass of one slot, without the overhead of two kernel calls on arrays of one element."""
    masses = np.empty(1)
    write_masses(np.full(1, priority), exponent, masses)
    set_leaves(sums, minima, np.full(1, slot), masses)


@dataclass
class Prioritized(Selector):
    """Selects items with probability proportional to priority ** exponent, using a sum tree over the slots.

        P(i) = p_i^α / Σ_k p_k^α,   α ≥ 0

    Items with priority 0 have no mass, whatever the exponent is, and are selected only if all priorities are
    0. In that case all items are equally likely, and sampling takes O(n). Samples are drawn independently,
    whereas the buffers use stratified sampling.

    Source: Schaul et al. 2016, "Prioritized Experience Replay", eq. 1, with ε = 0; the rules for priority 0
    are Reverb's.

    Attributes:
        exponent: α, finite and non-negative. With 0, all items with non-zero priority are equally likely.
    """

    exponent: float

    low = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.exponent < math.inf:
            raise ValueError(f"exponent must be finite and non-negative, not {self.exponent}.")
        self.exponent = float(self.exponent)

    def allocate(self, num_slots: int) -> None:
        # The largest priority for which the sum of all masses cannot overflow, with a margin for rounding.
        self.high = (sys.float_info.max / (16 * num_slots)) ** (1.0 / max(self.exponent, 1.0))
        self._tree = SumTree(num_slots)
        self._present = np.zeros(num_slots, np.bool_)  # includes slots with mass 0

    def insert(self, slot: int, priority: float) -> None:
        self._present[slot] = True
        set_mass(self._tree.sums, self._tree.minima, slot, priority, self.exponent)

    def update(self, slots: Integers, priorities: Floats) -> None:
        masses = np.empty(len(slots))
        write_masses(priorities, self.exponent, masses)
        self._tree.set(slots, masses)

    def delete(self, slot: int) -> None:
        self._present[slot] = False
        set_mass(self._tree.sums, self._tree.minima, slot, 0.0, self.exponent)

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
            return np.full(len(slots), 1.0 / max(int(self._present.sum()), 1))
        return self._tree.leaves[slots] / total

    def in_order(self) -> Integers:
        return np.flatnonzero(self._present)  # any order rebuilds an equal tree
