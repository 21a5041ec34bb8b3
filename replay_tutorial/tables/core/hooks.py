"""Hooks: callbacks for inserts, samples, updates and deletes of items.

Hooks are called during the operation, with the server's lock held. A hook may read all tables and change
other tables. Calls that change its own table, `save` and `load` raise RuntimeError, and a call that would
have to wait raises TimeoutError. Exceptions, also SystemExit, are logged, and the operation continues.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from replay_tutorial.tables.core.cells import CellList
from replay_tutorial.tables.core.message import Layout


class Item(NamedTuple):
    """An item as passed between tables."""

    layout: Layout  # of the item's trajectory
    cells: CellList  # int32[cells]
    priority: float


class HookedTable(Protocol):
    """The operations of a table that hooks may use."""

    def item(self, key: int) -> Item:
        """Return an existing item."""
        ...

    def times_sampled(self, key: int) -> int:
        """Return how often an existing item has been sampled."""
        ...

    def try_insert(self, item: Item) -> int | None:
        """Insert an item if that is possible without waiting, and return its key.

        Returns None if the limiter does not admit the item, or its parts or priority do not fit. Also returns
        None while the table calls its own hooks, because it is then being changed.
        """
        ...


Tables = Mapping[str, HookedTable]


class Hook:
    """Base class of hooks. Override the methods of the events of interest; the others do nothing.

    In all methods, `tables` maps names to the server's tables, and `table` is the name of the table. `key` is
    the key of an item, which is in the table while the method runs.
    """

    def check(self, table: str, tables: Tables) -> None:
        """Called once when the server is created; raise an exception to reject the configuration."""

    def on_insert(self, tables: Tables, table: str, key: int) -> None:
        """Called after an insert, before an item is evicted to make space."""

    def on_sample(self, tables: Tables, table: str, key: int) -> None:
        """Called after a sample was counted, before an item that reached `max_times_sampled` is deleted."""

    def on_update(self, tables: Tables, table: str, key: int) -> None:
        """Called after the priority of an item was updated."""

    def on_delete(self, tables: Tables, table: str, key: int) -> None:
        """Called before an item is deleted."""

    def on_reset(self, tables: Tables, table: str) -> None:
        """Called after a table was reset."""


class InsertOnSample(Hook):
    """Copies an item into another table when it is sampled for the first time; the steps are shared.

    The copy has the same priority and a key of its own. If the target table cannot accept it without waiting,
    no copy is made, so that sampling from one table never waits for another.

    Attributes:
        target: Name of the target table.
        copied: Number of copies made.
        dropped: Number of copies that the target table did not accept.
    """

    def __init__(self, target: str) -> None:
        """Set the name of the target table."""
        self.target = target
        self.copied = self.dropped = 0

    def check(self, table: str, tables: Tables) -> None:
        """Raise ValueError if the target does not exist or is the table itself."""
        if self.target == table or self.target not in tables:
            raise ValueError(
                f"InsertOnSample({self.target!r}) of the table {table!r}: the target must be one of the "
                f"other tables, {[name for name in tables if name != table]}."
            )

    def on_sample(self, tables: Tables, table: str, key: int) -> None:
        """Copy the item if it was sampled for the first time."""
        if tables[table].times_sampled(key) != 1:
            return
        if tables[self.target].try_insert(tables[table].item(key)) is not None:
            self.copied += 1
            return
        self.dropped += 1
        if self.dropped == 1:
            logging.getLogger("replay_tutorial").warning(
                "The table %r did not accept a copy of an item of %r, because its limiter waits for samples, "
                "its items have other parts, or the priority is out of range. Such copies are dropped and "
                "counted in InsertOnSample.dropped.",
                self.target,
                table,
            )
