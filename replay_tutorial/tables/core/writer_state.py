"""The server's state of one writer: the cells of the steps that the writer may still reference.

    obs     {4: 60, 5: 34, 6: 16, 7: 62}      step → cell, for each column
    action  {4: 61, 5: 35, 6: 17}             step 7 is still open

The server holds a reference to each of these cells until the writer releases the step. Accepting a message
turns its values into cells and its items into lists of cells; a rejected message changes nothing.

The checks here also protect the memory of the server from messages of other processes.

Left out: waiting (`server`).
"""

from collections import deque
from collections.abc import Sequence
from operator import getitem

import numpy as np

from replay_tutorial.buffers.runtime.jit import Int32Matrix
from replay_tutorial.tables.core.arguments import ByTable, as_priorities
from replay_tutorial.tables.core.cells import CellList, Cells, release_cells
from replay_tutorial.tables.core.message import ColumnSlice, Layout, Message, Steps
from replay_tutorial.tables.core.table import PartTypes, inferred_parts
from replay_tutorial.tables.core.table_state import TableState

MAX_STEPS = 1 << 62  # upper limit of step numbers
CellsByStep = list[dict[int, int]]  # for each column, step → cell


class UnknownWriter(LookupError):
    """The server does not know this writer: it was closed, or the server loaded a file.

    To recover, create a new writer and start a new episode.
    """


class WriterState:
    """The steps that one writer has sent and may still reference."""

    is_open = False

    def __init__(self, cells: Cells, dropped: deque[CellsByStep]) -> None:
        """Start without steps; `dropped` receives its cells if it is garbage-collected while open."""
        self.message: Message | None = None  # the last accepted message
        self.first_kept_step = 0  # the oldest step that has not been released
        self.cells_by_step: CellsByStep = [{} for _ in cells.fields]
        self._cells = cells
        self._dropped = dropped
        self.is_open = True

    def __del__(self) -> None:
        # The garbage collector may call this in any thread, even in one that holds the server's lock. So the
        # cells are only queued here; the next insert releases them.
        if self.is_open:
            self._dropped.append(self.cells_by_step)

    def check_slice(self, column_slice: ColumnSlice) -> None:
        """Raise an error unless a slice from another process holds steps of its column, and fits into it."""
        name, first_step, values = column_slice
        column = self._cells.column_numbers[name]
        field = self._cells.fields[column]
        if values.dtype != field.dtype or values.shape[1:] != field.shape or not len(values):
            raise ValueError(
                f"The values of {name!r} must be {field.dtype}[steps, {', '.join(map(str, field.shape))}] "
                f"with at least one step, not {values.dtype} of shape {values.shape}."
            )
        if not self.first_kept_step <= first_step <= MAX_STEPS - len(values):
            raise ValueError(
                f"Values of {name!r} can't start at step {first_step}; the first kept step is "
                f"{self.first_kept_step}."
            )
        if len(values) > self._cells.capacity:
            self._cells.allocate(np.full(self._cells.capacity + 1, ~column, np.int32))  # raises CapacityError

    def check_open(self) -> None:
        """Raise UnknownWriter if the writer is closed."""
        if not self.is_open:
            raise UnknownWriter(
                "The writer was closed, or the server has loaded a file; waiting items were "
                "discarded. Create a new writer."
            )

    def accept(self, message: Message, tables: ByTable[TableState]) -> None:
        """Store the values of a message and find the cells of its items; see `Server._insert`."""
        if self.message is not None and not self.message.is_finished:
            raise ValueError("The last message of this writer is not finished. Send it again until it is.")
        inferred: dict[str, PartTypes] = {}
        checked: list[tuple[TableState, tuple[int, ...], list[float] | list[None]]] = []
        for name, priorities, layout, steps in message.items:
            table = tables[name]
            table.check_idle()
            if not (parts := table.parts):
                _ = [self._cells.column_numbers[part.column] for part in layout]  # raises KeyError
                parts = inferred.setdefault(name, inferred_parts(layout))
            lengths = table.check_layout(layout, parts)
            if steps.shape != (len(steps), sum(lengths)) or not len(steps):
                raise ValueError(
                    f"The steps of at least one item must be int64[items, {sum(lengths)}], not of the shape "
                    f"{steps.shape}."
                )
            if priorities is None:
                checked.append((table, lengths, [None] * len(steps)))
            else:
                given = as_priorities(priorities, len(steps))
                table.check_priorities(given)
                checked.append((table, lengths, given.tolist()))
        new_cells = self._store(message)
        try:
            message.accepted = [
                (table, cells, lengths, priority)
                for new, (table, lengths, priorities) in zip(message.items, checked, strict=True)
                for cells, priority in zip(self._find_cells(new.layout, new.steps), priorities, strict=True)
            ]
        except LookupError as error:
            self._remove(message.slices, new_cells)
            raise ValueError(
                f"An item references step {error} of a column, but the server has no value for it: the value "
                f"was not sent, or keep_from released it. Steps from {self.first_kept_step} on are kept."
            ) from None
        for name, parts in inferred.items():
            tables[name].set_parts(parts)
        message.keys, message.slices, message.items = [], (), ()
        self.message = message

    def _store(self, message: Message) -> CellList:
        """Store the values of a message and return their cells."""
        cells, columns = self._cells, len(self.cells_by_step)
        requests: list[int] = []
        for name, _, values in message.slices:
            requests += [~cells.column_numbers[name]] * len(values)
        allocated = np.array(requests, np.int32)
        cells.allocate(allocated)
        numbers: list[int] = allocated.tolist()
        begin = 0
        for i, (name, first_step, values) in enumerate(message.slices):
            column, count = cells.column_numbers[name], len(values)
            end, cells_by_step = begin + count, self.cells_by_step[column]
            if first_step in cells_by_step or not (
                count == 1 or cells_by_step.keys().isdisjoint(range(first_step, first_step + count))
            ):
                self._remove(message.slices[:i], allocated)
                raise ValueError(
                    f"A value of {name!r} in {count} steps from {first_step} on was sent before."
                )
            if count == 1:  # four times faster than an index array of one element
                cells_by_step[first_step] = numbers[begin]
                cells.values[column][numbers[begin] // columns] = values[0]
            else:
                cells_by_step.update(enumerate(numbers[begin:end], first_step))
                cells.values[column][allocated[begin:end] // columns] = values
            begin = end
        return allocated

    def _remove(self, slices: Sequence[ColumnSlice], cells: CellList) -> None:
        """Undo `_store`, which has recorded the steps of these slices."""
        for name, first_step, values in slices:
            for step in range(first_step, first_step + len(values)):
                del self.cells_by_step[self._cells.column_numbers[name]][step]
        release_cells(cells, self._cells.allocator_tuple)

    def _find_cells(self, layout: Layout, steps: Steps) -> Int32Matrix:
        """Return the cells of steps: int64[items, cells] → int32[items, cells]."""
        numbers = self._cells.column_numbers
        cells_by_step = [
            self.cells_by_step[numbers[part.column]] for part in layout for _ in range(part.length)
        ]
        named: list[list[int]] = steps.tolist()
        return np.array([list(map(getitem, cells_by_step, row)) for row in named], np.int32)

    def release_before(self, keep_from: int) -> None:
        """Release all steps before `keep_from`."""
        released: list[int] = []
        steps = range(self.first_kept_step, keep_from)
        for cells_by_step in self.cells_by_step:
            known = (
                steps
                if len(steps) <= len(cells_by_step)
                else [step for step in cells_by_step if step < keep_from]
            )
            released += [cells_by_step.pop(step) for step in known if step in cells_by_step]
        if released:
            release_cells(np.array(released, np.int32), self._cells.allocator_tuple)
        self.first_kept_step = max(self.first_kept_step, keep_from)

    def close(self) -> None:
        """Close the writer and release all steps; waiting items are not inserted."""
        if self.is_open:
            self.release_before(MAX_STEPS)
            self.is_open = False

    def discard(self) -> None:
        """Close the writer and forget its cells without releasing them, because the server replaces them."""
        self.is_open, self.message = False, None
        del self.cells_by_step, self._cells

    def has_items_for(self, table: TableState) -> bool:
        """Return whether items of the last message are waiting for this table."""
        if self.message is None or not self.is_open:
            return False
        waiting = self.message.accepted[len(self.message.keys or ()) :]
        return any(target is table for target, *_ in waiting)
