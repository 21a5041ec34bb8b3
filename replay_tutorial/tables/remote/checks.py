"""Messages from other processes and their checks; a writer in this process has checked its own messages.

In one process, a message that is passed again is the same object and records its own progress. A remote
client can only send an equal message again, for example after a timeout. So the messages of a writer are
numbered, and a repeated number refers to the original message.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Any

import numpy as np

from replay_tutorial.buffers.runtime.jit import writable
from replay_tutorial.tables.core.cells import CapacityError, Cells
from replay_tutorial.tables.core.message import ColumnSlice, Layout, Message, NewItems
from replay_tutorial.tables.core.writer_state import MAX_STEPS, UnknownWriter, WriterState
from replay_tutorial.tables.server import Server


def pack_message(
    writer: int, sequence: int, message: Message, timeout: float | None
) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the arguments and the arrays of a call that inserts a message."""
    slices = [(part.column, part.first_step) for part in message.slices]
    items = [(new.table, new.priorities is not None, new.layout) for new in message.items]
    arrays = [part.values for part in message.slices]
    for new in message.items:
        arrays += [new.steps] if new.priorities is None else [new.priorities, new.steps]
    return (writer, sequence, slices, items, message.keep_from, timeout), arrays


def read_message(
    server: Server, writers: dict[int, WriterState], arguments: Sequence[Any], arrays: Sequence[Any]
) -> tuple[WriterState, Message]:
    """Return the writer and the message of a call.

    The sequence numbers of a writer's messages increase from 1, and 1 starts a new writer; any other message
    of an unknown writer raises UnknownWriter.
    """
    number, sequence, slices, items, keep_from, _ = arguments
    if number not in writers:
        if sequence != 1:
            raise UnknownWriter(
                f"The writer {number} of message {sequence} is unknown, because it was closed. Create a new "
                "writer."
            )
        writers[number] = server._open_writer()
    left = iter(arrays)
    values = [ColumnSlice(column, step, next(left)) for column, step in slices]
    new = [NewItems(table, next(left) if given else None, parts, next(left)) for table, given, parts in items]
    return writers[number], Message(values, new, keep_from, sequence=sequence)


def checked_message(message: Message, writer: WriterState, cells: Cells) -> Message:
    """Validate a message from another process; tables and priorities are checked later.

    Returns the message, or the writer's last accepted message if this one repeats it.
    """
    if (last := writer.message) is not None and message.sequence == last.sequence:
        return last
    if message.sequence < 1 or (last is not None and message.sequence < last.sequence):
        raise ValueError(f"Message {message.sequence} of a writer arrived out of order.")
    if last is not None and not last.is_finished:
        raise ValueError(f"Message {last.sequence} is not finished. Send it again until it is.")
    if not 0 <= message.keep_from <= MAX_STEPS:
        raise ValueError(f"keep_from must be a step number, not {message.keep_from}.")
    sent: dict[str, set[int]] = {}
    for column_slice in message.slices:
        check_slice(column_slice, cells)
        steps = range(column_slice.first_step, column_slice.first_step + len(column_slice.values))
        stored = writer.cells_by_step[cells.column_numbers[column_slice.column]]
        seen = sent.setdefault(column_slice.column, set())
        is_new = stored.keys().isdisjoint(steps) and seen.isdisjoint(steps)
        if steps[0] < writer.first_kept_step or not is_new:
            raise ValueError(
                f"Steps {steps[0]} to {steps[-1]} of {column_slice.column!r} were sent, but one of them is "
                f"already stored or precedes {writer.first_kept_step}, the first kept step."
            )
        seen.update(steps)
    message.items = [checked_items(new, cells) for new in message.items]
    return message


def check_slice(column_slice: ColumnSlice, cells: Cells) -> None:
    """Validate a slice of a column."""
    name, first_step, values = column_slice
    field = cells.fields[cells.column_numbers[name]]
    if values.dtype != field.dtype or values.shape[1:] != field.shape or not values.shape[0]:
        raise ValueError(
            f"The values of {name!r} must be {field.dtype} of shape (steps, "
            f"{', '.join(map(str, field.shape))}) with at least one step, not {values.dtype} of shape "
            f"{values.shape}."
        )
    if len(values) > cells.capacity:  # before the server builds sets and lists of up to 2 ** 28 steps
        raise CapacityError(
            f"{len(values):,} values of the column {name!r} exceed its {cells.capacity:,} cells. Create the "
            "server with a higher capacity."
        )
    if not 0 <= first_step <= MAX_STEPS - len(values):
        raise ValueError(f"The first step of {name!r} must be a step number, not {first_step}.")


def checked_items(new: NewItems, cells: Cells) -> NewItems:
    """Validate items, and return them with their steps as int64[items, cells]."""
    steps = new.steps
    if steps.dtype.kind not in "iu" or steps.ndim != 2 or not len(steps):
        raise ValueError(
            f"Steps must be int64[items, cells] with at least 1 item, not {steps.dtype} of shape "
            f"{steps.shape}."
        )
    check_layout(new.layout, steps.shape[1], cells)
    return new._replace(steps=writable(np.ascontiguousarray(steps, np.int64)))


def check_layout(layout: Layout, width: int, cells: Cells) -> None:
    """Validate the parts of a trajectory of `width` cells before memory of this size is allocated."""
    if sum(part.length for part in layout) != width:
        raise ValueError(f"The parts {layout!r:.200} do not add up to {width:,} cells.")
    for part in layout:
        _ = cells.column_numbers[part.column]  # raises KeyError if there is no such column
        if not 1 <= part.length <= (1 if part.squeezed else cells.capacity):
            most = "1, because it is squeezed" if part.squeezed else f"{cells.capacity:,}"
            raise ValueError(f"The part {part.name!r} has {part.length} values; it must have 1 to {most}.")
    names = [part.name for part in layout]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"A trajectory must have at least one part, and their names must be unique, not {names}."
        )
