"""The items of a table: lists of cells, each with a priority and a unique key.

    slot       0   1   2   3         4 slots: key = generation · 4 + slot
    keys       8   1  -7   3         slot 0 holds its third item; slot 2 is empty, its next key is ~(-7) = 6
    starts     6   0   3   9         where the item's list starts in `cells`

A slot gives each new item another key, so a stale key is detected by comparing it with the slot's current
key. An item stores every cell explicitly, part after part, never only the first cell and a length, because
its steps need not be consecutive.
"""

from collections import defaultdict
from functools import lru_cache

import numpy as np

from replay_tutorial.buffers.runtime.jit import Flags, Floats, Int32Matrix, Int32s, Integers
from replay_tutorial.tables.core.cells import CellList

Lengths = tuple[int, ...]  # number of cells in each part of a trajectory


class Items:
    """Storage of a table's items, indexed by slot."""

    def __init__(self, num_slots: int) -> None:
        """Create an empty container."""
        self.num_slots = num_slots
        self.size = 0  # number of items
        self.keys: Integers = ~np.arange(num_slots)  # ~(next key) < 0 if the slot is empty
        self.priorities: Floats = np.zeros(num_slots)
        self.times_sampled: Int32s = np.zeros(num_slots, np.int32)
        self.starts: Integers = np.zeros(num_slots, np.int64)  # where the item's list starts in `cells`
        # a stack of free slots, of height num_slots - size
        self.free_slots: Int32s = np.arange(num_slots, dtype=np.int32)[::-1].copy()
        self._clear_cell_lists()

    def _clear_cell_lists(self) -> None:
        self.cells: CellList = np.empty(0, np.int32)  # the lists of all items, in any order and with gaps
        # for each part, the largest length of any item since the table was last empty or reset
        self.longest: Lengths = ()
        self._used = 0  # high-water mark of `cells`
        self._free = defaultdict[int, list[int]](list)  # allocation size → starts of the gaps of this size
        # int32[slots, parts]; lengths of each item, once they differ; until then, `longest` holds for all
        self._lengths_by_slot: Int32Matrix | None = None

    def insert(self, cells: CellList, lengths: Lengths, priority: float) -> int:
        """Store an item in a free slot and return the slot."""
        slot = int(self.free_slots[self.num_slots - self.size - 1])
        self.keys[slot] = ~self.keys[slot]
        self.restore(slot, cells, lengths, priority, 0)
        return slot

    def restore(
        self, slot: int, cells: CellList, lengths: Lengths, priority: float, times_sampled: int
    ) -> None:
        """Store an item in a slot whose key is already set."""
        if lengths != self.longest or self._lengths_by_slot is not None:
            self._record_lengths(slot, lengths)
        self.size += 1
        self.priorities[slot] = priority
        self.times_sampled[slot] = times_sampled
        count = len(cells)
        space = allocation_size(count)
        if gaps := self._free[space]:
            start = gaps.pop()
        else:
            start = self._used
            self._used += space
            if self._used > len(self.cells):
                enlarged = np.empty(max(self._used, 2 * len(self.cells)), np.int32)
                enlarged[:start] = self.cells[:start]
                self.cells = enlarged
        self.cells[start : start + count] = cells
        self.starts[slot] = start

    def _record_lengths(self, slot: int, lengths: Lengths) -> None:
        """Record the lengths of an item that differ from those of the other items."""
        if not self.size:
            self._clear_cell_lists()
            self.longest = lengths
            return
        if self._lengths_by_slot is None:
            self._lengths_by_slot = np.tile(np.array(self.longest, np.int32), (self.num_slots, 1))
        self._lengths_by_slot[slot] = lengths
        self.longest = tuple(map(max, self.longest, lengths))

    def delete(self, slot: int) -> None:
        """Delete an item; its slot and its space in `cells` can be reused."""
        self._free[allocation_size(self._count_of(slot))].append(int(self.starts[slot]))
        self.free_slots[self.num_slots - self.size] = slot
        self.keys[slot] = ~(self.keys[slot] + self.num_slots)
        self.size -= 1

    def clear(self) -> None:
        """Delete all items; their keys are not reused."""
        used = self.used_slots()
        self.keys[used] = ~(self.keys[used] + self.num_slots)
        self.free_slots[self.num_slots - self.size :] = used[::-1]
        self.size = 0
        self._clear_cell_lists()

    def cells_of(self, slot: int) -> CellList:
        """Return the cells of an item as a view, int32[cells]."""
        start = self.starts[slot]
        return self.cells[start : start + self._count_of(slot)]

    def _count_of(self, slot: int) -> int:
        return sum(self.longest) if self._lengths_by_slot is None else int(self._lengths_by_slot[slot].sum())

    def lengths(self, slots: Integers) -> tuple[Lengths, Integers | None]:
        """Return the largest length of each part in the given items, and the lengths of every item.

        The latter are int64[parts, items], or None if all are equal.
        """
        if self._lengths_by_slot is None:
            return self.longest, None
        lengths_by_item = np.ascontiguousarray(self._lengths_by_slot[slots].T, np.int64)
        max_lengths = tuple(lengths_by_item.max(axis=1).tolist())
        return max_lengths, None if (lengths_by_item == lengths_by_item[:, :1]).all() else lengths_by_item

    def all_cells(self) -> tuple[Integers, CellList]:
        """Return the lengths, int64[items, parts], and the concatenated cells of all items in slot order."""
        slots = self.used_slots()
        lengths_by_item = (
            np.tile(self.longest, (len(slots), 1))
            if self._lengths_by_slot is None
            else self._lengths_by_slot[slots]
        )
        counts = lengths_by_item.sum(axis=1, dtype=np.int64)
        offsets = np.cumsum(counts) - counts
        indices: Integers = np.arange(int(counts.sum()))
        indices += np.repeat(self.starts[slots] - offsets, counts)
        return lengths_by_item.astype(np.int64), self.cells[indices]

    def used_slots(self) -> Integers:
        """Return the slots that hold an item, in ascending order."""
        return np.flatnonzero(self.keys >= 0)

    def find(self, keys: Integers) -> tuple[Integers, Flags]:
        """Return the slots of keys, int64[n], and whether each key is still valid, bool[n]."""
        slots = keys % self.num_slots
        return slots, (self.keys[slots] == keys) & (keys >= 0)


@lru_cache(1024)
def allocation_size(count: int) -> int:
    """Return the space to allocate for a list of `count` cells.

    It exceeds `count` by at most a quarter, so that lists of similar lengths can reuse the same gap.
    """
    unit = 1 << max(0, count.bit_length() - 3)
    return -(-count // unit) * unit
