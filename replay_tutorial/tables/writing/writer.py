"""A writer: steps go in one by one, items name some of them, and both travel to the server as messages.

A step waits in the writer until an item names it: only what is named is sent, and each value once, however
many items name it. The server keeps it as long as an item names it, or the writer still may.

Some items may be in flight: they wait in the writer, with the values that they name, until there are enough
for a message. A message of twenty costs hardly more than that of one.

If the time is up before all items of a message are in, or the call is interrupted, the writer keeps the
message until `flush` has sent it again with success: what has been done is not done twice.

Left out: messages that are on their way while the writer goes on. One writer is for one environment, and for
one thread.
"""

import operator
import os
from collections.abc import Mapping
from itertools import groupby
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from replay_tutorial.tables.core.cells import CapacityError
from replay_tutorial.tables.core.message import Layout, Message, NewItems, Part, UnknownWriter
from replay_tutorial.tables.core.reverb_names import ExplainsNames, check_named, explains
from replay_tutorial.tables.core.waiting import deadline_of
from replay_tutorial.tables.remote.handle import RemoteServer
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.history import History, NamedCells

# What the server refuses a message with, before it has changed anything.
REFUSED = (LookupError, TypeError, ValueError, CapacityError)


class ItemInFlight(NamedTuple):
    """An item that waits for its message: table, priority and layout, and for each cell the step."""

    table: str
    priority: float | None
    layout: Layout
    steps: list[int]


class TrajectoryWriter(ExplainsNames):
    """Writes the steps of one environment, and items that name them.

    Example:
        >>> from replay_tutorial.tables import Server, Table
        >>> server = Server([Table.queue("queue", 9)], {"obs": {"shape": ()}}, capacity=9)
        >>> with TrajectoryWriter(server, num_keep_alive_refs=3) as writer:
        ...     for obs in range(3):
        ...         writer.append({"obs": obs})
        ...     key = writer.create_item("queue", 1.0, {"ends": writer.history["obs"][[-3, -1]]})
        >>> server.sample("queue", 1).data["ends"].tolist()
        [[0.0, 2.0]]

    Attributes:
        history: The steps that can be named: `history["obs"][-2:]`.
        episode_steps: Steps of this episode, without one that is still open.
        step_is_open: Whether the next `append` goes on with the newest step.
    """

    instead: ClassVar = {
        "append_sequence": "append one step after the other, or call client.insert_batch.",
        "configure": "every column keeps its newest num_keep_alive_refs steps; leave it out.",
    }

    def __init__(
        self, server: Server | RemoteServer, num_keep_alive_refs: int, max_in_flight_items: int = 0
    ) -> None:
        """Begin an episode.

        Args:
            server: Where items go.
            num_keep_alive_refs: The newest steps that can be named; at least 1.
            max_in_flight_items: How many items wait for each other, to be sent in one message; with 0
                `create_item` sends each by itself. The server needs free cells for all that a message brings
                before it evicts an item.

        Raises:
            ValueError: If num_keep_alive_refs is below 1, or max_in_flight_items below 0.
        """
        if operator.index(num_keep_alive_refs) < 1:
            raise ValueError(f"num_keep_alive_refs must be at least 1, not {num_keep_alive_refs}.")
        if operator.index(max_in_flight_items) < 0:
            raise ValueError(f"max_in_flight_items must be at least 0, not {max_in_flight_items}.")
        self.history = History(server.fields, num_keep_alive_refs)
        self._most = max(1, max_in_flight_items)
        self._server = server
        self._in_flight: list[ItemInFlight] = []
        self._unfinished: Message | None = None  # it has all that is in flight
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Begin a new writer session, in a history without a step."""
        self._process = os.getpid()
        self._writer: Any = None  # the server's, once a message is sent; another one in each episode
        self.history.forget_all()
        self.episode_steps, self.step_is_open = 0, False

    def append(self, data: Mapping[str, Any], *, partial_step: bool = False) -> None:
        """Take in a step, or a part of one.

        Args:
            data: The values of one step, by column; nested dicts and tuples are joined by "/". Columns may be
                left out. They are copied.
            partial_step: Whether the step stays open: the next call adds other columns to it. Items may name
                what it has already. An empty dict closes it.

        Raises:
            KeyError: If there is no such column.
            TypeError: If a value is not numeric.
            ValueError: If a shape or a value does not fit, the open step has the column already, or the
                writer is closed. Nothing has changed then, in any column.
        """
        self._check_open()
        check_named(data, self.history)
        self.history.append(data, self.step_is_open)
        self.step_is_open = partial_step
        self.episode_steps += not partial_step

    @explains(
        num_timesteps="pass a trajectory of as many steps, such as "
        "{name: writer.history[name][-3:] for name in writer.history}."
    )
    def create_item(
        self,
        table: str,
        priority: float | None,
        trajectory: Mapping[str, NamedCells],
        timeout: float | None = None,
    ) -> int | None:
        """Make an item; if it is the last one of a message, wait until the tables have let all of them in.

        A message that the server refuses, because of one of its items, brings none of them: all are dropped.
        This is said once, by the call that sent it, and the writer goes on.

        Args:
            table: Where it goes.
            priority: Its priority; None stands for the highest that the table has seen.
            trajectory: Its parts, each a name in a sample and cells of `history`. They may be of different
                lengths and share steps with each other and with other items.
            timeout: Seconds to wait at most, for the whole message; None waits, 0 looks once.

        Returns:
            Its key; None if it is in flight.

        Raises:
            CapacityError: If there are no free cells for the values. The message is refused.
            IndexError: If a part names steps that are not held any more.
            KeyError: If there is no such table. The message is refused.
            RuntimeError: If a message before timed out, or its call was interrupted: call `flush` first.
            TimeoutError: If the tables did not let all in. The rest is kept; `flush` waits on.
            TypeError: If a part is not of a history.
            UnknownWriter: If the server has been loaded meanwhile. The message is refused, and the writer has
                begun a new episode.
            ValueError: If a part is of another writer's history. Or if the priority does not fit, or the
                parts are others than the table's: the message is refused.
        """
        self._check_ready(timeout)
        self._put(table, priority, trajectory)
        keys = self._send_if_full(timeout)
        return keys[-1] if keys else None

    @explains(
        block_until_num_items="`flush` always waits for all items.", timeout_ms="pass timeout, in seconds."
    )
    def flush(self, timeout: float | None = None) -> list[int]:
        """Send what is in flight, and wait for items that timed out, or whose call was interrupted.

        Args:
            timeout: Seconds to wait at most; None waits, 0 looks once.

        Returns:
            The keys of these items, in their order.

        Raises:
            TimeoutError: If they are not in yet; they are kept.
            Exception: What `create_item` raises when a message is refused; its items are lost.
        """
        deadline_of(timeout)  # refused by the server, the message would be given up
        if self._in_flight:
            self._check_open()
        return self._send(timeout) if self._in_flight else []

    @explains(timeout_ms="pass timeout, in seconds.")
    def end_episode(self, clear_buffers: bool = True, timeout: float | None = None) -> None:
        """Send what is in flight, and begin a new episode; a step that is open is closed.

        Args:
            clear_buffers: Whether no item may reach back beyond here. If not, the history goes on, and its
                steps are counted on.
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: If not all items are in yet; the episode goes on.
            Exception: What `flush` raises.
        """
        self._check_open()
        self.flush(timeout)
        self.episode_steps, self.step_is_open = 0, False
        if clear_buffers:
            self._begin_anew()

    def close(self) -> None:
        """Let the server forget what no item names. An item that is in flight, or timed out, is lost."""
        if not self._closed:
            self._closed, self._unfinished = True, None
            self._in_flight.clear()
            if self._writer is not None and os.getpid() == self._process:  # a forked child has only a copy
                self._server.close_writer(self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the writer; unless there was an error, `flush` before."""
        try:
            if kind is None and os.getpid() == self._process:
                self.flush()
        finally:
            self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("This writer is closed. Make a new one.")
        if os.getpid() != self._process:
            raise RuntimeError(
                f"This writer belongs to the process {self._process}, of which this one was forked. Make a "
                "writer in each process."
            )

    def _check_ready(self, timeout: float | None) -> None:
        """Refuse to make items if the writer is closed, or keeps some that `flush` has to send first."""
        self._check_open()
        deadline_of(timeout)
        if self._unfinished is not None:
            raise RuntimeError("Items of the last call are not in yet. Call flush() until it returns.")

    def _put(self, table: str, priority: float | None, trajectory: Mapping[str, NamedCells]) -> None:
        """Let an item, and those of its cells that the server lacks, wait for the next message."""
        layout: list[Part] = []
        steps: list[int] = []
        history = self.history
        if not isinstance(trajectory, Mapping):
            raise TypeError(
                f"A trajectory is a dict of cells, such as {{'obs': writer.history['obs'][-3:]}}, "
                f"not {trajectory!r:.60}."
            )
        for name, cells in trajectory.items():
            if not isinstance(cells, NamedCells):
                raise TypeError(f"{name!r} must be cells, such as history['obs'][-2:], not {cells!r:.60}.")
            if cells.column.history is not history:
                raise ValueError(f"{name!r} names cells of another writer's history.")
            if min(cells.steps) < history.oldest:  # all were there when they were named
                cells.column.check(cells.steps)
            layout.append(Part(name, cells.column.name, len(cells.steps), cells.squeezed))
            steps += cells.steps
        if not steps:
            raise ValueError("A trajectory needs at least 1 part.")
        item = ItemInFlight(table, None if priority is None else float(priority), tuple(layout), steps)
        for cells in trajectory.values():
            cells.column.send(cells.steps)
        self._in_flight.append(item)

    def _message(self) -> Message:
        """Write all that is in flight into a message; items of one kind that follow each other together."""
        new: list[NewItems] = []
        for (table, layout, given), group in groupby(
            self._in_flight, lambda item: (item.table, item.layout, item.priority is not None)
        ):
            items = list(group)
            priorities = np.array([item.priority for item in items], np.float64) if given else None
            steps = np.array([item.steps for item in items], np.int64)
            new.append(NewItems(table, priorities, layout, steps))
        runs = [run for column in self.history.values() for run in column.runs()]
        return Message(runs, new, self.history.oldest)

    def _send_if_full(self, timeout: float | None) -> list[int]:
        return self._send(timeout) if len(self._in_flight) >= self._most else []

    def _send(self, timeout: float | None) -> list[int]:
        """Send what is in flight; keep the message until it is finished or refused."""
        self._unfinished = message = self._unfinished or self._message()
        if self._writer is None:
            self._writer = self._server.open_writer()
        try:
            keys = self._server.insert(self._writer, message, timeout)
        except REFUSED as error:
            if len(self._in_flight) > 1 and not isinstance(error, UnknownWriter):
                error.add_note(f"The message held {len(self._in_flight)} items. None of them was inserted.")
            self._finish(refused=True)
            if isinstance(error, UnknownWriter):
                self._begin_anew()
            raise
        self._finish(refused=False)
        return keys

    def _finish(self, refused: bool) -> None:
        """Be done with what was in flight; Ctrl-C may come between any two lines, but not inside one."""
        if refused:  # at once, or `flush` might send the message again, and its values later once more
            self._in_flight, self._unfinished = [], None
        for column in self.history.values():
            column.arrive(refused)
        self._in_flight, self._unfinished = [], None

    def _begin_anew(self) -> None:
        if self._writer is not None:
            self._server.close_writer(self._writer)
        self._begin()
