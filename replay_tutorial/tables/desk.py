"""A server's desk: everything but inserting and sampling: resets, limiters, looks, files, closing.

Whatever changes something here wakes those who wait, because it may be what they wait for.

Left out: who waits (`server`).
"""

import operator
from collections.abc import Callable, Sequence
from os import PathLike
from threading import RLock
from typing import Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import EnvDict, Fields
from replay_tutorial.tables import server_file
from replay_tutorial.tables.cells import Cells
from replay_tutorial.tables.contents import Contents
from replay_tutorial.tables.intake import Intake, table_of
from replay_tutorial.tables.rate_limiters import RateLimiter
from replay_tutorial.tables.sampled import Sample, TableInfo
from replay_tutorial.tables.table import Table, check_reachable
from replay_tutorial.tables.trajectories import Plans
from replay_tutorial.tables.waiting import Closed, Line


class Desk:
    """Named tables, the lock that whoever looks at them holds, and the lines of those who wait.

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
        names = [table.name for table in tables]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"A server has at least one table, and each name once, not {names}.")
        self._tables = {table.name: Contents(table, self._cells, self._plans, self._rng) for table in tables}
        self._intake = Intake(self._cells, self._plans, self._tables)
        for table in tables:
            for hook in table.hooks:
                hook.check(table.name, self._tables)
        self._inserters = {name: self._line(name, Contents.may_insert, patience) for name in names}
        self._samplers = {name: self._line(name, Contents.may_sample, patience) for name in names}
        self._lines = [*self._inserters.values(), *self._samplers.values()]

    def _line(self, name: str, may: Callable[[Contents], bool], patience: float) -> Line:
        # who waits for a closed server may go, and is told
        return Line(self._lock, lambda: self._closed or may(self._tables[name]), patience)

    def close_writer(self, writer: int) -> None:
        """Forget a writer and what it has sent, but for what items name; one that is unknown is ignored.

        Items of its last message that still wait are not inserted; that call raises UnknownWriter.
        """
        with self._lock:
            self._intake.close(writer)
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

    def save(self, path: str | PathLike[str]) -> None:
        """Write all tables, as they are at one moment, to one file; who calls meanwhile waits.

        It holds arrays and text, no pickle. Writers are not in it, nor items that wait to be inserted.

        Args:
            path: The file; no suffix is added. An old one is replaced when the new one is complete.

        Raises:
            OSError: If it can't be written. An old file is left as it was.
        """
        with self._lock:
            server_file.save(path, self.fields, self._state())

    def load(self, path: str | PathLike[str]) -> None:
        """Replace everything by what `save` wrote, bit for bit: the next calls return what they would have.

        Limiters, max_times_sampled, capacity and hooks stay those of this server. Writers must begin anew: of
        those that come from before, the next message raises UnknownWriter. Memory is needed twice meanwhile.

        Args:
            path: A file of a server with the same columns, and with tables of the same names, selectors and
                max_size.

        Raises:
            Closed: If the server is closed.
            OSError: If it can't be read.
            ValueError: If it is damaged, of another server, or holds more steps than this one's capacity.
                Nothing has changed then.
        """
        with self._lock:
            self._check_open()
            self._cells, self._plans, self._rng, self._tables = server_file.load(
                path, self.fields, self._state()
            )
            self._intake = Intake(self._cells, self._plans, self._tables)
            self._wake()

    def _state(self) -> server_file.State:
        return server_file.State(self._cells, self._plans, self._rng, self._tables)

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
