"""The server: named tables over one store of cells; who waits for whom.

One lock is held by whoever looks at, or changes, anything. So a step of one call never meets half a step of
another, and a file holds one moment of all tables. A call that the limiter of its table stops stands in that
table's line, without the lock, until another call has changed the counts:

    insert  ─▶ line of inserts  ─▶ in    wakes the first in the line of samples, if it may go now
    sample  ─▶ line of samples  ─▶ out   wakes the first in the line of inserts, if it may go now

Deleting, resetting, another limiter and `close` wake them, too.

Left out: everything that one table does by itself (`contents`), and what never waits (`desk`).
"""

import logging
from collections.abc import Mapping
from typing import Any

from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.tables.desk import Desk
from replay_tutorial.tables.intake import as_floats, as_keys, table_of
from replay_tutorial.tables.message import Message
from replay_tutorial.tables.sampled import Sample
from replay_tutorial.tables.waiting import Line, deadline_of

log = logging.getLogger("replay_tutorial")


class Server(Desk):
    """Named tables in this process, for threads.

    Example:
        >>> from replay_tutorial.tables import Client, Fifo, MinSize, Server, Table, Uniform
        >>> table = Table("replay", sampler=Uniform(), remover=Fifo(), max_size=100, rate_limiter=MinSize(1))
        >>> client = Client(Server([table], {"obs": {"shape": 2}, "rew": {"shape": ()}}, capacity=1000))
        >>> _ = client.insert({"obs": [1.0, 2.0], "rew": 0.5}, {"replay": 1.0})
        >>> client.sample("replay", 2).data["obs"].tolist()
        [[1.0, 2.0], [1.0, 2.0]]
    """

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
            items, keys = window.items, window.keys
            while len(keys) < len(items):
                place = len(keys)
                name, item = items[place]
                self._wait(self._inserters[name], "insert", name, deadline)
                try:
                    self._check_open()
                    self._intake.check_known(message.writer, window)
                    # the same message may have been sent twice, and the other call been faster
                    if len(keys) == place:
                        # in one line: an item that is in has its key, also after Ctrl-C
                        keys.append(self._tables[name].insert(item, self._tables))
                finally:
                    self._wake()  # also if nothing has changed: the next one in line waits for its turn
            window.forget(message.keep_from)
            return list(keys)

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
        batch_size = int(batch_size)  # of NumPy's kind, the counts would become so, too
        deadline = deadline_of(timeout)
        with self._lock:
            table_of(self._tables, table)
            self._check_open()
            self._wait(self._samplers[table], "sample", table, deadline)
            try:
                self._check_open()
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

    def _wait(self, line: Line, side: str, table: str, deadline: float | None) -> None:
        """Wait for one's turn in a line; the lock is let go meanwhile."""

        def story() -> str:
            return f"{side}({table!r}) waits for {self._tables[table].info().missing(side)}"

        if not line.wait(deadline, lambda: log.warning("%s", story())):
            raise TimeoutError(f"The time is up: {story()}")
