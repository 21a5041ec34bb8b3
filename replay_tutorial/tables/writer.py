"""A writer: steps go in one by one, items name some of them, and both travel to the server as messages.

A step waits in the writer until an item names it: only what is named is sent, and each value once, however
many items name it. The server keeps it as long as an item names it, or the writer still may.

`create_item` returns when the table has the item, so nothing is on its way when it returns. If the time is up
before, or the call is interrupted, nobody can say how much of the message has been done. The writer keeps it
until `flush` has sent the same one again with success: what has been done is not done twice.

Left out: messages that are on their way while the writer goes on. One writer is for one environment, and for
one thread.
"""

import operator
import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.jit import Floats
from replay_tutorial.tables.history import ColumnHistory, History, NamedCells
from replay_tutorial.tables.message import Message, NewItems, Part, Run, UnknownWriter
from replay_tutorial.tables.step_values import StepValues
from replay_tutorial.tables.waiting import deadline_of

# What the server refuses a message with, before it has changed anything.
REFUSED = (LookupError, TypeError, ValueError, MemoryError)


Cells = tuple[ColumnHistory, Sequence[int]]  # the values of some steps in one column


class Receiver(Protocol):
    """What a writer needs of a server, here or far away: see `Server`."""

    @property
    def fields(self) -> Fields:
        """The columns."""
        ...

    def insert(self, message: Message, timeout: float | None = None) -> list[int]:
        """Take in a message; return the keys of its items."""
        ...

    def close_writer(self, writer: int) -> None:
        """Forget a writer."""
        ...


class NewItem(NamedTuple):
    """An item that is to be made.

    Attributes:
        table: Where it goes.
        priority: Its priority; None stands for the highest that the table has seen.
        trajectory: Its parts, by name.
    """

    table: str
    priority: float | None
    trajectory: Mapping[str, NamedCells]


class TrajectoryWriter:
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

    def __init__(self, server: Receiver, num_keep_alive_refs: int) -> None:
        """Begin an episode.

        Args:
            server: A server, or a handle with the same methods.
            num_keep_alive_refs: The newest steps that can be named; at least 1.

        Raises:
            ValueError: If num_keep_alive_refs is below 1.
        """
        if operator.index(num_keep_alive_refs) < 1:
            raise ValueError(f"num_keep_alive_refs must be at least 1, not {num_keep_alive_refs}.")
        self.history = History(server.fields.fields, num_keep_alive_refs)
        self.episode_steps = 0
        self.step_is_open = False
        self._server = server
        self._number = secrets.randbits(63)  # another one in each episode: so the server forgets the last one
        self._sequence = 0  # of the next message
        self._unfinished: Message | None = None
        self._closed = False
        self._step_values = StepValues(server.fields, self.history)

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
        history = self.history
        columns, values = self._step_values.checked(data, history.end - 1 if self.step_is_open else None)
        if not self.step_is_open:
            history.begin_step()
        step = history.end - 1
        for column, value in zip(columns, values, strict=True):
            column.put(step, value)
        self.step_is_open = partial_step
        if not partial_step:
            self.episode_steps += 1

    def create_item(
        self,
        table: str,
        priority: float | None,
        trajectory: Mapping[str, NamedCells],
        timeout: float | None = None,
    ) -> int:
        """Make an item, and wait until the table has let it in.

        Args:
            table: Where it goes.
            priority: Its priority; None stands for the highest that the table has seen.
            trajectory: Its parts, each a name in a sample and cells of `history`. They may be of different
                lengths and share steps with each other and with other items.
            timeout: Seconds to wait at most; None waits, 0 looks once.

        Returns:
            Its key.

        Raises:
            IndexError: If a part names steps that are not held any more.
            KeyError: If there is no such table.
            RuntimeError: If an item before it timed out, or its call was interrupted: call `flush` first.
            TimeoutError: If the table did not let it in. It is kept; `flush` waits on.
            TypeError: If a part is not of a history.
            UnknownWriter: If the server has been loaded meanwhile. The writer has begun a new episode.
            ValueError: If a part is of another writer's history, or the priority does not fit.
        """
        item = self._checked(table, priority, trajectory)
        return self.send_items([item], cells_of(trajectory), timeout)[0]

    def create_items(self, items: Sequence[NewItem], timeout: float | None = None) -> list[int]:
        """Make items, with one message for all of them.

        Args:
            items: As for `create_item`, in the order in which they are inserted.
            timeout: Seconds to wait at most, for all of them together.

        Returns:
            Their keys.

        Raises:
            Exception: What `create_item` raises.
        """
        new = [self._checked(*item) for item in items]
        return self.send_items(new, [cells for item in items for cells in cells_of(item.trajectory)], timeout)

    def send_items(self, new: Sequence[NewItems], cells: Iterable[Cells], timeout: float | None) -> list[int]:
        """Send items that have been checked, and those of their cells that the server lacks."""
        self.check_ready()
        if not new:
            return []
        runs: list[Run] = []
        for column, steps in cells:
            column.take_unsent(steps, runs)
        return self._send(Message(self._number, self._sequence, runs, new, self.history.oldest), timeout)

    def check_ready(self) -> None:
        """Refuse to make items if the writer is closed, or keeps some that `flush` has to send first."""
        self._check_open()
        if self._unfinished is not None:
            raise RuntimeError("Items of the last call are not in yet. Call flush() until it returns.")

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("This writer is closed. Make a new one.")

    def flush(self, timeout: float | None = None) -> None:
        """Wait for items that timed out, or whose call was interrupted.

        Args:
            timeout: Seconds to wait at most; None waits, 0 looks once.

        Raises:
            TimeoutError: If they are not in yet; they are kept.
            UnknownWriter: If the server has been loaded meanwhile; the items are lost.
        """
        if self._unfinished is not None:
            deadline_of(timeout)  # refused by the server, the message would be given up
            self._send(self._unfinished, timeout)

    def end_episode(self, clear_buffers: bool = True, timeout: float | None = None) -> None:
        """Begin a new episode; a step that is open is closed.

        Args:
            clear_buffers: Whether no item may reach back beyond here. If not, the history goes on.
            timeout: Seconds to wait at most for items that timed out.

        Raises:
            TimeoutError: If they are not in yet; the episode goes on.
        """
        self.flush(timeout)
        self.episode_steps, self.step_is_open = 0, False
        if clear_buffers:
            self._begin_anew()

    def close(self) -> None:
        """Let the server forget what no item names. An item that timed out, and is not in yet, is lost."""
        if not self._closed:
            self._closed, self._unfinished = True, None
            self._server.close_writer(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the writer; unless there was an error, wait for items that timed out before."""
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _checked(self, table: str, priority: float | None, trajectory: Mapping[str, NamedCells]) -> NewItems:
        """Return an item as the server takes it; refuse one that can't be made."""
        layout: list[Part] = []
        steps: list[int] = []
        history = self.history
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
        return NewItems(table, as_priorities(priority), tuple(layout), np.array([steps], np.int64))

    def _send(self, message: Message, timeout: float | None) -> list[int]:
        """Send a message; keep it if nobody can say how much of it has been done."""
        self._unfinished = message
        try:
            keys = self._server.insert(message, timeout)
        except REFUSED as error:
            self._unfinished = None
            for run in message.runs:
                self.history[run.column].give_back(run)
            if isinstance(error, UnknownWriter):
                self._begin_anew()
            raise
        self._unfinished = None
        self._sequence += 1
        return keys

    def _begin_anew(self) -> None:
        """Be a writer of which the server has heard nothing, with a history of no step."""
        if self._sequence:
            self._server.close_writer(self._number)
        self._number, self._sequence = secrets.randbits(63), 0
        self.history.forget_all()
        self.episode_steps, self.step_is_open = 0, False


def cells_of(trajectory: Mapping[str, NamedCells]) -> list[Cells]:
    """Return what a trajectory names."""
    return [(cells.column, cells.steps) for cells in trajectory.values()]


def as_priorities(priority: float | None) -> Floats | None:
    """Return an item's priority as a message carries it."""
    return None if priority is None else np.array([priority], np.float64)
