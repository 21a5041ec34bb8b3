"""A writer's window: the cells of the steps that the writer may still name.

    steps        4   5   6   7          a ring, by step % its length; -1 where no value was sent
    obs          30  17  8   31
    act          30  17  8   -1         step 7 is still open

The window names its cells as an item does, so they stay until the writer lets go of their step. It also knows
the writer's last message, how far that has come, and what was answered.

Left out: waiting. A message that waits is carried out item by item (`server`).
"""

from collections import deque
from typing import Annotated

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Integers, kernel, types
from replay_tutorial.tables.cells import (
    CapacityError,
    CellMatrix,
    Cells,
    Plain,
    Store,
    release_cell,
    take_cell,
)
from replay_tutorial.tables.trajectories import Item

Runs = list[tuple[int, int, int]]
Matrix = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]

ABSENT = -1
FIRST_LENGTH = 8  # of a ring
# What storing may lead to.
STORED, FULL, MISPLACED = 0, 1, 2


@kernel
def store_runs(
    runs: Matrix, count: int, ring: CellMatrix, first: int, plain: Plain
) -> tuple[int, int, Integers]:
    """Take a free cell for each value, and write their numbers into the ring; if one fails, give all back.

    Args:
        runs: int64[n, 3]; the column, first step and length of each.
        count: How many values they have together.
        ring: The window's ring, long enough.
        first: Steps before this one have been forgotten.
        plain: The cells.

    Returns:
        STORED, or what is wrong: FULL or MISPLACED; the last run looked at; the slots taken.
    """
    store, done, status, run = Store(*plain), 0, STORED, 0
    slots = np.empty(count, np.int64)
    cells = np.empty((count, 2), np.int64)  # where in the ring, to find back
    for run in range(len(runs)):
        column, first_step, length = runs[run]
        for step in range(first_step, first_step + length):
            place = step % len(ring)
            if step < first or ring[place, column] != ABSENT:
                status = MISPLACED
                break
            cell = take_cell(column, store)
            if cell < 0:
                status = FULL
                break
            ring[place, column] = cell
            slots[done] = cell // ring.shape[1]
            cells[done] = place, column
            done += 1
        if status != STORED:
            break
    if status != STORED:
        for i in range(done - 1, -1, -1):  # backwards, so that the stacks are as they were
            place, column = cells[i]
            release_cell(ring[place, column], store)
            ring[place, column] = ABSENT
    return status, run, slots


@kernel
def look_up(
    columns: Integers, steps: Matrix, ring: CellMatrix, first: int, end: int, cells: CellMatrix
) -> int:
    """Find the cells of steps; return where the first one that is not there stands, -1 if all are."""
    for i in range(steps.shape[0]):
        for j in range(steps.shape[1]):
            step = steps[i, j]
            cells[i, j] = ring[step % len(ring), columns[j]] if first <= step < end else ABSENT
            if cells[i, j] == ABSENT:
                return i * steps.shape[1] + j
    return -1


@kernel
def release_steps(ring: CellMatrix, first: int, end: int, plain: Plain) -> None:
    """Let go of the steps from `first` to before `end`."""
    store = Store(*plain)
    for step in range(first, end):
        for column in range(ring.shape[1]):
            cell = ring[step % len(ring), column]
            if cell != ABSENT:
                release_cell(cell, store)
                ring[step % len(ring), column] = ABSENT


class Window:
    """What one writer has sent and may still name.

    Attributes:
        next_sequence: The number of the writer's next message.
        pending: Of the last message, the items that are not in yet, each with its table's name.
        keys: Of the last message, the keys of the items that are in.
    """

    def __init__(self, cells: Cells) -> None:
        """Begin with no step."""
        self.next_sequence = 0
        self.pending: deque[tuple[str, Item]] = deque()
        self.keys: list[int] = []
        self._cells = cells
        self._first = self._end = 0  # steps before the first are forgotten, from the end on not sent
        self._before = (0, 0)  # both, before the last `store`
        self._ring: CellMatrix = np.full((FIRST_LENGTH, len(cells.fields)), ABSENT, np.int32)

    def reaches(self, end: int) -> bool:
        """Return whether the window can hold the steps kept, and those before `end`."""
        return self._first == self._end or end - self._first <= self._cells.capacity

    def store(self, runs: Runs, keep_from: int) -> Integers:
        """Take cells for runs of values.

        Args:
            runs: The column, first step and length of each; at least one.
            keep_from: Steps from here on may come in later messages, also those before the first one here.

        Returns:
            The slots, int64[values], run after run.

        Raises:
            CapacityError: If there are too few free cells. Nothing has changed then.
            ValueError: If a value is there already, or forgotten. Nothing has changed then.
        """
        first, end, count = self._first, self._end, 0
        for _, first_step, length in runs:
            end = max(end, first_step + length)
            count += length
        if first == self._end:  # it holds nothing, and may begin anywhere
            first = max(first, min([keep_from, *(first_step for _, first_step, _ in runs)]))
        self._lengthen(first, end)
        status, run, slots = store_runs(np.array(runs), count, self._ring, first, self._cells.plain)
        if status == STORED:
            self._before = self._first, self._end
            self._first, self._end = first, end
            return slots
        column, first_step, length = runs[int(run)]
        name = self._cells.fields[column].name
        if status == MISPLACED:
            raise ValueError(
                f"Of {name!r} the steps {first_step} to {first_step + length - 1} were sent; one of them is "
                f"there already, or comes before {self._first}, the first that is kept. Send each value once."
            )
        raise CapacityError(
            f"The column {name!r} is full: {self._cells.capacity:,} cells, {self._cells.free_count(column)} "
            "of them free. Build the server with a higher capacity, or tables with a lower max_size."
        )

    def take_back(self, runs: Runs) -> None:
        """Undo the last `store`."""
        self._first, self._end = self._before
        for column, first_step, length in reversed(runs):
            places = np.arange(first_step, first_step + length)[::-1] % len(self._ring)
            self._cells.release(self._ring[places, column])
            self._ring[places, column] = ABSENT

    def look_up(self, columns: Integers, steps: Matrix) -> CellMatrix:
        """Find the cells of steps.

        Args:
            columns: int64[cells].
            steps: int64[items, cells].

        Returns:
            int32[items, cells].

        Raises:
            ValueError: If one of them is not there.
        """
        cells = np.empty(steps.shape, np.int32)
        missing = look_up(columns, steps, self._ring, self._first, self._end, cells)
        if missing < 0:
            return cells
        name = self._cells.fields[int(columns[missing % len(columns)])].name
        raise ValueError(
            f"An item names step {steps.flat[missing]} of {name!r}, of which the server has no value: it was "
            f"not sent, or forgotten by keep_from. Steps {self._first} to {self._end - 1} are kept."
        )

    def forget(self, keep_from: int) -> None:
        """Let go of the steps before this one."""
        if keep_from > self._first:
            release_steps(self._ring, self._first, min(keep_from, self._end), self._cells.plain)
            self._first = keep_from
            self._end = max(self._end, keep_from)

    def close(self) -> None:
        """Let go of all steps."""
        self.forget(self._end)

    def _lengthen(self, first: int, end: int) -> None:
        """Make the ring long enough for the steps from `first` to before `end`."""
        if end - first <= len(self._ring):
            return
        if end - first > self._cells.capacity:
            raise ValueError(
                f"A writer may name at most {self._cells.capacity:,} steps, the server's capacity, not "
                f"those from {first} to {end - 1}. Raise keep_from."
            )
        ring = np.full((1 << (end - first - 1).bit_length(), self._ring.shape[1]), ABSENT, np.int32)
        steps: Integers = np.arange(self._first, self._end)
        ring[steps % len(ring)] = self._ring[steps % len(self._ring)]
        self._ring = ring
