"""The server: named tables that share one store of cells.

All calls share one lock, which they hold while they read or change state. A call that the rate limiter does
not admit releases the lock and waits in a queue until other calls have changed the counts. Each table has two
queues:

    insert  ─▶ insert queue  ─▶ item inserted    more samples are admitted
    sample  ─▶ sample queue  ─▶ item sampled     more inserts are admitted

Tables are changed in critical sections, `with self._lock, defer_sigint(), self._queues`. They defer Ctrl-C
until the change is complete, and then wake the first call of each queue if the limiter now admits it.
"""

# pyright: reportPrivateUsage=false

import functools
import itertools
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from threading import RLock
from typing import Any, Self, TypeVar
from weakref import WeakSet

import numpy as np

from replay_tutorial.buffers.fields import Fields, FieldSpecs
from replay_tutorial.buffers.rows import check_batch_size, checked_integer
from replay_tutorial.buffers.runtime.interrupts import defer_sigint
from replay_tutorial.tables.core import checkpoint
from replay_tutorial.tables.core.arguments import (
    ByTable,
    ReverbName,
    as_keys,
    as_updates,
    check_names,
    explain_reverb_arguments,
)
from replay_tutorial.tables.core.cells import MAX_CELLS, Cells, release_cells
from replay_tutorial.tables.core.message import Message
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.results import Sample, TableInfo, concatenate_samples
from replay_tutorial.tables.core.table import Table, check_reachable
from replay_tutorial.tables.core.table_state import TableState
from replay_tutorial.tables.core.waiting import (
    Call,
    Cancelled,
    Closed,
    Waiter,
    WaitQueue,
    WaitQueues,
    complete,
    deadline_of,
)
from replay_tutorial.tables.core.writer_state import CellsByStep, WriterState

log = logging.getLogger("replay_tutorial")
SERVERS = WeakSet["Server"]()  # of this process
T = TypeVar("T")


class ParentsLock:
    """Replaces the lock of a server in a forked child, where the copied lock may be locked forever."""

    def __enter__(self) -> None:
        raise RuntimeError(
            "The server belongs to the parent process. Use a RemoteServer in other processes, or "
            "DataLoader(..., num_workers=0) with in_flight."
        )

    def __exit__(self, *_: object) -> None: ...


def disown_servers() -> None:
    """Make all servers of the parent process refuse calls."""
    for server in SERVERS:
        server._lock = ParentsLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=disown_servers)


class Server:
    """A thread-safe set of named tables in this process.

    An unknown table or column raises KeyError. After `close`, methods that change a table raise `Closed`. All
    arguments are checked before any state changes. A forked child can't call its parent's servers.

    Example:
        >>> from replay_tutorial.tables import Client, Fifo, MinSize, Server, Table, Uniform
        >>> table = Table("replay", sampler=Uniform(), remover=Fifo(), max_size=100, rate_limiter=MinSize(1))
        >>> client = Client(Server([table], {"obs": {"shape": 2}, "reward": {}}, capacity=1000))
        >>> _ = client.insert({"obs": [1.0, 2.0], "reward": 0.5}, {"replay": 1.0})
        >>> client.sample("replay", 2).data["obs"].tolist()
        [[1.0, 2.0], [1.0, 2.0]]

    Attributes:
        fields: The columns, keyed by name.
    """

    port = ReverbName(
        "use Client(server) in this process, and Endpoint(server, address) for other processes."
    )
    localhost_client = ReverbName("use Client(server).")

    @explain_reverb_arguments(
        port="Endpoint(server, address) accepts calls from other processes.",
        checkpointer="call server.save(path) and server.load(path).",
    )
    def __init__(
        self,
        tables: Sequence[Table],
        columns: FieldSpecs,
        capacity: int | None = None,
        *,
        seed: int | None = None,
        patience: float = 60.0,
    ) -> None:
        """Create a server with empty tables.

        Args:
            tables: Configurations of the tables, with unique names.
            columns: The columns, declared like the fields of a buffer. A step may omit columns.
            capacity: Number of cells per column, which is the maximum number of steps stored at once. None
                reserves 1,000 cells plus twice the number that the items of full tables reference in one
                column. That number follows from the signatures; without a signature an item counts as one
                cell, which suffices for items of one step. Unused memory is not allocated.
            seed: Seed of the random generator used for sampling.
            patience: Seconds after which a waiting call logs a warning that states what it is waiting for.

        Raises:
            ValueError: If two tables have the same name, or an argument is out of range.
        """
        self.fields = Fields(columns)
        check_names(self.fields.fields)
        if capacity is None:
            full = sum(table.max_size * table.most_cells_per_column for table in tables)
            capacity = min(2 * full + 1000, MAX_CELLS // len(self.fields.fields))
        self._cells = Cells(self.fields, checked_integer("capacity", capacity))
        self._rng = np.random.default_rng(seed)
        # reentrant, because a hook may call the server while the lock is held
        self._lock: RLock | ParentsLock = RLock()
        SERVERS.add(self)
        self._closed = False
        self._patience = patience
        if not patience >= 0.0:
            raise ValueError(f"patience must be at least 0 seconds, not {patience}.")
        names = [table.name for table in tables]
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"A server must have at least one table, and their names must be unique, not {names}."
            )
        self._tables = ByTable[TableState]()
        for table in tables:
            self._tables[table.name] = TableState(table, self._cells, self._rng, self._tables)
        self._writers = WeakSet[WriterState]()
        self._dropped = deque[CellsByStep]()  # cells of writers that were garbage-collected before `close`
        for table in tables:
            for hook in table.hooks:
                hook.check(table.name, self._tables)
        self._queues = WaitQueues()
        for key in itertools.product(("insert", "sample"), names):
            self._queues[key] = WaitQueue(functools.partial(self._can_proceed, *key))

    def _can_proceed(self, side: str, table: str) -> bool:
        state = self._tables[table]
        return state.may_insert() if side == "insert" else state.may_sample()

    def _open_writer(self) -> WriterState:
        """Start a new writer. Its steps may start at any number; garbage collection closes it."""
        with self._lock:
            writer = WriterState(self._cells, self._dropped)
            self._writers.add(writer)
            return writer

    def _insert(self, writer: WriterState, message: Message, timeout: float | None = None) -> list[int]:
        """Store the values of a message, then insert its items in order, each as soon as its table admits it.

        The message is the next one of its writer, or its last one again. Items inserted before a TimeoutError
        or Ctrl-C stay in their tables. Passing the same message again continues with the remaining items;
        passing a finished message returns its keys again.

        Returns:
            The keys of all items, in order.

        Raises:
            CapacityError: If there are too few free cells for the values.
            TimeoutError: If some items were not inserted within `timeout`.
            UnknownWriter: If the writer was closed, or the server loaded a file, before or during the call.
            ValueError: If an item does not fit its table.
        """
        return complete(self._inserting(writer, message), timeout)

    def _inserting(self, writer: WriterState, message: Message) -> Call[list[int]]:
        """Carry out `_insert`."""
        with self._lock, defer_sigint(), self._queues:
            self._check_open()
            writer.check_open()
            while self._dropped:
                cells = [cell for cells_by_step in self._dropped.popleft() for cell in cells_by_step.values()]
                release_cells(np.array(cells, np.int32), self._cells.allocator_tuple)
            if message.keys is None:
                writer.accept(message, self._tables)
            position = self._insert_items(writer, message)
        while position < len(message.accepted):
            table, *_ = message.accepted[position]
            insert = functools.partial(self._insert_items, writer, message, position)
            position = yield from self._when_admitted("insert", table.config.name, insert, writer)
        return list(message.keys or ())

    def _insert_items(self, writer: WriterState, message: Message, admitted: int = -1) -> int:
        """Insert the items of a message that are admitted now, and return how many have been inserted so far.

        The item at position `admitted` has waited for its turn and is inserted unconditionally. It may be in
        the table already if two calls pass the same message.
        """
        keys = message.keys
        assert keys is not None
        while (position := len(keys)) < len(message.accepted):
            writer.check_open()  # a hook may have closed it, and released its steps
            table, cells, lengths, priority = message.accepted[position]
            if position != admitted and not self._queues["insert", table.config.name].admits(None):
                return position
            table.check_idle()  # `accept` has checked it, but a later call may come from a hook
            keys.append(table.insert(cells, lengths, priority))
        writer.check_open()
        writer.release_before(message.keep_from)
        return len(keys)

    def _close_writer(self, writer: WriterState) -> None:
        """Close a writer and release its steps; inserted items stay, waiting items are discarded."""
        with self._lock, defer_sigint(), self._queues:
            writer.close()
            self._queues.wake_all(writer)

    def sample(
        self,
        table: str,
        batch_size: int,
        timeout: float | None = None,
        partial: bool = False,
        *,
        should_cancel: Callable[[], bool] | None = None,
    ) -> Sample:
        """Sample items independently and with replacement, waiting until the rate limiter admits them.

        Args:
            table: Name of the table.
            batch_size: Number of items; at least 1.
            timeout: Seconds to wait. None waits indefinitely, 0 does not wait.
            partial: Whether to return as soon as at least one item has been sampled.
            should_cancel: Called repeatedly while waiting; returning True cancels the call.

        Returns:
            `batch_size` items in newly allocated arrays; with `partial`, 1 to `batch_size` items. If an
            error ends the call, the items sampled so far are returned, because the table has already counted
            them.

        Raises:
            Cancelled: If `should_cancel` returned True before any item was sampled.
            Closed: If the server was closed before any item was sampled.
            MemoryError: If the batch does not fit into memory. No item was sampled, unless the batch was
                drawn in several parts.
            TimeoutError: If the timeout expired before any item was sampled.
            ValueError: If `batch_size` or `timeout` is out of range.
        """
        return complete(self._sampling(table, batch_size, partial), timeout, should_cancel)

    def _sampling(
        self, table: str, batch_size: int, partial: bool, most_bytes: int | None = None
    ) -> Call[Sample]:
        """Carry out `sample`; a batch that could exceed `most_bytes` raises ValueError."""
        check_batch_size(batch_size)
        batch_size = int(batch_size)  # a NumPy integer would turn the counts into NumPy integers
        samples: list[Sample] = []
        remaining = batch_size

        def draw() -> None:
            state = self._tables[table]
            if most_bytes is not None:
                state.check_size(batch_size, most_bytes)
            samples.append(state.sample(remaining))

        while remaining and not (samples and partial):
            try:
                yield from self._when_admitted("sample", table, draw)
            except (TimeoutError, Closed, Cancelled, MemoryError, ValueError):
                if not samples:
                    raise
                break  # the items sampled so far have been counted, so return them
            remaining -= len(samples[-1])
        return samples[0] if len(samples) == 1 else concatenate_samples(samples)

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then update the priorities of others.

        Args:
            table: Name of the table.
            updates: New priorities as a mapping from key to priority, or as a pair of arrays (keys,
                priorities). If a key is repeated, its last priority is used.
            deletes: Keys of the items to delete.

        Returns:
            The number of stale keys. Their items no longer exist, so they are ignored.

        Raises:
            TypeError: If a priority is not a number, or a key is not an integer.
            ValueError: If a priority is out of range.
        """
        (keys, priorities), deleted = as_updates(updates), as_keys(deletes)
        with self._lock, defer_sigint(), self._queues:
            state = self._table_to_change(table)
            state.check_priorities(priorities)
            return state.mutate(keys, priorities, deleted)

    def reset(self, table: str) -> None:
        """Delete all items of a table and set its counts to 0; keys are not reused.

        Parts that were inferred from the first item are forgotten, unless items with these parts are waiting.
        """
        with self._lock, defer_sigint(), self._queues:
            state = self._table_to_change(table)
            waiting = any(writer.has_items_for(state) for writer in self._writers)
            state.reset(keep_parts=waiting)

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Replace the rate limiter of a table, also for calls that are waiting; the counts are kept.

        Raises:
            ValueError: If the limiter's `min_size` exceeds the `max_size` of the table.
        """
        with self._lock, defer_sigint(), self._queues:
            state = self._table_to_change(table)
            check_reachable(limiter, state.config.max_size)
            state.limiter = limiter

    def items(self, table: str, *, most_bytes: int | None = None) -> Sample:
        """Return a copy of all items of a table, with their current sampling probabilities.

        Raises:
            ValueError: If the copy could exceed `most_bytes`.
        """
        with self._lock:
            state = self._tables[table]
            if most_bytes is not None:
                state.check_size(state.items.size, most_bytes)
            return state.snapshot()

    def info(self) -> dict[str, TableInfo]:
        """Return a consistent snapshot of the state of every table."""
        with self._lock:
            waiting = {key: len(queue) for key, queue in self._queues.items()}
            every = self._tables.items()
            return {name: t.info(waiting["insert", name], waiting["sample", name]) for name, t in every}

    def save(self, path: str | PathLike[str]) -> None:
        """Save a consistent snapshot of all tables to a single file of arrays and text, without pickle.

        The file does not include writers or waiting items. An existing file is replaced once the new one is
        complete.
        """
        with self._lock:
            self._check_idle()
            checkpoint.save(path, self.fields, self._cells, self._rng, self._tables)

    def load(self, path: str | PathLike[str]) -> None:
        """Replace the content of all tables with that of a saved file, and resume exactly.

        The next calls return the same results as they would have on the saved server. The file must come from
        a server with the same columns and with tables of the same names, selectors and `max_size`, in the
        same order. Rate limiters, `max_times_sampled`, capacity and hooks remain those of this server. The
        next message of an existing writer raises UnknownWriter. While loading, the old and the new content
        are both in memory.

        Raises:
            OSError: If the file can't be read.
            ValueError: If the file is damaged, belongs to a different server, or holds more steps than
                `capacity`.
        """
        with self._lock:
            self._check_open()
            self._check_idle()
            loaded = checkpoint.load(path, self.fields, self._cells.capacity, self._tables)
            with defer_sigint(), self._queues:
                # These calls drop all references to the old content, and break the cycle between the tables,
                # so that it is freed at once; an unfinished message keeps it until the writer's next call.
                for writer in self._writers:
                    writer.discard()
                self._writers.clear()
                self._tables.clear()
                self._cells, self._rng, self._tables = loaded
                self._dropped = deque[CellsByStep]()
                self._queues.wake_all()

    def close(self) -> None:
        """Close the server: waiting calls, and later calls that sample or change a table, raise `Closed`.

        Items that a waiting call has already inserted stay in their tables. `items`, `info` and `save` still
        work.
        """
        with self._lock:
            self._closed = True
            self._queues.wake_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The server was closed. Create a new one.")

    def _table_to_change(self, name: str) -> TableState:
        """Return a table; raise Closed if the server is closed, or RuntimeError in one of its hooks."""
        self._check_open()
        table = self._tables[name]
        table.check_idle()
        return table

    def _check_idle(self) -> None:
        for table in self._tables.values():
            table.check_idle()

    def _when_admitted(
        self, side: str, name: str, change: Callable[[], T], writer: WriterState | None = None
    ) -> Call[T]:
        """Change a table as soon as its limiter admits the call, which waits in a queue until then."""
        waiter: Waiter | None = None

        def reason() -> str:
            return f"{side}({name!r}) waits for {self._tables[name].info().wait_reason(side)}"

        try:
            while True:
                with self._lock, self._queues:  # wakes the next call if this one is interrupted
                    if waiter is not None:
                        waiter.woken.clear()
                    self._table_to_change(name)
                    if writer is not None:
                        writer.check_open()
                    queue = self._queues[side, name]
                    if queue.admits(waiter):
                        with defer_sigint(), self._queues:
                            if waiter is not None:
                                queue.leave(waiter)
                            return change()
                    if any(table.in_hook for table in self._tables.values()):
                        # waiting would release the lock in the middle of a change
                        raise TimeoutError(f"A hook can't wait; {reason()}")
                    if waiter is None:
                        waiter = Waiter(writer, deadline_of(self._patience))
                        queue.append(waiter)
                    elif time.monotonic() >= waiter.warn_at:
                        waiter.warn_at = math.inf
                        log.warning("%s", reason())
                try:
                    yield waiter
                except TimeoutError:
                    with self._lock:
                        raise TimeoutError(f"The timeout expired; {reason()}") from None
        finally:
            if waiter is not None:
                with self._lock, self._queues:
                    self._queues[side, name].leave(waiter)
