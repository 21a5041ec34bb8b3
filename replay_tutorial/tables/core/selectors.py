"""The six selectors: which item is sampled next, and which is evicted next.

A table has two: one that draws, and one that evicts. The table owns the items and their priorities; a
selector keeps only what it needs to be fast, by slot. Everything has been checked when it is called.

What a user makes, such as `Fifo()`, has no slots: it describes. Each table makes its own from it by `over`.
"""

import copy
import math
import sys
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats, Integers, kernel, types
from replay_tutorial.buffers.priorities import power
from replay_tutorial.buffers.rows import random_below
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, set_leaves

# Slots as they are kept: half the memory of int64.
Slots = Annotated[npt.NDArray[np.int32], types.int32[::1]]


class Selected(NamedTuple):
    """Which slots were selected, with what probability.

    Attributes:
        slots: int64[n].
        probabilities: float64[n].
        least_probability: The smallest that any item had which could be selected.
    """

    slots: Integers
    probabilities: Floats
    least_probability: float


@dataclass
class Selector(Protocol):
    """A way to select slots: in an order, so that one is `first`; or at random.

    One that selects at random has no `first`, and its own `pick`, `select` and `probabilities`. Two selectors
    of one class are equal, and print alike, if their numbers are.
    """

    low = -sys.float_info.max  # the smallest priority that it takes
    high = sys.float_info.max  # the largest

    def over(self, num_slots: int) -> Self:
        """Make a selector of this kind, for slots 0 to num_slots - 1, with none in."""
        selector = copy.copy(self)
        selector.begin(num_slots)
        return selector

    def begin(self, num_slots: int) -> None:
        """Allocate the arrays for `num_slots` slots."""
        ...

    def insert(self, slot: int, priority: float) -> None:
        """Take in a slot that is not in yet."""
        ...

    def update(self, slots: Integers, priorities: Floats) -> None:
        """Change priorities, one after the other, of slots that are in."""

    def delete(self, slot: int) -> None:
        """Let go of a slot that is in."""
        ...

    def first(self) -> int:
        """Return the slot that is next, where one is for certain."""
        return int(self.in_order()[0])

    def pick(self, rng: np.random.Generator) -> int:
        """Select once, and return the slot alone."""
        return self.first()

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        """Select `count` times, with replacement; there must be a slot."""
        return Selected(np.full(count, self.first(), np.int64), np.ones(count), 1.0)

    def probabilities(self, slots: Integers) -> Floats:
        """Return with what probability each of these would be selected now, float64[n]."""
        return (slots == self.first()).astype(np.float64)

    def in_order(self) -> Integers:
        """List the slots, int64[size], so that inserting them in this order leads to the same selector."""
        ...


class Uniform(Selector):
    """Every item is as likely: the slots stand without a gap in a vector, so that a place in it can be drawn.

    insert 7    3 5 2 7         at the end
    delete 3    7 5 2           the last one moves into the hole
    """

    def begin(self, num_slots: int) -> None:
        self._size = 0
        self._slots: Slots = np.zeros(num_slots, np.int32)  # the first `_size` count
        self._places: Slots = np.zeros(num_slots, np.int32)  # where each slot stands

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

    def begin(self, num_slots: int) -> None:
        self._end = num_slots  # stands for no slot
        self._after: Slots = np.full(num_slots + 1, num_slots, np.int32)
        self._before: Slots = np.full(num_slots + 1, num_slots, np.int32)

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


class Nodes(NamedTuple):
    """A heap's arrays.

    Attributes:
        heap: int32[num_slots]; of each node its slot. The first `size` count.
        places: int32[num_slots]; of each slot its node.
        ranks: float64[num_slots]; of each slot its priority, or its opposite: the least comes first.
        stamps: int64[num_slots]; of each slot when it was last inserted or updated.
    """

    heap: Slots
    places: Slots
    ranks: Floats
    stamps: Integers


HeapArrays = Annotated[tuple[Any, ...], Nodes]


@kernel
def comes_before(nodes: Nodes, slot: int, other: int) -> bool:
    """Return whether a slot is selected before another."""
    if nodes.ranks[slot] != nodes.ranks[other]:
        return nodes.ranks[slot] < nodes.ranks[other]
    return nodes.stamps[slot] < nodes.stamps[other]


@kernel
def sift(nodes: Nodes, slot: int, place: int, size: int) -> None:
    """Put a slot at a place, and move it up or down to where it belongs."""
    heap, places = nodes.heap, nodes.places
    while place > 0 and comes_before(nodes, slot, heap[(place - 1) // 2]):
        heap[place] = heap[(place - 1) // 2]
        places[heap[place]] = place
        place = (place - 1) // 2
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and comes_before(nodes, heap[child + 1], heap[child]):
            child += 1
        if not comes_before(nodes, heap[child], slot):
            break
        heap[place] = heap[child]
        places[heap[place]] = place
        place = child
    heap[place] = slot
    places[slot] = place


@kernel
def insert_node(plain: HeapArrays, slot: int, rank: float, stamp: int, size: int) -> None:
    """Insert a slot into a heap of `size` slots."""
    nodes = Nodes(*plain)
    nodes.ranks[slot] = rank
    nodes.stamps[slot] = stamp
    sift(nodes, slot, size, size + 1)


@kernel
def update_nodes(
    plain: HeapArrays, slots: Integers, priorities: Floats, sign: float, stamp: int, size: int
) -> None:
    """Move slots, one after the other, to where their new priorities belong."""
    nodes = Nodes(*plain)
    for i in range(len(slots)):
        nodes.ranks[slots[i]] = sign * priorities[i]
        nodes.stamps[slots[i]] = stamp + i
        sift(nodes, slots[i], nodes.places[slots[i]], size)


@kernel
def delete_node(plain: HeapArrays, slot: int, size: int) -> None:
    """Take a slot out of a heap of `size` slots: the last one takes its place."""
    nodes = Nodes(*plain)
    place, last = nodes.places[slot], nodes.heap[size - 1]
    if last != slot:
        sift(nodes, last, place, size - 1)


class MinHeap(Selector):
    """The item of the least priority; of several the one inserted or updated longest ago.

    A binary heap: node i has the children 2 i + 1 and 2 i + 2, and comes before both. The order of equal
    priorities never depends on how the heap was built.
    """

    sign = 1.0  # of a priority in its rank

    def begin(self, num_slots: int) -> None:
        self.size = 0
        self._next_stamp = 0
        places = np.zeros(num_slots, np.int32)
        self._nodes = Nodes(
            np.zeros(num_slots, np.int32), places, np.zeros(num_slots), np.zeros(num_slots, np.int64)
        )
        self._plain = tuple(self._nodes)

    def insert(self, slot: int, priority: float) -> None:
        insert_node(self._plain, slot, self.sign * priority, self._next_stamp, self.size)
        self._next_stamp += 1
        self.size += 1

    def update(self, slots: Integers, priorities: Floats) -> None:
        update_nodes(self._plain, slots, priorities, self.sign, self._next_stamp, self.size)
        self._next_stamp += len(slots)

    def delete(self, slot: int) -> None:
        delete_node(self._plain, slot, self.size)
        self.size -= 1

    def first(self) -> int:
        return int(self._nodes.heap[0])

    def in_order(self) -> Integers:
        slots = self._nodes.heap[: self.size].astype(np.int64)
        return slots[np.argsort(self._nodes.stamps[slots])]


class MaxHeap(MinHeap):
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

    def begin(self, num_slots: int) -> None:
        # The total of all masses can't overflow, with a margin for rounding.
        self.high = (sys.float_info.max / (16 * num_slots)) ** (1.0 / max(self.exponent, 1.0))
        self._tree = SumTree(num_slots)
        self._is_in = np.zeros(num_slots, np.bool_)  # also those without mass

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
