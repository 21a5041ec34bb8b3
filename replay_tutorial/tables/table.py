"""A table, as the user describes it.

Left out: its items (`contents`). A description is a value: the server makes the table from it.
"""

import operator
from collections.abc import Sequence
from typing import Self

from replay_tutorial.tables.hooks import Hook
from replay_tutorial.tables.rate_limiters import Queue, RateLimiter, Stack
from replay_tutorial.tables.selection import Selector
from replay_tutorial.tables.selectors import Fifo, Lifo


class Table:
    """Which items are sampled, which make room for others, and when.

    Example:
        >>> from replay_tutorial.tables import MinSize, Prioritized, Fifo, Table
        >>> table = Table("replay", sampler=Prioritized(0.6), remover=Fifo(), max_size=1000,
        ...               rate_limiter=MinSize(100))

    Attributes:
        name: How it is called.
        sampler: How items are drawn.
        remover: How items are evicted, one for each that is inserted into a full table.
        max_size: Items that it can hold.
        rate_limiter: Who waits for whom.
        max_times_sampled: An item sampled so often is deleted; 0 for no limit.
        hooks: What is called when an item comes, goes, or changes.
    """

    def __init__(
        self,
        name: str,
        *,
        sampler: Selector,
        remover: Selector,
        max_size: int,
        rate_limiter: RateLimiter,
        max_times_sampled: int = 0,
        hooks: Sequence[Hook] = (),
    ) -> None:
        """Describe a table.

        Raises:
            TypeError: If an argument is of a wrong type.
            ValueError: If one is out of range, or the table can never hold as many items as its limiter asks
                for.
        """
        if not isinstance(name, str):
            raise TypeError(f"A table's name is a string, not {name!r}.")
        if not name:
            raise ValueError("A table's name can't be empty.")
        if operator.index(max_size) < 1:
            raise ValueError(f"max_size must be at least 1, not {max_size}.")
        if operator.index(max_times_sampled) < 0:
            raise ValueError(f"max_times_sampled must be at least 0 (no limit), not {max_times_sampled}.")
        for selector in (sampler, remover):
            if Selector not in type(selector).mro():
                raise TypeError(f"A selector is such as Uniform() or Prioritized(0.6), not {selector!r}.")
        check_reachable(rate_limiter, max_size)
        self.name = name
        self.sampler = sampler
        self.remover = remover
        self.max_size = int(max_size)
        self.rate_limiter = rate_limiter
        self.max_times_sampled = int(max_times_sampled)
        self.hooks = tuple(hooks)

    def __repr__(self) -> str:
        return f"<Table {self.name!r}: {self.sampler}, {self.remover}, {self.rate_limiter}>"

    @classmethod
    def queue(cls, name: str, max_size: int, hooks: Sequence[Hook] = ()) -> Self:
        """Describe a queue: each item is sampled once, the oldest first; a full one lets nothing in."""
        return cls(
            name,
            sampler=Fifo(),
            remover=Fifo(),
            max_size=max_size,
            rate_limiter=Queue(max_size),
            max_times_sampled=1,
            hooks=hooks,
        )

    @classmethod
    def stack(cls, name: str, max_size: int, hooks: Sequence[Hook] = ()) -> Self:
        """Describe a stack: each item is sampled once, the newest first; a full one lets nothing in."""
        return cls(
            name,
            sampler=Lifo(),
            remover=Lifo(),
            max_size=max_size,
            rate_limiter=Stack(max_size),
            max_times_sampled=1,
            hooks=hooks,
        )


def check_reachable(limiter: RateLimiter, max_size: int) -> None:
    """Refuse a limiter that would let nobody ever sample.

    Raises:
        TypeError: If it is none.
        ValueError: If it asks for more items than the table can hold.
    """
    if not isinstance(limiter, RateLimiter):
        raise TypeError(f"A rate limiter is such as MinSize(100), not {limiter!r}.")
    if limiter.min_size > max_size:
        raise ValueError(
            f"The limiter waits for {limiter.min_size} items, but the table holds {max_size} at most: "
            "nothing could ever be sampled. Lower min_size, or raise max_size."
        )
