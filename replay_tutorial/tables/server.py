"""The server: named tables over one store of cells; who waits for whom.

One lock is held by whoever looks at, or changes, anything. So a step of one call never meets half a step of
another, and a file holds one moment of all tables. A call that the limiter of its table stops stands in that
table's line, without the lock, until another call has changed the counts:

    insert  ─▶ line of inserts  ─▶ in    wakes the first in the line of samples, if it may go now
    sample  ─▶ line of samples  ─▶ out   wakes the first in the line of inserts, if it may go now

Deleting, resetting, another limiter and `close` wake them, too.

Left out: everything that one table does by itself (`contents`).
"""

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import EnvDict, Fields
from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.tables.cells import Cells
from replay_tutorial.tables.contents import Contents
from replay_tutorial.tables.intake import Intake, as_floats, as_keys, table_of
from replay_tutorial.tables.message import Message
from replay_tutorial.tables.rate_limiters import RateLimiter
from replay_tutorial.tables.sampled import Sample, TableInfo
from replay_tutorial.tables.table import Table, check_reachable
from replay_tutorial.tables.trajectories import Plans
from replay_tutorial.tables.waiting import Closed, Line, deadline_of

log = logging.getLogger("replay_tutorial")


class Server:
    """Named tables in this process, for threads.

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

    def __init__(
        self,
        tables: Sequence[Table],
        env_dict: EnvDict,
        capacity: int,
        *,
        default_dtype: npt.DTypeLike = np.float32,
        seed: int | None = None,
        patience: float = 60.0,
    ) -> None:
        """Make empty tables.

        Args:
            tables: Their descriptions; no name twice.
            env_dict: The columns, as of a buffer; a step may leave some out.
            capacity: How many cells each column has: how many steps can be stored at once. Memory is
                reserved for all, and used when they are first written.
            default_dtype: The dtype of columns that name none.
            seed: Of the generator that draws.
            patience: Seconds that a call waits before it logs a warning that says for what.

        Raises:
            TypeError: If an argument is of a wrong type.
            ValueError: If a table's name comes twice, or an argument is out of range.
        """
        self.fields = Fields(env_dict, default_dtype)
        self._cells = Cells(self.fields, operator.index(capacity))
        self._plans = Plans(self._cells)
        self._rng = np.random.default_rng(seed)
        self._lock = RLock()
        self._closed = False
        self._patience = float(patience)
        names = [table.name for table in tables]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"A server has at least one table, and each name once, not {names}.")
        self._tables = {table.name: Contents(table, self._cells, self._plans, self._rng) for table in tables}
        self._intake = Intake(self._cells, self._plans, self._tables)
        for table in tables:
            for hook in table.hooks:
                hook.check(table.name, self._tables)
        self._inserters = {name: self._line(name, Contents.may_insert) for name in names}
        self._samplers = {name: self._line(name, Contents.may_sample) for name in names}
        self._lines = [*self._inserters.values(), *self._samplers.values()]

    def _line(self, name: str, may: Callable[[Contents], bool]) -> Line:
        # who waits for a closed server may go, and is told
        return Line(self._lock, lambda: self._closed or may(self._tables[name]), self._patience)

    def insert(self, message: Message, timeout: float | None = None) -> list[int]:
        """Store the values of a message, then insert its items, each when its table lets it in.

        Everything is checked before anything changes. After a TimeoutError the items that are in stay in; the
        same message, sent again, goes on where it stopped. A message that is finished is answered as before.

        Args:
            message: The writer's next message, or its last one again.
            timeout: Seconds to wait at most, for all items together; None waits, 0 looks once.

        Returns:
            The keys of all its items, in their order.

        Raises:
            CapacityError: If there are no free cells for its values.
            Closed: If the server is closed, before or meanwhile.
            KeyError: If there is no such table or column.
            TimeoutError: If not all items are in when the time is up.
            UnknownWriter: If it is not the writer's first message, and the server does not know the writer.
            ValueError: If anything in it does not fit, or the writer's last message is not finished.
        """
        deadline = deadline_of(timeout)
        with self._lock:
            self._check_open()
            window = self._intake.accept(message)
            try:
                while window.pending:
                    name, item = window.pending[0]
                    self._wait(self._inserters[name], "insert", name, deadline)
                    self._intake.check_known(message.writer, window)
                    # the same message may have been sent twice, and the other call been faster
                    if window.pending and window.pending[0][1] is item:
                        window.pending.popleft()
                        window.keys.append(self._tables[name].insert(item, self._tables))
                    self._wake()  # also if it was: the next one in line waits for its turn
            finally:
                self._wake()
            window.forget(message.keep_from)
            return list(window.keys)

    def close_writer(self, writer: int) -> None:
        """Forget a writer and what it has sent, but for what items name; one that is unknown is ignored.

        Items of its last message that still wait are not inserted; that call raises UnknownWriter.
        """
        with self._lock:
            self._intake.close(writer)
            self._wake()

    def sample(self, table: str, batch_size: int, timeout: float | None = None) -> Sample:
        """Draw items, with replacement, each as if it were drawn alone.

        Waits until one may be drawn, and then draws as many as may be at that moment.

        Args:
            table: The table's name.
            batch_size: How many at most; at least 1.
            timeout: Seconds to wait at most; None waits, 0 looks once.

        Returns:
            1 to batch_size items; the arrays are the caller's own.

        Raises:
            Closed: If the server is closed, before or meanwhile.
            KeyError: If there is no such table.
            TimeoutError: If none may be drawn when the time is up.
            ValueError: If batch_size or timeout is out of range.
        """
        check_batch_size(batch_size)
        deadline = deadline_of(timeout)
        with self._lock:
            table_of(self._tables, table)
            self._check_open()
            try:
                self._wait(self._samplers[table], "sample", table, deadline)
                return self._tables[table].sample(batch_size, self._tables)
            finally:
                self._wake()

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
            Closed: If the server is closed.
            KeyError: If there is no such table.
            TypeError: If keys are no integers, or priorities no real numbers.
            ValueError: If a priority is out of range. Nothing has changed then.
        """
        pairs = (list(updates), list(updates.values())) if isinstance(updates, Mapping) else updates
        keys, deleted = as_keys(pairs[0]), as_keys(deletes)
        priorities = as_floats(pairs[1], len(keys))
        with self._lock:
            contents = table_of(self._tables, table)
            self._check_open()
            contents.check_priorities(priorities)
            try:
                return contents.mutate(keys, priorities, deleted, self._tables)
            finally:
                self._wake()

    def reset(self, table: str) -> None:
        """Delete all items of a table, and count from 0 again; keys are not used again.

        Items that wait to be inserted go in afterwards.

        Raises:
            Closed: If the server is closed.
            KeyError: If there is no such table.
        """
        with self._lock:
            contents = table_of(self._tables, table)
            self._check_open()
            contents.reset(self._tables)
            self._wake()

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Let another limiter decide from now on, also over those who wait; the counts go on.

        Raises:
            Closed: If the server is closed.
            KeyError: If there is no such table.
            ValueError: If the limiter waits for more items than the table can hold.
        """
        with self._lock:
            contents = table_of(self._tables, table)
            self._check_open()
            check_reachable(limiter, contents.description.max_size)
            contents.limiter = limiter
            self._wake()

    def items(self, table: str) -> Sample:
        """Copy all items of a table; nothing is counted as sampled.

        Returns:
            Every item once, with the probability that it would be drawn with next.

        Raises:
            KeyError: If there is no such table.
        """
        with self._lock:
            return table_of(self._tables, table).look()

    def info(self) -> dict[str, TableInfo]:
        """Describe all tables at one moment."""
        with self._lock:
            return {
                name: contents.info()._replace(
                    waiting_inserts=len(self._inserters[name]), waiting_samples=len(self._samplers[name])
                )
                for name, contents in self._tables.items()
            }

    def close(self) -> None:
        """End: whoever waits, or calls later, gets the error `Closed`; `info`, `items` and `save` still work.

        An insert that is still waiting has not happened.
        """
        with self._lock:
            self._closed = True
            self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The server was closed. Build another one.")

    def _wake(self) -> None:
        for line in self._lines:
            line.wake()

    def _wait(self, line: Line, side: str, table: str, deadline: float | None) -> None:
        """Wait for one's turn in a line; the lock is let go meanwhile."""

        def story() -> str:
            return f"{side}({table!r}) waits for {self._tables[table].info().missing(side)}"

        if not line.wait(deadline, lambda: log.warning("%s", story())):
            raise TimeoutError(f"The time is up: {story()}")
        self._check_open()
