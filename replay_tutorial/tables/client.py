"""The client: what a program calls that has whole trajectories, or wants some.

Left out: trajectories that grow step by step. For those it makes writers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.spaces import flatten
from replay_tutorial.tables.core.message import Message, NewItems, Part, Run
from replay_tutorial.tables.core.reverb_names import ExplainsNames, check_named, explains
from replay_tutorial.tables.core.sampled import Sample
from replay_tutorial.tables.remote.handle import RemoteServer
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.patterns import Pattern, StructuredWriter
from replay_tutorial.tables.writing.writer import TrajectoryWriter


class Client(ExplainsNames):
    """Calls a server; any number of threads may share one.

    Beside the methods below, a client has those of its server: `mutate_priorities`, `reset`,
    `replace_limiter`, `items`, `info`, `save` and `load`. They are explained at `Server`.

    Attributes:
        server: The server.
    """

    instead: ClassVar = {
        "trajectory_writer": "call client.writer(num_keep_alive_refs).",
        "server_info": "call client.info().",
        "checkpoint": "call client.save(path), and client.load(path) later.",
    }

    def __init__(self, server: Server | RemoteServer | str) -> None:
        """Call this server; an address stands for `RemoteServer(address)`."""
        self.server = server = RemoteServer(server) if isinstance(server, str) else server
        self.mutate_priorities = server.mutate_priorities
        self.reset, self.replace_limiter = server.reset, server.replace_limiter
        self.items, self.info = server.items, server.info
        self.save, self.load = server.save, server.load

    @explains(
        num_samples="the number of items is called batch_size.",
        emit_timesteps="`for item in sample` yields items; TimestepDataset yields steps.",
        unpack_as_table_signature="sample.data has each part by its name.",
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
        """Draw items; see `Server.sample`."""
        return self.server.sample(table, batch_size, timeout, partial, should_cancel=should_cancel)

    def insert(
        self, data: Mapping[str, Any], priorities: Mapping[str, float | None], timeout: float | None = None
    ) -> dict[str, int]:
        """Insert one step as an item of one or more tables, which share its values.

        All is as in `insert_batch`, but for a batch of one: of each column and table a value, a priority, a
        key. In a sample a column has no axis of time, as in a buffer.
        """
        check_named(data, self.server.fields.fields)
        columns = [(name, np.asarray(value)[None]) for name, value in flatten(data)]
        given = {table: None if p is None else [p] for table, p in priorities.items()}
        return {table: keys[0] for table, keys in self._insert(columns, given, timeout).items()}

    def insert_batch(
        self,
        data: Mapping[str, Any],
        priorities: Mapping[str, npt.ArrayLike | None],
        timeout: float | None = None,
    ) -> dict[str, list[int]]:
        """Insert n steps as n items of one or more tables, which share their values, in one message.

        Args:
            data: Of each column n values along axis 0; nested names are joined by "/". Columns may be left
                out.
            priorities: Of each table n priorities; None stands for the highest seen.
            timeout: Seconds to wait at most, for all together; None waits, 0 looks once.

        Returns:
            The items' keys in each table.

        Raises:
            TimeoutError: If the tables did not let them in in time. Those that are in stay in: tables are
                filled in the order given.
            Exception: A KeyError if a name is not there, a TypeError if a value is not numeric, a ValueError
                if one does not fit; and what `Server.insert` raises. Nothing has changed then.
        """
        check_named(data, self.server.fields.fields)
        return self._insert(list(flatten(data)), priorities, timeout)

    def _insert(
        self,
        columns: Sequence[tuple[str, Any]],
        priorities: Mapping[str, npt.ArrayLike | None],
        timeout: float | None,
    ) -> dict[str, list[int]]:
        runs = self._runs(columns)
        count = len(runs[0].values)
        layout = tuple(Part(run.column, run.column, 1, squeezed=True) for run in runs)
        steps = np.repeat(np.arange(count)[:, None], len(runs), axis=1)
        items = [
            NewItems(table, None if given is None else np.asarray(given), layout, steps)
            for table, given in priorities.items()
        ]
        if not items:
            raise ValueError("priorities names no table; name one, such as {'replay': 1.0}.")
        writer: Any = self.server.open_writer()
        try:
            keys = self.server.insert(writer, Message(runs, items, count), timeout)
        finally:
            self.server.close_writer(writer)
        return {new.table: keys[i * count : (i + 1) * count] for i, new in enumerate(items)}

    def _runs(self, columns: Sequence[tuple[str, Any]]) -> list[Run]:
        """Check n values of each column given."""
        runs: list[Run] = []
        fields = self.server.fields.fields
        for name, value in columns:
            if name not in fields:
                raise KeyError(f"There is no column {name!r}; there are {list(fields)}.")
            runs.append(Run(name, 0, fields[name].to_array(value)))
        if len({run.column for run in runs}) < len(runs):
            raise KeyError("A column is given twice, nested and by its name.")
        lengths = {len(run.values) for run in runs}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(
                f"All columns must hold equally many values, at least one, not {sorted(lengths)}."
            )
        return runs

    @explains(
        max_sequence_length="pass num_keep_alive_refs, the number of newest steps that items may name.",
        chunk_length="steps are stored one by one; leave it out.",
        delta_encoded="values are stored as they are; leave it out.",
    )
    def writer(self, num_keep_alive_refs: int, max_in_flight_items: int = 0) -> TrajectoryWriter:
        """Make a writer for the steps of one environment; see `TrajectoryWriter`."""
        return TrajectoryWriter(self.server, num_keep_alive_refs, max_in_flight_items)

    def structured_writer(
        self, patterns: Sequence[Pattern], max_in_flight_items: int = 0
    ) -> StructuredWriter:
        """Make a writer that makes its items by patterns; see `StructuredWriter`."""
        return StructuredWriter(self.server, patterns, max_in_flight_items)
