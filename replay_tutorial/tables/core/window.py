"""A writer's window: the cells of the steps that the writer may still name.

    obs   {4: 60, 5: 34, 6: 16, 7: 62}      of each column the cell of each step that was sent
    act   {4: 61, 5: 35, 6: 17}             step 7 is still open

The window names its cells as an item does, so they stay until the writer lets go of their step. It also knows
the writer's last message, how far that has come, and what was answered.

Left out: waiting. A message that waits is carried out item by item (`server`).
"""

from collections.abc import Sequence
from operator import getitem
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.interrupts import Undisturbed
from replay_tutorial.tables.core.cells import CellList, CellMatrix, Cells
from replay_tutorial.tables.core.items import Lengths
from replay_tutorial.tables.core.message import Layout, Steps

Values = tuple[int, int, npt.NDArray[Any]]  # of a run: the column's number, the first step, the values
NewItem = tuple[str, CellList, Lengths, float | None]  # table, cells, lengths, priority
NO_CELLS = np.zeros(0, np.int32)


class Window:
    """What one writer has sent and may still name.

    Attributes:
        next_sequence: The number of the writer's next message.
        items: Of the last message the items.
        keys: Of those that are in, which are the first ones, the keys.
    """

    def __init__(self, cells: Cells) -> None:
        """Begin with no step."""
        self.next_sequence = 0
        self.items: list[NewItem] = []
        self.keys: list[int] = []
        self._cells = cells
        self._first = 0  # steps before this one are forgotten
        self._cell_of: list[dict[int, int]] = [{} for _ in cells.fields]  # by step
        self._new_cells = NO_CELLS  # what `store` has taken for the message to come

    def store(self, runs: Sequence[Values]) -> None:
        """Store values in free cells; `take_back` undoes it, until `begin` is called.

        Raises:
            CapacityError: If there are too few.
            ValueError: If a value is there already, or forgotten.
        """
        self.take_back()
        wanted: list[int] = []
        for column, _, values in runs:
            wanted += [~column] * len(values)
        self._new_cells = np.array(wanted, np.int32)
        self._cells.take(self._new_cells)
        cells: list[int] = self._new_cells.tolist()
        columns, begin = len(self._cell_of), 0
        for column, first_step, values in runs:
            end, cell_of = begin + len(values), self._cell_of[column]
            steps = range(first_step, first_step + len(values))
            if first_step < self._first or not cell_of.keys().isdisjoint(steps):
                raise ValueError(
                    f"Of {self._cells.fields[column].name!r} the steps {first_step} to {steps[-1]} were "
                    f"sent; one of them is there already, or comes before {self._first}, the first that is "
                    "kept. Send each value once."
                )
            if len(values) == 1:  # an index costs a quarter of an array of one
                cell_of[first_step] = cells[begin]
                self._cells.values[column][cells[begin] // columns] = values[0]
            else:
                cell_of.update(zip(steps, cells[begin:end], strict=True))
                self._cells.values[column][self._new_cells[begin:end] // columns] = values
            begin = end

    def take_back(self) -> None:
        """Undo `store`, however far it came. If Ctrl-C comes before this begins, the next `store` does it."""
        if not len(self._new_cells):
            return
        with Undisturbed():
            new = self._new_cells[self._new_cells >= 0]
            known = set(new.tolist())
            for cell_of in self._cell_of:
                for step in [step for step, cell in cell_of.items() if cell in known]:
                    del cell_of[step]
            self._cells.release(new)
            self._new_cells = NO_CELLS

    def begin(self, items: list[NewItem]) -> None:
        """Go on to the next message, which has these items."""
        # nothing is called between these lines, so that no Ctrl-C can come between them
        self._new_cells = NO_CELLS
        self.items, self.keys = items, []
        self.next_sequence += 1

    def look_up(self, layout: Layout, steps: Steps) -> CellMatrix:
        """Find the cells of steps: int64[items, cells] → int32[items, cells].

        Raises:
            ValueError: If one of them is not there.
        """
        numbers = self._cells.numbers
        of_place = [self._cell_of[numbers[part.column]] for part in layout for _ in range(part.length)]
        named: list[list[int]] = steps.tolist()
        try:
            rows = [list(map(getitem, of_place, row)) for row in named]
        except KeyError as error:
            raise ValueError(
                f"An item names step {error} in a column of which the server has no value for it: it was not "
                f"sent, or forgotten by keep_from. Steps from {self._first} on are kept."
            ) from None
        return np.array(rows, np.int32)

    def forget(self, keep_from: int) -> None:
        """Let go of the steps before this one."""
        gone: list[int] = []
        steps = range(self._first, keep_from)
        for cell_of in self._cell_of:
            known = steps if len(steps) <= len(cell_of) else [step for step in cell_of if step < keep_from]
            gone += [cell_of.pop(step) for step in known if step in cell_of]
        if gone:
            self._cells.release(np.array(gone, np.int32))
        self._first = max(self._first, keep_from)
