"""Items: lists of cells, each under a key that is never used again.

    slot       0   1   2   3         4 slots: key = lap · 4 + slot
    keys       8   1  -7   3         slot 0 holds its third item; slot 2 is empty, its next key is ~(-7) = 6

Because a slot's next item has another key, a key that comes too late is told by comparing. The lists of cells
lie in matrices, one for each length (long ones are rounded up, by an eighth at most).

Left out: what an item is for (`contents`), and who counts its cells (`cells`).
"""

import numpy as np

from replay_tutorial.buffers.jit import Flags, Floats, Integers
from replay_tutorial.tables.cells import CellList, CellMatrix
from replay_tutorial.tables.selection import Slots
from replay_tutorial.tables.trajectories import Lists, Plan, Plans

FIRST_ROWS = 16


class Matrix:
    """Lists of cells of one width.

    Attributes:
        rows: int32[rows, width]. In a free row stands first which row is free after it, -1 after the last.
    """

    def __init__(self, width: int, most: int) -> None:
        """Begin with no row; there will never be more than `most`."""
        self.rows: CellMatrix = np.empty((0, width), np.int32)
        self._most = most
        self._used = 0
        self._first_free = -1

    def put(self, cells: CellList) -> int:
        """Write a list into a free row, and return its number."""
        row = self._first_free
        if row >= 0:
            self._first_free = int(self.rows[row, 0])
        else:
            row = self._used
            self._used += 1
            if row == len(self.rows):
                longer = np.empty((min(self._most, max(FIRST_ROWS, 2 * row)), self.rows.shape[1]), np.int32)
                longer[:row] = self.rows
                self.rows = longer
        self.rows[row, : len(cells)] = cells
        return row

    def free(self, row: int) -> None:
        """Free a row."""
        self.rows[row, 0] = self._first_free
        self._first_free = row


class Items:
    """The items of one table, by slot.

    Attributes:
        slots: How many slots there are.
        size: How many of them hold an item.
        keys: int64[slots]; the key of the item there, or ~(the next key) < 0.
        priorities: float64[slots].
        times_sampled: int32[slots].
        plans: int32[slots]; the number of its layout.
        rows: int32[slots]; the row of its list in the matrix of its width.
        free_slots: int32[slots]; a stack. The first slots - size count.
    """

    def __init__(self, slots: int, plans: Plans) -> None:
        """Begin with none."""
        self.slots = slots
        self.size = 0
        self.keys: Integers = ~np.arange(slots)
        self.priorities: Floats = np.zeros(slots)
        self.times_sampled: Slots = np.zeros(slots, np.int32)
        self.plans: Slots = np.zeros(slots, np.int32)
        self.rows: Slots = np.zeros(slots, np.int32)
        self.free_slots: Slots = np.arange(slots, dtype=np.int32)[::-1].copy()
        self._all_plans = plans.plans
        self._matrices: dict[int, Matrix] = {}
        self._plans_met: set[int] = set()

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
        self.plans[slot] = plan.number
        self._plans_met.add(plan.number)
        self.rows[slot] = self._matrix(plan).put(cells)

    def delete(self, slot: int) -> None:
        """Take an item out."""
        self._matrix(self.plan_of(slot)).free(int(self.rows[slot]))
        self.free_slots[self.slots - self.size] = slot
        self.keys[slot] = ~(self.keys[slot] + self.slots)
        self.size -= 1

    def clear(self) -> None:
        """Take all items out; their keys are not used again."""
        used = self.used_slots()
        self.keys[used] = ~(self.keys[used] + self.slots)
        self.free_slots[self.slots - self.size :] = used[::-1]
        self.size = 0
        self._matrices = {}
        self._plans_met = set()

    def plan_of(self, slot: int) -> Plan:
        """Return how an item's trajectory is laid out."""
        return self._all_plans[int(self.plans[slot])]

    def cells_of(self, slot: int) -> CellList:
        """Return the list of an item: a view, int32[cells]."""
        plan = self.plan_of(slot)
        return self._matrix(plan).rows[self.rows[slot], : len(plan.columns)]

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
        if len(slots) and len(self._plans_met) == 1:  # nearly always
            plan = self._all_plans[min(self._plans_met)]
            return [(np.arange(len(slots)), Lists(plan, self._matrix(plan).rows, rows))]
        numbers = self.plans[slots]
        groups: list[tuple[Integers, Lists]] = []
        for number in np.unique(numbers):
            places, plan = np.flatnonzero(numbers == number), self._all_plans[int(number)]
            groups.append((places, Lists(plan, self._matrix(plan).rows, rows[places])))
        return groups

    def _matrix(self, plan: Plan) -> Matrix:
        matrix = self._matrices.get(plan.width)
        if matrix is None:
            matrix = self._matrices[plan.width] = Matrix(plan.width, self.slots)
        return matrix
