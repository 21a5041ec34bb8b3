"""Sessions: the writers of a client in another process, and their messages, each carried out once.

In one process a message that is passed again is the same object, and knows how far it has come. A client that
was interrupted, or whose time was up, can only send an equal one. So messages of a writer are numbered, and
one that comes again stands for the one that came first: what has been done is not done twice.

What comes from another process is checked here; a writer of this process has checked it already.
"""

from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from replay_tutorial.buffers.jit import writable
from replay_tutorial.tables.core.cells import CapacityError, Cells
from replay_tutorial.tables.core.message import ColumnSlice, Layout, Message, NewItems, UnknownWriter
from replay_tutorial.tables.core.writer_state import MAX_STEPS, WriterState
from replay_tutorial.tables.server import Server


class Session:
    """The writers of one client, by their numbers."""

    def __init__(self, server: Server) -> None:
        """Begin with no writer."""
        self._server = server
        self._writers: dict[int, WriterState] = {}
        self._lock = Lock()

    def insert(
        self,
        writer: int,
        sequence: int,
        slices: Sequence[ColumnSlice],
        items: Sequence[NewItems],
        keep_from: int,
        timeout: float | None = None,
        should_cancel: Callable[[], bool] | None = None,
    ) -> list[int]:
        """Carry out a message, as `Server.insert` does, or go on with it.

        Args:
            writer: A number that no other writer of the session has.
            sequence: The message's number, which grows from message to message; 1 begins a writer.
            runs: The message's values.
            items: Its items.
            keep_from: The first step that a later message may name.
            timeout: Seconds to wait at most.
            should_cancel: Asked while it waits whether to give up.

        Returns:
            The keys of all its items.

        Raises:
            UnknownWriter: If it is not the first message of a writer that is not known.
            ValueError: If something in it is wrong, or a later message has come, or the last one is not
                finished.
            Exception: What `Server.insert` raises.
        """
        with self._lock:
            if writer not in self._writers:
                if sequence != 1:
                    raise UnknownWriter(
                        f"Message {sequence} of the writer {writer} came, but no earlier one is known: the "
                        "writer was closed. Begin with a new writer."
                    )
                self._writers[writer] = self._server.open_writer()
            state = self._writers[writer]
        message = Message(slices, items, keep_from, number=sequence)
        return self._server.insert(
            state, message, timeout, check=checked_message, should_cancel=should_cancel
        )

    def close_writer(self, writer: int) -> None:
        """Forget a writer, if it is known."""
        with self._lock:
            known = self._writers.pop(writer, None)
        if known is not None:
            self._server.close_writer(known)

    def close(self) -> None:
        """Forget all writers."""
        for writer in list(self._writers):
            self.close_writer(writer)


def checked_message(message: Message, writer: WriterState, cells: Cells) -> Message:
    """Refuse a message that no writer of this package sends; tables and priorities are checked later.

    Returns:
        The message, or the writer's last one if it comes again; one that was refused has never been.

    Raises:
        CapacityError: If a run has more values than there are cells.
        KeyError: If there is no such column.
        ValueError: If anything else is wrong.
    """
    if (last := writer.message) is not None and message.number == last.number:
        return last
    if message.number < 1 or (last is not None and message.number < last.number):
        raise ValueError(f"Message {message.number} of a writer came after a later one.")
    if last is not None and not last.is_finished:
        raise ValueError(f"Message {last.number} is not in yet. Send that again until it is finished.")
    if not 0 <= message.keep_from <= MAX_STEPS:
        raise ValueError(f"keep_from must be the number of a step, not {message.keep_from}.")
    sent: dict[str, set[int]] = {}
    for column_slice in message.slices:
        check_slice(column_slice, cells)
        steps = range(column_slice.first_step, column_slice.first_step + len(column_slice.values))
        cells_by_step, seen = (
            writer.cells_by_step[cells.numbers[column_slice.column]],
            sent.setdefault(column_slice.column, set()),
        )
        if steps[0] < writer.first_kept_step or not (
            cells_by_step.keys().isdisjoint(steps) and seen.isdisjoint(steps)
        ):
            raise ValueError(
                f"Steps {steps[0]} to {steps[-1]} of {column_slice.column!r} were sent, but one of them is "
                f"already stored or precedes {writer.first_kept_step}, the first kept step."
            )
        seen.update(steps)
    message.items = [checked_items(new, cells) for new in message.items]
    return message


def check_slice(column_slice: ColumnSlice, cells: Cells) -> None:
    """Check values of consecutive steps."""
    name, first_step, values = column_slice
    if name not in cells.numbers:
        raise KeyError(f"There is no column {name!r}; there are {list(cells.numbers)}.")
    field = cells.fields[cells.numbers[name]]
    if values.dtype != field.dtype or values.shape[1:] != field.shape or not values.shape[0]:
        raise ValueError(
            f"The values of {name!r} are {values.dtype} of shape {values.shape}; they must be {field.dtype} "
            f"of shape (steps, {', '.join(map(str, field.shape))}), with at least one step."
        )
    if len(values) > cells.capacity:  # of a column of shape (0,), no byte need come for a value
        raise CapacityError(
            f"{len(values):,} values of the column {name!r} don't fit into {cells.capacity:,} cells, free "
            "or not. Build the server with a higher capacity."
        )
    if not 0 <= first_step <= MAX_STEPS - len(values):
        raise ValueError(f"The first step of {name!r} is {first_step}; steps are counted from 0.")


def checked_items(new: NewItems, cells: Cells) -> NewItems:
    """Return items whose steps are int64[items, cells], as many as the layout names."""
    steps = new.steps
    if steps.dtype.kind not in "iu" or steps.ndim != 2 or not len(steps):
        raise ValueError(
            f"Items name their steps as int64[items, cells], of at least 1 item, not as {steps.dtype} of "
            f"shape {steps.shape}."
        )
    check_layout(new.layout, steps.shape[1], cells)
    return new._replace(steps=writable(np.ascontiguousarray(steps, np.int64)))


def check_layout(layout: Layout, width: int, cells: Cells) -> None:
    """Check the parts of a trajectory of so many cells, before anything of their lengths is made."""
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
