"""Trajectories: which cells make up an item, and how a batch of them is copied out.

An item's cells stand in one list, part after part, as its layout says:

    layout     obs: 2 values of the column obs      rew: 1 value of the column rew, squeezed
    cells      30 45 | 17

They are never kept as "the first cell and how many": steps that are not neighbours would come back wrong.
Items of one table have the same parts, but not always the same lengths. In a batch each part is as long as
its longest item; the values behind a shorter one's are 0.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from replay_tutorial.buffers.fields import Batch
from replay_tutorial.buffers.jit import Bytes, Integers, kernel
from replay_tutorial.buffers.rows import copy_row
from replay_tutorial.tables.core.cells import CellList, CellMatrix, Cells
from replay_tutorial.tables.core.message import Layout, Part

Structure = tuple[tuple[str, str, bool], ...]  # of each part its name, column, and whether it is squeezed
KEPT = 16  # plans that no item has


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Plan:
    """A layout that has been checked. There is one of each at a time, so that plans are compared by `is`.

    Attributes:
        layout: The parts.
        structure: What all items of a table have in common.
        columns: int64[cells]; of each cell the column's number.
        squeezed: The names of the parts without an axis of time.
    """

    layout: Layout
    structure: Structure
    columns: Integers
    squeezed: frozenset[str]


class Item(NamedTuple):
    """A trajectory and its priority, in no table yet, or in one.

    Attributes:
        plan: How the trajectory is laid out.
        cells: int32[cells].
        priority: None stands for the highest that the table has seen.
    """

    plan: Plan
    cells: CellList
    priority: float | None


class Plans:
    """The layouts of all items that a server has, and the last others that came, each checked once."""

    def __init__(self, cells: Cells) -> None:
        """Begin with none."""
        self._cells = cells
        self._plans: WeakValueDictionary[Layout, Plan] = WeakValueDictionary()  # as long as an item has one
        self._newest: deque[Plan] = deque(maxlen=KEPT)

    def of(self, layout: Layout, width: int) -> Plan:
        """Return the plan for a layout of so many cells.

        Raises:
            KeyError: If there is no such column.
            ValueError: If it has no parts, two of one name, or a length that can't be; or if its lengths
                don't add up to the number of cells, which nothing is made for until then.
        """
        plan = self._plans.get(layout)
        if plan is None:
            if sum(part[2] for part in layout) != width:
                raise ValueError(f"A trajectory of the parts {layout!r:.200} has not {width:,} cells.")
            layout = tuple(Part(*part) for part in layout)
            plan = self._plans[layout] = self._checked(layout)
            self._newest.append(plan)
        return plan

    def _checked(self, layout: Layout) -> Plan:
        for part in layout:
            if part.column not in self._cells.numbers:
                raise KeyError(f"There is no column {part.column!r}; there are {list(self._cells.numbers)}.")
            if not 1 <= part.length <= (1 if part.squeezed else self._cells.capacity):
                most = "1, because it is squeezed" if part.squeezed else f"{self._cells.capacity:,}"
                raise ValueError(f"{part.name!r} has {part.length} values; it must have 1 to {most}.")
        names = [part.name for part in layout]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"A trajectory has at least one part, and each name once, not {names}.")
        numbers = [self._cells.numbers[part.column] for part in layout]
        columns = np.repeat(np.array(numbers), [part.length for part in layout])
        structure = tuple((part.name, part.column, part.squeezed) for part in layout)
        squeezed = frozenset(part.name for part in layout if part.squeezed)
        return Plan(layout, structure, columns, squeezed)


class Lists(NamedTuple):
    """Where the cells of some items of one layout stand.

    Attributes:
        plan: Their layout.
        matrix: int32[rows, cells].
        rows: int64[items].
    """

    plan: Plan
    matrix: CellMatrix
    rows: Integers


@kernel
def take_cells(
    values: Bytes, matrix: CellMatrix, rows: Integers, start: int, length: int, columns: int, copies: Bytes
) -> None:
    """Copy of each row's list the values of `length` cells, from `start` on."""
    for i in range(len(rows)):
        for j in range(length):
            copy_row(copies, i * length + j, values, matrix[rows[i], start + j] // columns)


def copy_out(cells: Cells, lists: Lists) -> Batch:
    """Copy the trajectories of items of one layout: of each part (items, length, *shape)."""
    batch: Batch = {}
    start, count = 0, len(lists.rows)
    for name, column, length, squeezed in lists.plan.layout:
        number = cells.numbers[column]
        field, values = cells.fields[number], cells.bytes[number]
        copies = np.empty((count * length, values.shape[1]), np.uint8)
        take_cells(values, lists.matrix, lists.rows, start, length, len(cells.fields), copies)
        shape = (count, *field.shape) if squeezed else (count, length, *field.shape)
        batch[name] = copies.view(field.dtype).reshape(shape)
        start += length
    return batch


def copy_out_mixed(
    cells: Cells, groups: list[tuple[Integers, Lists]], count: int
) -> tuple[Batch, dict[str, Integers]]:
    """Copy trajectories of different lengths.

    Args:
        cells: Where the values lie.
        groups: For each layout, the places of its items in the batch, and their lists.
        count: How many items the batch has.

    Returns:
        The batch, filled up with zeros, and of each part the lengths, int64[items].
    """
    batch: Batch = {}
    lengths: dict[str, Integers] = {}
    for places, lists in groups:
        for part, (name, copies) in zip(lists.plan.layout, copy_out(cells, lists).items(), strict=True):
            if name not in batch:
                most = max(other.plan.layout[len(batch)].length for _, other in groups)
                inner = copies.shape[1:] if part.squeezed else (most, *copies.shape[2:])
                batch[name] = np.zeros((count, *inner), copies.dtype)
                lengths[name] = np.zeros(count, np.int64)
            target = batch[name] if part.squeezed else batch[name][:, : part.length]
            target[places] = copies
            lengths[name][places] = part.length
    return batch, lengths
