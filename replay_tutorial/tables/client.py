"""The client, which inserts and samples items and creates writers."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.cast import as_array
from replay_tutorial.tables.core.arguments import (
    ByColumn,
    ReverbName,
    as_priorities,
    explain_reverb_arguments,
    flat_columns,
)
from replay_tutorial.tables.core.message import ColumnSlice, Message, NewItems, Part
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.results import Sample, TableInfo
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.patterns import Pattern, StructuredWriter
from replay_tutorial.tables.writing.writer import TrajectoryWriter

if TYPE_CHECKING:
    from replay_tutorial.tables.remote.handle import RemoteServer


class Client:
    """Inserts items into the tables of a server and samples them; thread-safe.

    Attributes:
        server: The server.
    """

    trajectory_writer = ReverbName("use client.writer(num_keep_alive_refs).")
    server_info = ReverbName("use client.info().")
    checkpoint = ReverbName("use client.save(path) and client.load(path).")

    def __init__(self, server: "Server | RemoteServer | str") -> None:
        """Create a client of a server; an address is shorthand for `RemoteServer(address)`."""
        if isinstance(server, str):
            from replay_tutorial.tables import RemoteServer

            server = RemoteServer(server)
        self.server = server

    @explain_reverb_arguments(
        num_samples="use batch_size.",
        emit_timesteps="iterate over the sample for items, or use TimestepDataset for steps.",
        unpack_as_table_signature="omit it; sample.data maps the name of each part to its values.",
    )
    def sample(
        self,
        table: str,
        batch_size: int,
        timeout: float | None = None,
        partial: bool = False,
        *,
        should_cancel: Callable[[], bool] | None = None,
    ) -> Sample:
        """Sample items; see `Server.sample`."""
        return self.server.sample(table, batch_size, timeout, partial, should_cancel=should_cancel)

    def insert(
        self, data: Mapping[str, Any], priorities: Mapping[str, float | None], timeout: float | None = None
    ) -> dict[str, int]:
        """Insert one step as an item of one or more tables; the tables share the stored values.

        The arguments are those of `insert_batch` for a single step: one value per column, one priority per
        table. Samples of such an item have no time axis, as in a buffer.

        Returns:
            The item's key in each table.
        """
        flat = flat_columns(data, self.server.fields.fields)
        columns = {name: as_array(name, value)[None] for name, value in flat.items()}
        given = {table: None if p is None else [p] for table, p in priorities.items()}
        return {table: keys[0] for table, keys in self._insert(columns, given, timeout).items()}

    def insert_batch(
        self,
        data: Mapping[str, Any],
        priorities: Mapping[str, npt.ArrayLike | None],
        timeout: float | None = None,
    ) -> dict[str, list[int]]:
        """Insert n steps as n items of one or more tables in one message; the tables share the stored values.

        Args:
            data: n values per column along axis 0. Nested names are joined by "/", and columns may be
                omitted.
            priorities: n priorities per table; None stands for the table's highest priority so far.
            timeout: Seconds to wait for all items together. None waits indefinitely, 0 does not wait.

        Returns:
            The items' keys in each table.

        Raises:
            CapacityError: If there are too few free cells; nothing has been inserted.
            KeyError: If a column or table does not exist; nothing has been inserted.
            TimeoutError: If some items were not inserted in time. The others stay; tables are filled in the
                order of `priorities`.
            TypeError: If a value is not numeric; nothing has been inserted.
            ValueError: If a value has the wrong shape or does not fit its dtype; nothing has been inserted.
            Exception: Other errors of `TrajectoryWriter.create_item`.
        """
        return self._insert(flat_columns(data, self.server.fields.fields), priorities, timeout)

    def _insert(
        self,
        columns: Mapping[str, Any],
        priorities: Mapping[str, npt.ArrayLike | None],
        timeout: float | None,
    ) -> dict[str, list[int]]:
        fields = ByColumn(self.server.fields.fields)
        slices = [ColumnSlice(name, 0, fields[name].to_array(value)) for name, value in columns.items()]
        counts = {len(column_slice.values) for column_slice in slices}
        if len(counts) != 1 or 0 in counts:
            raise ValueError(
                f"All columns must have the same number of values, at least one; they have {sorted(counts)}."
            )
        (count,) = counts
        layout = tuple(Part(name, name, 1, squeezed=True) for name in columns)
        steps = np.repeat(np.arange(count)[:, None], len(slices), axis=1)
        items = [
            NewItems(table, None if given is None else as_priorities(given, count), layout, steps)
            for table, given in priorities.items()
        ]
        if not items:
            raise ValueError("priorities must contain at least one table, such as {'replay': 1.0}.")
        writer: Any = self.server._open_writer()
        try:
            keys = self.server._insert(writer, Message(slices, items, count), timeout)
        finally:
            self.server._close_writer(writer)
        return {new.table: keys[i * count : (i + 1) * count] for i, new in enumerate(items)}

    @explain_reverb_arguments(
        max_sequence_length="use num_keep_alive_refs, the number of newest steps that items can reference.",
        chunk_length="omit it; steps are stored one by one.",
        delta_encoded="omit it; values are stored without compression.",
        max_in_flight_items="use items_per_message, the number of items that are sent together.",
    )
    def writer(self, num_keep_alive_refs: int, items_per_message: int = 1) -> TrajectoryWriter:
        """Create a writer for the steps of one environment; see `TrajectoryWriter`."""
        return TrajectoryWriter(self.server, num_keep_alive_refs, items_per_message)

    def structured_writer(self, patterns: Sequence[Pattern], items_per_message: int = 1) -> StructuredWriter:
        """Create a writer that builds its items from patterns; see `StructuredWriter`."""
        return StructuredWriter(self.server, patterns, items_per_message)

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then update priorities; see `Server.mutate_priorities`."""
        return self.server.mutate_priorities(table, updates, deletes)

    def reset(self, table: str) -> None:
        """Delete all items of a table; see `Server.reset`."""
        self.server.reset(table)

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Replace the rate limiter of a table; see `Server.replace_limiter`."""
        self.server.replace_limiter(table, limiter)

    def items(self, table: str) -> Sample:
        """Return a copy of all items of a table; see `Server.items`."""
        return self.server.items(table)

    def info(self) -> dict[str, TableInfo]:
        """Return a snapshot of the state of every table; see `Server.info`."""
        return self.server.info()

    def save(self, path: str | PathLike[str]) -> None:
        """Save all tables to a file; see `Server.save`."""
        self.server.save(path)

    def load(self, path: str | PathLike[str]) -> None:
        """Replace the content of all tables with that of a saved file; see `Server.load`."""
        self.server.load(path)
