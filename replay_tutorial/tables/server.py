"""The server: named tables over one store of cells; who waits for whom.

One lock is held by whoever looks at, or changes, anything. So a step of one call never meets half a step of
another, and a file holds one moment of all tables. A call that the limiter of its table stops stands in that
table's line, without the lock, until another call has changed the counts:

    insert  ─▶ line of inserts  ─▶ in    more may be sampled now
    sample  ─▶ line of samples  ─▶ out   more may be inserted now

Whatever changes something wakes the first of each line that may go now. Who waits in vain, as the server or
the writer was closed, hears of it at once. Left out: what one table does by itself (`table_state`).
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from threading import RLock
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import EnvDict, Fields
from replay_tutorial.buffers.interrupts import Undisturbed
from replay_tutorial.buffers.rows import check_batch_size, checked_integer
from replay_tutorial.tables.core import server_file
from replay_tutorial.tables.core.cells import MOST_CELLS, Cells
from replay_tutorial.tables.core.intake import Intake, as_keys, as_updates, table_of
from replay_tutorial.tables.core.message import Message
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.reverb_names import ExplainsNames, explains
from replay_tutorial.tables.core.sampled import Sample, TableInfo, join
from replay_tutorial.tables.core.table import Table, check_reachable
from replay_tutorial.tables.core.table_state import TableState
from replay_tutorial.tables.core.waiting import Closed, Line, deadline_of

log = logging.getLogger("replay_tutorial")


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
        self._intake = Intake(self._cells, self._tables)
        for table in tables:
            for hook in table.hooks:
                hook.check(table.name, self._tables)
        self._lines = {
            (side, name): Line(self._lock, partial(self._may, side, name), patience)
            for name in names
            for side in ("insert", "sample")
        }

    def _may(self, side: str, table: str) -> bool:
        contents = self._tables[table]
        return contents.may_insert() if side == "insert" else contents.may_sample()

    def insert(self, message: Message, timeout: float | None = None) -> list[int]:
        """Store the values of a message, then insert its items, each when its table lets it in.

        After a TimeoutError the items that are in stay in; the same message, sent again, goes on where it
        stopped. A message that is finished is answered as before.

        Args:
            message: The writer's next message, or its last one again.
            timeout: Seconds to wait at most, for all items together; None waits, 0 looks once.

        Returns:
            The keys of all its items, in their order.

        Raises:
            CapacityError: If there are no free cells for its values.
            TimeoutError: If not all items are in when the time is up.
            UnknownWriter: If the server knows no earlier message of the writer, or forgets it meanwhile.
            ValueError: If anything in it does not fit, or the writer's last message is not finished.
        """
        deadline = deadline_of(timeout)
        with self._lock:
            self._check_open()
            window = self._intake.accept(message)
            items, keys = window.items, window.keys
            lines = [self._lines["insert", item[0]] for item in items]

            def check() -> None:
                self._check_open()
                self._intake.check_known(message.writer, window)

            while (place := len(keys)) < len(items):
                try:
                    self._wait("insert", items[place][0], deadline, check, message.writer)
                    with Undisturbed():
                        goes_on = place == len(keys)  # or it was sent twice, and the other call was faster
                        while goes_on:
                            name, cells, lengths, priority = items[len(keys)]
                            keys.append(self._tables[name].insert(cells, lengths, priority, self._tables))
                            goes_on = len(keys) < len(items) and lines[len(keys)].is_free
                finally:
                    self._wake()  # also if nothing has changed: the next one in line waits for its turn
            with Undisturbed():
                window.forget(message.keep_from)
            return list(keys)

    def close_writer(self, writer: int) -> None:
        """Forget a writer, if it is known, and its steps; items stay, but those that wait don't get in."""
        with self._lock, Undisturbed():
            self._intake.close(writer)
            self._look_up(writer)

    def sample(
        self, table: str, batch_size: int, timeout: float | None = None, partial: bool = False
    ) -> Sample:
        """Draw items with replacement, each as if it were alone, as soon as the limiter allows them.

        Args:
            table: The table's name.
            batch_size: How many items; at least 1.
            timeout: Seconds to wait at most; None waits, 0 looks once.
            partial: Whether to return as soon as one or more items may be drawn, with those.

        Returns:
            `batch_size` items. Fewer if `partial` is set, or if the time is up when only some could be
            drawn: the table has counted these. The arrays are the caller's own.

        Raises:
            TimeoutError: If none may be drawn when the time is up.
            ValueError: If batch_size or timeout is out of range.
        """
        check_batch_size(batch_size)
        batch_size = int(batch_size)  # an integer of NumPy would turn the counts into such
        deadline = deadline_of(timeout)
        pieces: list[Sample] = []
        missing = batch_size
        while missing and not (pieces and partial):
            with self._changing(table):
                try:
                    self._wait("sample", table, deadline, self._check_open)
                except TimeoutError:
                    if not pieces:
                        raise
                    break
                if not pieces:
                    self._tables[table].check_size(batch_size)
                with Undisturbed():  # the table is looked up again: perhaps another one was loaded
                    pieces.append(self._tables[table].sample(missing, self._tables))
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
        with self._changing(table) as contents, Undisturbed():
            contents.check_priorities(priorities)
            return contents.mutate(keys, priorities, deleted, self._tables)

    def reset(self, table: str) -> None:
        """Delete all items of a table, and count from 0; keys are not used again.

        Parts that were inferred from the first item are forgotten, unless items wait that have them.
        """
        with self._changing(table) as contents, Undisturbed():
            contents.reset(self._tables, keep_parts=self._intake.has_items_for(table))

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Let another limiter decide from now on, also over those who wait; the counts go on.

        Raises:
            ValueError: If the limiter waits for more items than the table can hold.
        """
        with self._changing(table) as contents:
            check_reachable(limiter, contents.description.max_size)
            contents.limiter = limiter

    def items(self, table: str) -> Sample:
        """Copy all items of a table, each with the probability that it would be drawn with next."""
        with self._lock:
            return table_of(self._tables, table).look()

    def info(self) -> dict[str, TableInfo]:
        """Describe all tables at one moment."""
        with self._lock:
            waits = {place: len(line) for place, line in self._lines.items()}
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
            with Undisturbed():
                self._cells, self._rng, self._tables = loaded
                self._intake = Intake(self._cells, self._tables, self._intake.writers)
                self._look_up()

    def close(self) -> None:
        """End: whoever waits, or calls later, gets the error `Closed`; what waited has not happened."""
        with self._lock:
            self._closed = True
            self._look_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The server was closed. Build another one.")

    @contextmanager
    def _changing(self, table: str) -> Generator[TableState]:
        """Hold the lock while a table is changed, and wake who may go then."""
        with self._lock:
            contents = table_of(self._tables, table)
            self._check_open()
            try:
                yield contents
            finally:
                self._wake()

    def _wait(
        self, side: str, table: str, deadline: float, check: Callable[[], None], writer: int = 0
    ) -> None:
        """Wait for one's turn in a line; the lock is let go meanwhile."""

        def story() -> str:
            return f"{side}({table!r}) waits for {self._tables[table].info().missing(side)}"

        if not self._lines[side, table].wait(deadline, lambda: log.warning("%s", story()), check, writer):
            raise TimeoutError(f"The time is up: {story()}")

    def _wake(self) -> None:
        for line in self._lines.values():
            line.wake()

    def _look_up(self, writer: int | None = None) -> None:
        for line in self._lines.values():
            line.look_up(writer)
