"""Intake: where what comes from outside is checked, and a message becomes cells and items.

All that can be wrong is found before anything changes. The last thing to be looked at, whether the steps that
items name are there, can only be known when the message's own values have been given cells; if it fails, they
are taken back.

Left out: waiting (`server`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats, Integers, writable
from replay_tutorial.tables.core.cells import CapacityError, Cells
from replay_tutorial.tables.core.items import Lengths
from replay_tutorial.tables.core.message import Layout, Message, NewItems, Run, Steps, UnknownWriter
from replay_tutorial.tables.core.table import Parts, inferred_parts
from replay_tutorial.tables.core.table_state import TableState
from replay_tutorial.tables.core.window import Values, Window

MOST_STEPS = 1 << 62  # a step's number is below it


class Intake:
    """What all writers have sent, and how far their last messages have come."""

    def __init__(self, cells: Cells, tables: Mapping[str, TableState], gone: Iterable[int] = ()) -> None:
        """Begin with no writer; those that are gone were known to a server that has been loaded since."""
        self._cells = cells
        self._tables = tables
        self._windows: dict[int, Window] = {}
        self._gone = set(gone)

    @property
    def writers(self) -> set[int]:
        """The writers that are known, or were."""
        return self._gone | self._windows.keys()

    def accept(self, message: Message) -> Window:
        """Take a message in, unless it is the writer's last one again; return the writer's window.

        Raises:
            As `Server.insert` does. Nothing has changed then.
        """
        writer, sequence = message.writer, message.sequence
        window = self._windows.get(writer)
        if window is None:
            if sequence or writer in self._gone:  # of a first message items may be in the file
                raise UnknownWriter(
                    f"Message {sequence} of the writer {writer} came, but no earlier one is known: the "
                    "server was loaded, or the writer closed. Begin with a new writer."
                )
            window = self._windows[writer] = Window(self._cells)
        elif sequence == window.next_sequence - 1:
            return window
        elif sequence != window.next_sequence or len(window.keys) < len(window.items):
            raise ValueError(
                f"Message {sequence} of the writer {writer} came after message {window.next_sequence - 1}, "
                f"of which {len(window.items) - len(window.keys)} items are not in yet. Send that again "
                "until it is finished, then the next one."
            )
        try:
            self._take_in(message, window)
        except BaseException:  # also Ctrl-C: nothing has changed, or the whole message is in
            if window.next_sequence == sequence:
                window.take_back()
                if not sequence:
                    del self._windows[writer]
            raise
        return window

    def check_known(self, writer: int, window: Window) -> None:
        """Refuse to go on with a window that has been closed.

        Raises:
            UnknownWriter: If it is so.
        """
        if self._windows.get(writer) is not window:
            raise UnknownWriter(
                f"The writer {writer} was closed, or the server loaded, while its items waited; those are "
                "not inserted. Begin with a new writer."
            )

    def has_items_for(self, table: str) -> bool:
        """Return whether items wait for a table."""
        windows = self._windows.values()
        return any(item[0] == table for window in windows for item in window.items[len(window.keys) :])

    def close(self, writer: int) -> None:
        """Forget a writer, if it is known."""
        self._gone.discard(writer)
        window = self._windows.pop(writer, None)
        if window is not None:
            window.take_back()
            window.forget(MOST_STEPS)

    def _take_in(self, message: Message, window: Window) -> None:
        """Store a message's values, and let the window hold its items."""
        runs = [checked_run(run, self._cells) for run in message.runs]
        if not 0 <= message.keep_from <= MOST_STEPS:
            raise ValueError(f"keep_from must be the number of a step, not {message.keep_from}.")
        settled: dict[str, Parts] = {}
        groups = [checked_items(new, self._cells, self._tables, settled) for new in message.items]
        window.store(runs)
        items = [
            (table, cells, lengths, priority)
            for table, layout, lengths, steps, priorities in groups
            for cells, priority in zip(window.look_up(layout, steps), priorities, strict=True)
        ]
        for name, parts in settled.items():
            self._tables[name].settle(parts)
        window.begin(items)


def checked_run(run: Run, cells: Cells) -> Values:
    """Check a run of values, and find the number of its column."""
    name, first_step, values = run
    number = cells.numbers.get(name)
    if number is None:
        raise KeyError(f"There is no column {name!r}; there are {list(cells.numbers)}.")
    field = cells.fields[number]
    if len(values) > cells.capacity:  # of a column of shape (0,), no byte need come for a value
        raise CapacityError(
            f"{len(values):,} values of the column {name!r} don't fit into {cells.capacity:,} cells, free "
            "or not. Build the server with a higher capacity."
        )
    fits = values.dtype is field.dtype or values.dtype == field.dtype  # `is` costs a third
    if not fits or values.shape[1:] != field.shape or not values.shape[0]:
        raise ValueError(
            f"The values of {name!r} are {values.dtype} of shape {values.shape}; they must be {field.dtype} "
            f"of shape (steps, {', '.join(map(str, field.shape))}), with at least one step."
        )
    if not 0 <= first_step <= MOST_STEPS - len(values):
        raise ValueError(f"The first step of {name!r} is {first_step}; steps are counted from 0.")
    return number, first_step, values


def checked_items(
    new: NewItems, cells: Cells, tables: Mapping[str, TableState], settled: dict[str, Parts]
) -> tuple[str, Layout, Lengths, Steps, Sequence[float | None]]:
    """Check items, but for whether their steps are there.

    Args:
        new: The items.
        cells: The store.
        tables: The tables.
        settled: The parts that tables without items will have; this call adds those of the items' table.

    Returns:
        The table, the layout and its lengths, the steps, int64[items, cells], and the priorities.
    """
    contents, steps = table_of(tables, new.table), new.steps
    if steps.dtype.kind not in "iu" or steps.ndim != 2 or not len(steps):
        raise ValueError(
            f"Items name their steps as int64[items, cells], of at least 1 item, not as {steps.dtype} of "
            f"shape {steps.shape}."
        )
    check_layout(new.layout, steps.shape[1], cells)
    parts = contents.parts or settled.setdefault(new.table, inferred_parts(new.layout))
    lengths = contents.check_layout(new.layout, parts)
    if not (steps.flags.carray and steps.dtype == np.int64):
        steps = writable(np.ascontiguousarray(steps, np.int64))
    priorities: Sequence[float | None] = [None] * len(steps)
    if new.priorities is not None:
        given = as_floats(new.priorities, len(steps))
        contents.check_priorities(given)
        priorities = given.tolist()
    return new.table, new.layout, lengths, steps, priorities


def check_layout(layout: Layout, width: int, cells: Cells) -> None:
    """Check the parts of a trajectory of so many cells.

    Raises:
        KeyError: If there is no such column.
        ValueError: If it has no parts, two of one name, a length that can't be, or another number of cells.
    """
    if sum(part.length for part in layout) != width:
        raise ValueError(f"A trajectory of the parts {layout!r:.200} has not {width:,} cells.")
    for part in layout:
        if part.column not in cells.numbers:
            raise KeyError(f"There is no column {part.column!r}; there are {list(cells.numbers)}.")
        if not 1 <= part.length <= (1 if part.squeezed else cells.capacity):
            most = "1, because it is squeezed" if part.squeezed else f"{cells.capacity:,}"
            raise ValueError(f"{part.name!r} has {part.length} values; it must have 1 to {most}.")
    names = [part.name for part in layout]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"A trajectory has at least one part, and each name once, not {names}.")


def table_of(tables: Mapping[str, TableState], name: str) -> TableState:
    """Find a table.

    Raises:
        KeyError: If there is none of this name.
    """
    if name not in tables:
        raise KeyError(f"There is no table {name!r}; there are {list(tables)}.")
    return tables[name]


def as_floats(priorities: Any, count: int) -> Floats:
    """Convert priorities to float64[count]; whether each is in range is not looked at.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If there are more or fewer.
    """
    array = np.asarray(priorities)
    if array.shape == (count,) and array.dtype == np.float64 and array.flags.carray:
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"Priorities are real numbers, not {array.dtype} ({priorities!r:.60}).")
    if array.shape != (count,):
        raise ValueError(f"There must be one priority for each of {count} items, not {array.shape}.")
    return writable(np.ascontiguousarray(array, np.float64))


def as_updates(updates: Mapping[int, float] | tuple[Any, Any]) -> tuple[Integers, Floats]:
    """Convert priorities by key, or keys and priorities, as `as_keys` and `as_floats` do."""
    pair = (list(updates), list(updates.values())) if isinstance(updates, Mapping) else updates
    keys = as_keys(pair[0])
    return keys, as_floats(pair[1], len(keys))


def as_keys(keys: Any) -> Integers:
    """Convert keys to int64[n].

    Raises:
        TypeError: If they are not integers.
        ValueError: If they are not in one row.
    """
    array: npt.NDArray[Any] = np.asarray(keys if hasattr(keys, "__array__") else list(keys))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"Keys are integers, as `sample` gave them, not {array.dtype}.")
    if array.ndim != 1:
        raise ValueError(f"Keys stand in one row, not in an array of shape {array.shape}.")
    return writable(np.ascontiguousarray(array, np.int64))
