"""The server: named tables over one store of cells; who waits for whom.

Every call holds one lock while it reads or changes anything. So a step of one call never meets half a step of
another, and a file holds one moment of all tables. A call that its table's limiter stops waits in a queue of
that table, without the lock, until another call has changed the counts:

    insert  ─▶ queue of inserts  ─▶ in    more may be sampled now
    sample  ─▶ queue of samples  ─▶ out   more may be inserted now

All changes go through one critical section, `_change`: Ctrl-C waits until it ends, and its end wakes the
first call of each queue that may go now. Closing the server or a writer wakes all calls that wait in vain.

Left out: what one table does by itself (`table_state`).
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from threading import RLock
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import EnvDict, Fields
from replay_tutorial.buffers.interrupts import defer_sigint
from replay_tutorial.buffers.rows import check_batch_size, checked_integer
from replay_tutorial.tables.core import server_file
from replay_tutorial.tables.core.cells import MOST_CELLS, Cells, release
from replay_tutorial.tables.core.message import Message, as_keys, as_updates
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.reverb_names import ExplainsNames, explains
from replay_tutorial.tables.core.sampled import Sample, TableInfo, join
from replay_tutorial.tables.core.table import Table, check_reachable
from replay_tutorial.tables.core.table_state import TableState
from replay_tutorial.tables.core.waiting import CallerGone, Closed, WaitQueue, deadline_of
from replay_tutorial.tables.core.writer_state import CellOf, WriterState, table_of

log = logging.getLogger("replay_tutorial")
T = TypeVar("T")


class Server(ExplainsNames):
    """Named tables in this process, for threads.

    A table or column that is not there is a KeyError. What changes a table raises `Closed` if the server is
    closed, before or meanwhile. Everything is checked before anything changes.

    Example:
        >>> from replay_tutorial.tables import Client, Fifo, MinSize, Server, Table, Uniform
        >>> table = Table("replay", sampler=Uniform(), remover=Fifo(), max_size=100, rate_limiter=MinSize(1))
        >>> client = Client(Server([table], {"obs": {"shape": 2}, "rew": {"shape": ()}}, capacity=1000))
        >>> _ = client.insert({"obs": [1.0, 2.0], "rew": 0.5}, {"replay": 1.0})
        >>> client.sample("replay", 2).data["obs"].tolist()
        [[1.0, 2.0], [1.0, 2.0]]

    Attributes:
        fields: The columns, by name.
    """

    instead: ClassVar = {
        "port": "in this process write Client(server); for others, Endpoint(server, address, key).",
        "localhost_client": "write Client(server).",
    }

    @explains(
        port="Endpoint(server, address, key) lets other processes call.",
        checkpointer="call server.load(path), and server.save(path).",
    )
    def __init__(
        self,
        tables: Sequence[Table],
        env_dict: EnvDict,
        capacity: int | None = None,
        *,
        default_dtype: npt.DTypeLike = np.float32,
        seed: int | None = None,
        patience: float = 60.0,
    ) -> None:
        """Make empty tables.

        Args:
            tables: Their descriptions; no name twice.
            env_dict: The columns, as of a buffer; a step may leave some out.
            capacity: Cells of each column: how many steps can be stored at once. None reserves twice what
                the items of full tables name in one column by their signatures (one cell each without), and
                1,000 more: enough for items of one step. Pages that are not used take no memory.
            default_dtype: The dtype of columns that name none.
            seed: Of the generator that draws.
            patience: Seconds that a call waits before it logs a warning that says for what.

        Raises:
            ValueError: If a table's name comes twice, or an argument is out of range.
        """
        self.fields = Fields(env_dict, default_dtype)
        if capacity is None:
            full = sum(table.max_size * table.cells_of_an_item for table in tables)
            capacity = min(2 * full + 1000, MOST_CELLS // len(self.fields.fields))
        self._cells = Cells(self.fields, checked_integer("capacity", capacity))
        self._rng = np.random.default_rng(seed)
        self._lock = RLock()  # a hook, which is called under it, may look at the server
        self._closed = False
        names = [table.name for table in tables]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"A server has at least one table, and each name once, not {names}.")
        self._tables = {table.name: TableState(table, self._cells, self._rng) for table in tables}
        self._writers = WeakSet[WriterState]()
        self._dropped = deque[CellOf]()  # what writers held that were dropped without `close`
        for table in tables:
            for hook in table.hooks:
                hook.check(table.name, self._tables)
        self._queues = {
            (side, name): WaitQueue(self._lock, partial(self._may, side, name), patience)
            for name in names
            for side in ("insert", "sample")
        }

    def _may(self, side: str, table: str) -> bool:
        contents = self._tables[table]
        return contents.may_insert() if side == "insert" else contents.may_sample()

    def open_writer(self) -> WriterState:
        """Begin a writer, which counts its steps from 0. One that nobody holds any more is closed."""
        with self._lock:
            writer = WriterState(self._cells, self._dropped)
            self._writers.add(writer)
            return writer

    def insert(
        self,
        writer: WriterState,
        message: Message,
        timeout: float | None = None,
        *,
        check: Callable[[Message, WriterState, Cells], Message] | None = None,
        should_cancel: Callable[[], bool] | None = None,
    ) -> list[int]:
        """Store the values of a message, then insert its items, each when its table lets it in.

        After a TimeoutError or Ctrl-C the items that are in stay in; the same message, passed again, goes on
        where it stopped, and if it is finished is answered as before.

        Args:
            writer: The writer, from `open_writer`.
            message: Its next message, or its last one again.
            timeout: Seconds to wait at most, for all items together; None waits, 0 looks once.
            check: Called before the message is accepted; raises an error if something in it is wrong, and
                returns it, or the writer's last message that it repeats.
            should_cancel: Asked while it waits whether to give up.

        Returns:
            The keys of all its items, in their order.

        Raises:
            CallerGone: If `should_cancel` says so.
            CapacityError: If there are no free cells for its values.
            TimeoutError: If not all items are in when the time is up.
            UnknownWriter: If the writer is closed, or the server loaded, before or meanwhile.
            ValueError: If an item does not fit its table. What a writer has checked when it made the message,
                such as which steps it names, is not checked again.
        """
        deadline = deadline_of(timeout)

        def accept() -> int:
            nonlocal message
            self._check_open()
            writer.check_open()
            while self._dropped:
                cells = [cell for cell_of in self._dropped.popleft() for cell in cell_of.values()]
                release(np.array(cells, np.int32), self._cells.plain)
            if check is not None:
                message = check(message, writer, self._cells)
            if message.keys is None:
                writer.accept(message, self._tables)
            return self._insert_items(writer, message)

        place = self._change(accept)
        while place < len(message.accepted):
            name = message.accepted[place][0].description.name
            wait = partial(self._wait, "insert", name, deadline, writer, should_cancel)
            place = self._change(partial(self._insert_items, writer, message, place), wait)
        return list(message.keys or ())

    def _insert_items(self, writer: WriterState, message: Message, turn: int = -1) -> int:
        """Insert the items of a message that may go in now; return how many are in.

        The one at the place `turn` has waited; if it is in already, the message was passed to two calls.
        """
        keys = message.keys
        assert keys is not None
        while (place := len(keys)) < len(message.accepted):
            table, cells, lengths, priority = message.accepted[place]
            if place != turn and not self._queues["insert", table.description.name].is_free:
                return place
            keys.append(table.insert(cells, lengths, priority, self._tables))
        writer.forget(message.keep_from)
        return len(keys)

    def close_writer(self, writer: WriterState) -> None:
        """Forget a writer and its steps; items stay, but those that wait are not inserted."""

        def close() -> None:
            writer.close()
            self._wake_all(writer)

        self._change(close)

    def sample(
        self,
        table: str,
        batch_size: int,
        timeout: float | None = None,
        partial: bool = False,
        *,
        should_cancel: Callable[[], bool] | None = None,
        most_bytes: int | None = None,
    ) -> Sample:
        """Draw items with replacement, each as if it were alone, as soon as the limiter allows them.

        Args:
            table: The table's name.
            batch_size: How many items; at least 1.
            timeout: Seconds to wait at most; None waits, 0 looks once.
            partial: Whether to return as soon as one or more items may be drawn, with those.
            should_cancel: Asked while it waits whether to give up.
            most_bytes: Refuse a batch that may take more.

        Returns:
            `batch_size` items. Fewer if `partial` is set, or if the time is up, the server is closed or
            `should_cancel` says so when only some could be drawn: the table has counted these. The arrays are
            the caller's own.

        Raises:
            CallerGone: If `should_cancel` says so when none was drawn; `Closed` and `TimeoutError` likewise.
            ValueError: If batch_size or timeout is out of range, or the batch may take too many bytes.
        """
        check_batch_size(batch_size)
        batch_size = int(batch_size)  # an integer of NumPy would turn the counts into such
        deadline = deadline_of(timeout)
        pieces: list[Sample] = []
        missing = batch_size

        def draw() -> Sample:
            drawn_from = self._table(table)
            if most_bytes is not None and not pieces:
                drawn_from.check_size(batch_size, most_bytes)
            return drawn_from.sample(missing, self._tables)

        def wait() -> None:
            self._wait("sample", table, deadline, None, should_cancel)

        while missing and not (pieces and partial):
            try:
                pieces.append(self._change(draw, wait))
            except (TimeoutError, Closed, CallerGone):
                if not pieces:
                    raise
                break  # the table has counted these
            missing -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else join(pieces)

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then give others new priorities.

        Args:
            table: The table's name.
            updates: The new priority of each key, or keys and priorities; of a repeated key the last stays.
            deletes: Keys.

        Returns:
            How many keys were stale: their items are gone. These are dropped.

        Raises:
            ValueError: If a priority is out of range; a TypeError if it is no number, or a key no integer.
        """
        (keys, priorities), deleted = as_updates(updates), as_keys(deletes)

        def mutate() -> int:
            changed = self._table(table)
            changed.check_priorities(priorities)
            return changed.mutate(keys, priorities, deleted, self._tables)

        return self._change(mutate)

    def reset(self, table: str) -> None:
        """Delete all items of a table, and count from 0; keys are not used again.

        Parts that were inferred from the first item are forgotten, unless items wait that have them.
        """

        def reset() -> None:
            changed = self._table(table)
            waiting = any(writer.has_items_for(changed) for writer in self._writers)
            changed.reset(self._tables, keep_parts=waiting)

        self._change(reset)

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Let another limiter decide from now on, also over those who wait; the counts go on.

        Raises:
            ValueError: If the limiter waits for more items than the table can hold.
        """

        def replace() -> None:
            changed = self._table(table)
            check_reachable(limiter, changed.description.max_size)
            changed.limiter = limiter

        self._change(replace)

    def items(self, table: str, *, most_bytes: int | None = None) -> Sample:
        """Copy all items of a table, each with the probability that it would be drawn with next.

        Raises:
            ValueError: If they may take more than `most_bytes`.
        """
        with self._lock:
            copied = table_of(self._tables, table)
            if most_bytes is not None:
                copied.check_size(copied.items.size, most_bytes)
            return copied.look()

    def info(self) -> dict[str, TableInfo]:
        """Describe all tables at one moment."""
        with self._lock:
            waits = {place: len(queue) for place, queue in self._queues.items()}
            every = self._tables.items()
            return {name: t.info(waits["insert", name], waits["sample", name]) for name, t in every}

    def save(self, path: str | PathLike[str]) -> None:
        """Write all tables, as they are at one moment, to one file of arrays and text, no pickle.

        Writers are not in it, nor items that wait. An old file is replaced when the new one is complete.
        """
        with self._lock:
            server_file.save(path, self.fields, self._cells, self._rng, self._tables)

    def load(self, path: str | PathLike[str]) -> None:
        """Replace everything by what `save` wrote, bit for bit: the next calls return what they would.

        The file is of a server with the same columns, and tables of the same names, selectors and max_size.
        Limiters, max_times_sampled, capacity and hooks stay those of this server. Writers must begin anew:
        the next message of one from before raises UnknownWriter. Memory is needed twice meanwhile.

        Raises:
            OSError: If it can't be read.
            ValueError: If it is damaged, of another server, or holds more steps than this one's capacity.
        """
        with self._lock:
            self._check_open()
            loaded = server_file.load(path, self.fields, self._cells.capacity, self._tables)

            def replace() -> None:
                for writer in self._writers:
                    writer.is_open = False
                self._cells, self._rng, self._tables = loaded
                self._dropped = deque[CellOf]()
                self._wake_all()

            self._change(replace)

    def close(self) -> None:
        """End: calls that wait, or come later, raise `Closed`; what waited has not happened."""
        with self._lock:
            self._closed = True
            self._wake_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The server was closed. Build another one.")

    def _table(self, name: str) -> TableState:
        self._check_open()
        return table_of(self._tables, name)

    def _change(self, work: Callable[[], T], wait: Callable[[], None] | None = None) -> T:
        """Carry out a change while nothing else changes, whole even if Ctrl-C comes; return its result.

        `wait` is called before; it releases the lock while it waits, and Ctrl-C ends it.
        """
        with self._lock:
            try:
                if wait is not None:
                    wait()
                with defer_sigint():
                    return work()
            finally:  # also if nothing has changed: a call whose turn came leaves it to the next one
                for queue in self._queues.values():
                    queue.wake()

    def _wait(
        self,
        side: str,
        table: str,
        deadline: float,
        writer: WriterState | None,
        should_cancel: Callable[[], bool] | None,
    ) -> None:
        """Wait for one's turn in a queue; the lock is released meanwhile."""

        def check() -> None:
            self._table(table)
            if writer is not None:
                writer.check_open()

        check()
        queue = self._queues[side, table]
        if queue.is_free:  # nearly always
            return

        def story() -> str:
            return f"{side}({table!r}) waits for {self._tables[table].info().missing(side)}"

        if not queue.wait(deadline, lambda: log.warning("%s", story()), check, writer, should_cancel):
            raise TimeoutError(f"The time is up: {story()}")

    def _wake_all(self, writer: WriterState | None = None) -> None:
        for queue in self._queues.values():
            queue.wake_all(writer)
