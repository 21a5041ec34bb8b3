"""Items: lists of cells, each under a key that is never used again.

    slot       0   1   2   3         4 slots: key = lap · 4 + slot
    keys       8   1  -7   3         slot 0 holds its third item; slot 2 is empty, its next key is ~(-7) = 6

Because a slot's next item has another key, a key that comes too late is told by comparing. The lists of cells
lie in matrices, one for each layout that an item has.

Left out: what an item is for (`contents`), and who counts its cells (`cells`).
"""

import numpy as np

from replay_tutorial.buffers.jit import Flags, Floats, Integers
from replay_tutorial.tables.core.cells import CellList, CellMatrix
from replay_tutorial.tables.core.selection import Slots
from replay_tutorial.tables.core.trajectories import Lists, Plan


class Matrix:
    """The lists of all items of one layout.

    Attributes:
        rows: int32[rows, cells].
        used: How many rows have ever had an item, the first ones.
        free: Those of them that have none now.
    """

    def __init__(self, width: int) -> None:
        """Begin with no row."""
        self.rows: CellMatrix = np.empty((0, width), np.int32)
        self.used = 0
        self.free: list[int] = []

    def put(self, cells: CellList, most: int) -> int:
        """Write a list into a free row, and return its number; there will never be more than `most`."""
        if self.free:
            row = self.free.pop()
        else:
            row = self.used
            self.used += 1
            if row == len(self.rows):
                longer = np.empty((min(most, max(1, 2 * row)), self.rows.shape[1]), np.int32)
                longer[:row] = self.rows
                self.rows = longer
        self.rows[row] = cells
        return row


class Items:
    """The items of one table, by slot.

    Attributes:
        slots: How many slots there are.
        size: How many of them hold an item.
        keys: int64[slots]; the key of the item there, or ~(the next key) < 0.
        priorities: float64[slots].
        times_sampled: int32[slots].
        rows: int32[slots]; the row of its list in the matrix of its layout.
        free_slots: int32[slots]; a stack. The first slots - size count.
    """

    def __init__(self, slots: int) -> None:
        """Begin with none."""
        self.slots = slots
        self.size = 0
        self.keys: Integers = ~np.arange(slots)
        self.priorities: Floats = np.zeros(slots)
        self.times_sampled: Slots = np.zeros(slots, np.int32)
        self.rows: Slots = np.zeros(slots, np.int32)
        self.free_slots: Slots = np.arange(slots, dtype=np.int32)[::-1].copy()
        self._plans: list[Plan | None] = [None] * slots
        self._matrices: dict[Plan, Matrix] = {}

    def insert(self, plan: Plan, cells: CellList, priority: float) -> int:
        """Put an item into a free slot, and return the slot."""
        slot = int(self.free_slots[self.slots - self.size - 1])
        self.keys[slot] = ~self.keys[slot]
        self.put_back(slot, plan, cells, priority, 0)
        return slot

    def put_back(self, slot: int, plan: Plan, cells: CellList, priority: float, times_sampled: int) -> None:
        """Put an item into a slot whose key is set, as `insert` did once."""
        self.size += 1
        self.priorities[slot] = priority
        self.times_sampled[slot] = times_sampled
        self._plans[slot] = plan
        if plan not in self._matrices:
            self._matrices[plan] = Matrix(len(plan.columns))
        self.rows[slot] = self._matrices[plan].put(cells, self.slots)

    def delete(self, slot: int) -> None:
        """Take an item out."""
        plan = self.plan_of(slot)
        matrix = self._matrices[plan]
        matrix.free.append(int(self.rows[slot]))
        if len(matrix.free) == matrix.used:
            del self._matrices[plan]
        self._plans[slot] = None
        self.free_slots[self.slots - self.size] = slot
        self.keys[slot] = ~(self.keys[slot] + self.slots)
        self.size -= 1

    def clear(self) -> None:
        """Take all items out; their keys are not used again."""
        used = self.used_slots()
        self.keys[used] = ~(self.keys[used] + self.slots)
        self.free_slots[self.slots - self.size :] = used[::-1]
        self.size = 0
        self._plans = [None] * self.slots
        self._matrices = {}

    @property
    def plans(self) -> list[Plan]:
        """How the trajectories are laid out, each way once."""
        return list(self._matrices)

    def longest(self) -> list[tuple[str, int]]:
        """Return of each part the column, and the most values that an item has there."""
        layouts = [plan.layout for plan in self.plans]
        return [(parts[0].column, max(part.length for part in parts)) for parts in zip(*layouts, strict=True)]

    def plan_of(self, slot: int) -> Plan:
        """Return how the trajectory of an item is laid out."""
        plan = self._plans[slot]
        assert plan is not None, "the slot is empty"
        return plan

    def cells_of(self, slot: int) -> CellList:
        """Return the list of an item: a view, int32[cells]."""
        return self._matrices[self.plan_of(slot)].rows[self.rows[slot]]

    def used_slots(self) -> Integers:
        """List the slots that hold an item, ascending."""
        return np.flatnonzero(self.keys >= 0)

    def find(self, keys: Integers) -> tuple[Integers, Flags]:
        """Find the slots of keys, int64[n]; and which of these items are still there, bool[n]."""
        slots = keys % self.slots
        return slots, (self.keys[slots] == keys) & (keys >= 0)

    def lists(self, slots: Integers) -> list[tuple[Integers, Lists]]:
        """Group items by layout: of each group the places in `slots`, int64[n], and where the lists stand."""
        rows = self.rows[slots].astype(np.int64)
        if len(slots) and len(self._matrices) == 1:  # nearly always
            plan, matrix = next(iter(self._matrices.items()))
            return [(np.arange(len(slots)), Lists(plan, matrix.rows, rows))]
        places: dict[Plan, list[int]] = {}
        for place, slot in enumerate(slots.tolist()):
            places.setdefault(self.plan_of(slot), []).append(place)
        return [
            (np.array(of_plan), Lists(plan, self._matrices[plan].rows, rows[of_plan]))
            for plan, of_plan in places.items()
        ]
