"""Hooks: what is called when an item comes, goes, is sampled, or changes.

They are called in the middle of the operation, while nobody else can change anything. So a hook sees a table
as it is at that moment, and may insert into other tables, but must not wait. What it raises is logged, and
the operation goes on.

Left out: a thread of their own.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from replay_tutorial.tables.core.cells import CellList
from replay_tutorial.tables.core.message import Layout


class Item(NamedTuple):
    """An item, as a hook sees it.

    Attributes:
        layout: How its trajectory is laid out.
        cells: int32[cells].
        priority: Its priority.
    """

    layout: Layout
    cells: CellList
    priority: float


class HookedTable(Protocol):
    """What a hook may do with a table."""

    def item(self, key: int) -> Item:
        """Return an item that is in the table."""
        ...

    def times_sampled(self, key: int) -> int:
        """Return how often an item that is in the table has been sampled."""
        ...

    def try_insert(self, item: Item, tables: "Tables") -> int | None:
        """Insert an item, unless the table's limiter would wait, its items have other parts, or a hook of its
        own is being called: it is in the middle of a change then.

        Returns:
            Its key; None if it was not inserted.
        """
        ...


Tables = Mapping[str, HookedTable]


class Hook:
    """Does nothing; a subclass overrides what it wants to hear of.

    In all methods `tables` are the server's, `table` is the name of the one that it happens in, and `key` is
    that of the item, which is in the table at that moment.
    """

    def check(self, table: str, tables: Tables) -> None:
        """Refuse to hang on a table, by raising; called once, when the server is built."""

    def on_insert(self, tables: Tables, table: str, key: int) -> None:
        """An item was inserted; nothing has been evicted for it yet."""

    def on_sample(self, tables: Tables, table: str, key: int) -> None:
        """An item was sampled, and that was counted; if it was the last time, it is deleted next."""

    def on_update(self, tables: Tables, table: str, key: int) -> None:
        """An item has a new priority."""

    def on_delete(self, tables: Tables, table: str, key: int) -> None:
        """An item is deleted next."""

    def on_reset(self, tables: Tables, table: str) -> None:
        """All items were deleted."""


class InsertOnSample(Hook):
    """Copies an item into another table when it is sampled for the first time; the steps are shared.

    The copy has the same priority and a key of its own. If the other table's limiter would have to wait, no
    copy is made: whoever samples must not wait for another table.

    Attributes:
        target: The other table's name.
        copied: How many copies were made.
        dropped: How many were not.
    """

    def __init__(self, target: str) -> None:
        """Copy into the table of this name."""
        self.target = target
        self.copied = self.dropped = 0

    def check(self, table: str, tables: Tables) -> None:
        """Refuse a target that is not there, or that is the table itself."""
        if self.target == table or self.target not in tables:
            raise ValueError(
                f"InsertOnSample({self.target!r}) on the table {table!r}: the target must be another one of "
                f"{list(tables)}."
            )

    def on_sample(self, tables: Tables, table: str, key: int) -> None:
        """Copy the item if this is its first time."""
        if tables[table].times_sampled(key) != 1:
            return
        if tables[self.target].try_insert(tables[table].item(key), tables) is not None:
            self.copied += 1
            return
        self.dropped += 1
        if self.dropped == 1:
            logging.getLogger("replay_tutorial").warning(
                "The table %r took no copy of an item of %r: its limiter waits for samples, its items "
                "have other parts, or its selectors don't take the priority. Such copies are dropped; see "
                "InsertOnSample.dropped.",
                self.target,
                table,
            )
