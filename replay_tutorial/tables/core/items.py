"""Items: lists of cells, each under a key that is never used again.

    slot       0   1   2   3         4 slots: key = lap · 4 + slot
    keys       8   1  -7   3         slot 0 holds its third item; slot 2 is empty, its next key is ~(-7) = 6
    starts     6   0   3   9         where in `cells` the item's list begins

Because a slot's next item has another key, a stale key is detected by comparing. A list names every cell,
part after part, and is never kept as "the first cell and how many": steps that are not neighbours would come
back wrong.

Left out: what an item is for (`table_state`), and who counts its cells (`cells`).
"""

from collections import defaultdict
from functools import lru_cache

import numpy as np

from replay_tutorial.buffers.jit import Flags, Floats, Integers
from replay_tutorial.tables.core.cells import CellList
from replay_tutorial.tables.core.selectors import Slots

Lengths = tuple[int, ...]  # of each part of a trajectory the number of its cells


class Items:
    """The items of one table, by slot.

    Attributes:
        num_slots: Number of slots.
        size: How many of them hold an item.
        keys: int64[num_slots]; the key of the item there, or ~(the next key) < 0.
        priorities: float64[num_slots].
        times_sampled: int32[slots].
        starts: int64[num_slots]; where the item's list begins in `cells`.
        free_slots: int32[num_slots]; a stack. The first num_slots - size count.
        cells: int32[n]; the lists of all items, in any order, with gaps.
        longest: Of each part the most cells that an item has had since the table was empty or reset.
    """

    def __init__(self, num_slots: int) -> None:
        """Begin with none."""
        self.num_slots = num_slots
        self.size = 0
        self.keys: Integers = ~np.arange(num_slots)
        self.priorities: Floats = np.zeros(num_slots)
        self.times_sampled: Slots = np.zeros(num_slots, np.int32)
        self.starts: Integers = np.zeros(num_slots, np.int64)
        self.free_slots: Slots = np.arange(num_slots, dtype=np.int32)[::-1].copy()
        self._forget_lists()

    def _forget_lists(self) -> None:
        self.cells: CellList = np.empty(0, np.int32)
        self.longest: Lengths = ()
        self._used = 0  # cells of `cells` that have ever been part of a list, the first ones
        self._free = defaultdict[int, list[int]](list)  # gaps: of each room the starts
        self._lengths: Lengths = ()  # of all items, if they are alike
        self._count = 0  # their sum
        self._each: Slots | None = None  # int32[num_slots, parts]: of each item, if they are not

    def insert(self, cells: CellList, lengths: Lengths, priority: float) -> int:
        """Put an item into a free slot, and return the slot."""
        slot = int(self.free_slots[self.num_slots - self.size - 1])
        self.keys[slot] = ~self.keys[slot]
        self.put_back(slot, cells, lengths, priority, 0)
        return slot

    def put_back(
        self, slot: int, cells: CellList, lengths: Lengths, priority: float, times_sampled: int
    ) -> None:
        """Put an item into a slot whose key is set, as `insert` did once."""
        if lengths != self._lengths or self._each is not None:
            self._note_lengths(slot, lengths)
        self.size += 1
        self.priorities[slot] = priority
        self.times_sampled[slot] = times_sampled
        count = len(cells)
        room = room_for(count)
        if gaps := self._free[room]:
            start = gaps.pop()
        else:
            start = self._used
            self._used += room
            if self._used > len(self.cells):
                longer = np.empty(max(self._used, 2 * len(self.cells)), np.int32)
                longer[:start] = self.cells[:start]
                self.cells = longer
        self.cells[start : start + count] = cells
        self.starts[slot] = start

    def _note_lengths(self, slot: int, lengths: Lengths) -> None:
        """Hold an item's lengths, when not all items have had the same."""
        if not self.size:
            self._forget_lists()
            self._lengths, self._count, self.longest = lengths, sum(lengths), lengths
            return
        if self._each is None:
            self._each = np.tile(np.array(self._lengths, np.int32), (self.num_slots, 1))
        self._each[slot] = lengths
        self.longest = tuple(map(max, self.longest, lengths))

    def delete(self, slot: int) -> None:
        """Take an item out."""
        self._free[room_for(self._count_of(slot))].append(int(self.starts[slot]))
        self.free_slots[self.num_slots - self.size] = slot
        self.keys[slot] = ~(self.keys[slot] + self.num_slots)
        self.size -= 1

    def clear(self) -> None:
        """Take all items out; their keys are not used again."""
        used = self.used_slots()
        self.keys[used] = ~(self.keys[used] + self.num_slots)
        self.free_slots[self.num_slots - self.size :] = used[::-1]
        self.size = 0
        self._forget_lists()

    def lengths_of(self, slot: int) -> Lengths:
        """Return of each part of an item's trajectory the number of its cells."""
        return self._lengths if self._each is None else tuple(self._each[slot].tolist())

    def cells_of(self, slot: int) -> CellList:
        """Return the list of an item: a view, int32[cells]."""
        start = self.starts[slot]
        return self.cells[start : start + self._count_of(slot)]

    def _count_of(self, slot: int) -> int:
        return self._count if self._each is None else int(self._each[slot].sum())

    def lengths(self, slots: Integers) -> tuple[Lengths, Integers | None]:
        """Return of each part the most cells that one of these items has; and if they are not alike, of each
        part the cells of every item: int64[parts, items].
        """
        if self._each is None:
            return self._lengths, None
        each = np.ascontiguousarray(self._each[slots].T, np.int64)
        most = tuple(each.max(axis=1).tolist())
        return most, None if (each == each[:, :1]).all() else each

    def lists(self) -> tuple[Integers, CellList]:
        """Return the lengths, int64[items, parts], and the joined lists of all items, by slot."""
        slots = self.used_slots()
        each = np.tile(self._lengths, (len(slots), 1)) if self._each is None else self._each[slots]
        counts = each.sum(axis=1, dtype=np.int64)
        begins = np.cumsum(counts) - counts
        places: Integers = np.arange(int(counts.sum()))
        places += np.repeat(self.starts[slots] - begins, counts)
        return each.astype(np.int64), self.cells[places]

    def used_slots(self) -> Integers:
        """List the slots that hold an item, ascending."""
        return np.flatnonzero(self.keys >= 0)

    def find(self, keys: Integers) -> tuple[Integers, Flags]:
        """Find the slots of keys, int64[n]; and which of these items are still there, bool[n]."""
        slots = keys % self.num_slots
        return slots, (self.keys[slots] == keys) & (keys >= 0)


@lru_cache(1024)
def room_for(count: int) -> int:
    """Return how much room a list of so many cells gets: at most a quarter more than it needs, so that a gap
    can be used again by a list that is not quite as long.
    """
    unit = 1 << max(0, count.bit_length() - 3)
    return -(-count // unit) * unit
