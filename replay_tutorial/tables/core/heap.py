"""Selection by priority: a binary heap, whose first place holds the slot that is next.

Node i has the children 2 i + 1 and 2 i + 2, and comes before both. Of equal priorities that slot comes first
whose last insertion or update is longest ago, so the order of a heap never depends on how it was built.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers, kernel
from replay_tutorial.tables.core.selection import Selector, Slots


class Nodes(NamedTuple):
    """A heap's arrays.

    Attributes:
        heap: int32[slots]; of each node its slot. The first `size` count.
        places: int32[slots]; of each slot its node.
        ranks: float64[slots]; of each slot its priority, or its opposite: the least comes first.
        stamps: int64[slots]; of each slot when it was last inserted or updated.
    """

    heap: Slots
    places: Slots
    ranks: Floats
    stamps: Integers


Plain = Annotated[tuple[Any, ...], Nodes]


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
def insert_node(plain: Plain, slot: int, rank: float, stamp: int, size: int) -> None:
    """Insert a slot into a heap of `size` slots."""
    nodes = Nodes(*plain)
    nodes.ranks[slot] = rank
    nodes.stamps[slot] = stamp
    sift(nodes, slot, size, size + 1)


@kernel
def update_nodes(
    plain: Plain, slots: Integers, priorities: Floats, sign: float, stamp: int, size: int
) -> None:
    """Move slots, one after the other, to where their new priorities belong."""
    nodes = Nodes(*plain)
    for i in range(len(slots)):
        nodes.ranks[slots[i]] = sign * priorities[i]
        nodes.stamps[slots[i]] = stamp + i
        sift(nodes, slots[i], nodes.places[slots[i]], size)


@kernel
def delete_node(plain: Plain, slot: int, size: int) -> None:
    """Take a slot out of a heap of `size` slots: the last one takes its place."""
    nodes = Nodes(*plain)
    place, last = nodes.places[slot], nodes.heap[size - 1]
    if last != slot:
        sift(nodes, last, place, size - 1)


class Heap(Selector):
    """The slot of the least priority is next, or that of the greatest."""

    sign = 1.0  # of a priority in its rank

    def begin(self, slots: int) -> None:
        self.size = 0
        self._next_stamp = 0
        places = np.zeros(slots, np.int32)
        self._nodes = Nodes(np.zeros(slots, np.int32), places, np.zeros(slots), np.zeros(slots, np.int64))
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
