"""The trajectory writer: appends steps one by one and creates items that reference them.

A value is sent only when an item references it, and only once; it remains in the history for
`num_keep_alive_refs` steps. The server keeps it while an item references it or the writer may still do so.
Pending items are collected, with the values that they reference, and sent in one message. A message of twenty
items takes little longer than a message of one.

If a timeout or an interruption leaves a message unfinished, the writer keeps it until `flush` has sent it
again. No item is inserted twice.

Left out: sending in the background while the writer appends further steps.
"""

# pyright: reportPrivateUsage=false

import math
import os
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from replay_tutorial.buffers.rows import checked_at_least
from replay_tutorial.tables.core.arguments import ReverbName, explain_reverb_arguments
from replay_tutorial.tables.core.cells import CapacityError
from replay_tutorial.tables.core.message import Layout, Message, NewItems, Part
from replay_tutorial.tables.core.waiting import deadline_of
from replay_tutorial.tables.core.writer_state import UnknownWriter
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.history import History, TrajectoryColumn

if TYPE_CHECKING:
    from replay_tutorial.tables.remote.handle import RemoteServer

# After these errors, a message is dropped: the server has rejected it and changed nothing. If the error is
# UnknownWriter, items that were already inserted may remain.
REJECTION_ERRORS = (LookupError, TypeError, ValueError, CapacityError)


class PendingItem(NamedTuple):
    """An item that waits to be sent: table, priority, layout, and the step of each referenced cell."""

    table: str
    priority: float | None
    layout: Layout
    steps: list[int]


class TrajectoryWriter:
    """Appends the steps of one environment and creates items that reference them; not thread-safe.

    Example:
        >>> from replay_tutorial.tables import Server, Table
        >>> server = Server([Table.queue("queue", 9)], {"obs": {}}, capacity=9)
        >>> with TrajectoryWriter(server, num_keep_alive_refs=3) as writer:
        ...     for obs in range(3):
        ...         writer.append({"obs": obs})
        ...     key = writer.create_item("queue", 1.0, {"ends": writer.history["obs"][[-3, -1]]})
        >>> server.sample("queue", 1).data["ends"].tolist()
        [[0.0, 2.0]]

    Attributes:
        history: The steps that items can reference, such as `history["obs"][-2:]`.
        episode_steps: Number of complete steps in this episode.
        step_is_open: Whether the next `append` adds columns to the newest step.
    """

    append_sequence = ReverbName("append the steps one by one, or use client.insert_batch.")
    configure = ReverbName("omit it; every column keeps its newest num_keep_alive_refs steps.")

    def __init__(
        self, server: "Server | RemoteServer", num_keep_alive_refs: int, items_per_message: int = 1
    ) -> None:
        """Start an episode.

        Args:
            server: The server that stores the items.
            num_keep_alive_refs: Number of newest steps that items can reference; at least 1.
            items_per_message: Number of items to collect and send in one message. With 1, `create_item`
                sends each item immediately. The server stores all values of a message before it evicts items,
                so it needs enough free cells for a whole message.

        Raises:
            ValueError: If `num_keep_alive_refs` or `items_per_message` is below 1.
        """
        kept = checked_at_least("num_keep_alive_refs", num_keep_alive_refs, 1, math.inf)
        self.history = History(server.fields, kept)
        self._items_per_message = checked_at_least("items_per_message", items_per_message, 1)
        self._server = server
        self._pending: list[PendingItem] = []
        self._unfinished: Message | None = None  # contains everything pending
        self._closed = False
        self._writer: Any = None  # the server's state of this writer, created by the first message
        self._start()

    def _start(self) -> None:
        """Start, or start again, with an empty history and a new writer on the server."""
        if self._writer is not None:
            self._server._close_writer(self._writer)
        self._process, self._writer = os.getpid(), None
        self.history.clear_steps()
        self.episode_steps, self.step_is_open = 0, False

    def append(self, data: Mapping[str, Any], *, partial_step: bool = False) -> None:
        """Append a step, or add columns to an open step.

        Args:
            data: One value per column; values are copied. Names in nested dicts and tuples are joined by "/".
                Columns may be omitted.
            partial_step: Whether the step stays open, so that the next call adds other columns to it. Items
                can reference the values it already has. An empty dict closes an open step.

        Raises:
            KeyError: If a column does not exist.
            TypeError: If a value is not numeric.
            ValueError: If a value has the wrong shape or does not fit its dtype, if the open step already has
                the column, or if the writer is closed. In all cases the history is unchanged.
        """
        self._check_open()
        self.history.append(data, self.step_is_open)
        self.step_is_open = partial_step
        self.episode_steps += not partial_step

    @explain_reverb_arguments(
        num_timesteps="pass a trajectory with that number of steps, such as "
        "{name: writer.history[name][-3:] for name in writer.history}."
    )
    def create_item(
        self,
        table: str,
        priority: float | None,
        trajectory: Mapping[str, TrajectoryColumn],
        timeout: float | None = None,
    ) -> int | None:
        """Create an item. If it completes a message, send it and wait until all its items are inserted.

        If the server rejects one item, it rejects the whole message and its items are dropped. The call that
        sent the message raises the error, and the writer remains usable.

        Args:
            table: Name of the table.
            priority: Priority of the item; None stands for the table's highest priority so far.
            trajectory: The name of each part, and its cells in `history`. Parts may differ in length, and may
                share steps with each other and with other items.
            timeout: Seconds to wait for the whole message. None waits indefinitely, 0 does not wait.

        Returns:
            The item's key; None if the item is pending.

        Raises:
            CapacityError: If there are too few free cells for the values; the message is rejected.
            IndexError: If a part references steps that the history no longer holds.
            KeyError: If the table does not exist; the message is rejected.
            RuntimeError: If an earlier message timed out or was interrupted. Call `flush` first.
            TimeoutError: If some items were not inserted in time. They are kept; call `flush`.
            TypeError: If a part does not consist of cells of a history, a name is not a string, or the
                priority is not a number.
            UnknownWriter: If the server has loaded a file, or a hook has closed the writer. The items of the
                message that were not inserted yet are dropped, and the writer starts a new episode.
            ValueError: If a part belongs to another writer. If the priority is out of range, or the parts do
                not match those of the table, the message is rejected.
        """
        self._check_ready(timeout)
        self._add_item(table, priority, trajectory)
        return self._send(timeout)[-1] if len(self._pending) >= self._items_per_message else None

    @explain_reverb_arguments(
        block_until_num_items="omit it; flush always waits for all items.",
        timeout_ms="use timeout, in seconds.",
    )
    def flush(self, timeout: float | None = None) -> list[int]:
        """Send all pending items, including those of a message that timed out or was interrupted.

        Args:
            timeout: Seconds to wait. None waits indefinitely, 0 does not wait.

        Returns:
            The keys of these items, in order.

        Raises:
            TimeoutError: If some items were not inserted in time; they are kept.
            Exception: The errors that `create_item` raises for a rejected message; its items are dropped.
        """
        deadline_of(timeout)  # check it here: if the server rejected it, the message would be dropped
        if not self._pending:
            return []
        self._check_open()
        return self._send(timeout)

    @explain_reverb_arguments(timeout_ms="use timeout, in seconds.")
    def end_episode(self, clear_buffers: bool = True, timeout: float | None = None) -> None:
        """Send all pending items, close an open step, and start a new episode.

        Args:
            clear_buffers: Whether to clear the history. If False, later items can reference steps of this
                episode, and step numbers continue.
            timeout: Seconds to wait.

        Raises:
            TimeoutError: If some items were not inserted in time; the episode does not end.
            Exception: Other errors of `flush`.
        """
        self._check_open()
        self.flush(timeout)
        self.episode_steps, self.step_is_open = 0, False
        if clear_buffers:
            self._start()

    def close(self) -> None:
        """Close the writer and release its steps on the server; pending items are dropped."""
        if not self._closed:
            self._closed, self._unfinished = True, None
            self._pending.clear()
            if self._writer is not None and os.getpid() == self._process:  # not in a forked child
                self._server._close_writer(self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the writer; call `flush` first unless the block raised an exception."""
        try:
            if kind is None and os.getpid() == self._process:
                self.flush()
        finally:
            self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("This writer is closed. Create a new one.")
        if os.getpid() != self._process:
            raise RuntimeError(
                f"This writer belongs to the parent process {self._process}. Create a writer in each process."
            )

    def _check_ready(self, timeout: float | None) -> None:
        """Raise an error if the writer is closed or holds an unfinished message."""
        self._check_open()
        deadline_of(timeout)
        if self._unfinished is not None:
            raise RuntimeError(
                "Some items of an earlier message have not been inserted. Call flush() until it returns."
            )

    def _add_item(
        self, table: str, priority: float | None, trajectory: Mapping[str, TrajectoryColumn]
    ) -> None:
        """Add an item, and its unsent values, to the next message."""
        layout: list[Part] = []
        steps: list[int] = []
        history = self.history
        if not isinstance(trajectory, Mapping):
            raise TypeError(
                f"A trajectory must be a dict such as {{'obs': writer.history['obs'][-3:]}}, "
                f"not {trajectory!r:.60}."
            )
        for name, cells in trajectory.items():
            if not isinstance(cells, TrajectoryColumn):
                raise TypeError(
                    f"The part {name!r} must consist of cells of the history, such as history['obs'][-2:], "
                    f"not {cells!r:.60}."
                )
            if cells.column.history is not history:
                raise ValueError(f"The part {name!r} references the history of another writer.")
            if min(cells.steps) < history.oldest:  # they existed when they were indexed, but may be gone
                cells.column.check(cells.steps)
            layout.append(Part(name, cells.column.name, len(cells.steps), cells.squeezed))
            steps += cells.steps
        if not steps:
            raise ValueError("A trajectory must have at least one part.")
        if isinstance(priority, str | bytes):  # which `float` would convert
            raise TypeError(f"A priority must be a number, not {priority!r:.60}.")
        item = PendingItem(table, None if priority is None else float(priority), tuple(layout), steps)
        for cells in trajectory.values():
            unsent = cells.column.unsent
            cells.column.staged |= {step: unsent[step] for step in cells.steps if step in unsent}
        self._pending.append(item)

    def _message(self) -> Message:
        """Build a message of all pending items; consecutive items of the same kind form one `NewItems`."""
        new: list[NewItems] = []
        for (table, layout, given), group in groupby(
            self._pending, lambda item: (item.table, item.layout, item.priority is not None)
        ):
            items = list(group)
            priorities = np.array([item.priority for item in items], np.float64) if given else None
            steps = np.array([item.steps for item in items], np.int64)
            new.append(NewItems(table, priorities, layout, steps))
        slices = [piece for column in self.history.values() for piece in column.staged_slices()]
        return Message(slices, new, self.history.oldest)

    def _send(self, timeout: float | None) -> list[int]:
        """Send all pending items; keep the message until it is finished or rejected."""
        self._unfinished = message = self._unfinished or self._message()
        if self._writer is None:
            self._writer = self._server._open_writer()
        try:
            keys = self._server._insert(self._writer, message, timeout)
        except REJECTION_ERRORS as error:
            if len(self._pending) > 1 and not isinstance(error, UnknownWriter):
                error.add_note(f"None of the {len(self._pending)} items of the message was inserted.")
            self._finish(rejected=True)
            if isinstance(error, UnknownWriter):
                self._start()
            raise
        self._finish(rejected=False)
        return keys

    def _finish(self, rejected: bool) -> None:
        """Clear the pending items. Ctrl-C may arrive between any two of these statements."""
        if rejected:  # must come first, otherwise `flush` could send the message, and later its values, again
            self._pending, self._unfinished = [], None
        for column in self.history.values():
            if not rejected:
                for step in column.staged:
                    column.unsent.pop(step, None)
            column.staged.clear()
        self._pending, self._unfinished = [], None
