"""A table, as the user describes it.

Left out: its items (`contents`). The server makes the table from the description, which stays as it is.
"""

import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

from replay_tutorial.tables.hooks import Hook
from replay_tutorial.tables.rate_limiters import Queue, RateLimiter, Stack
from replay_tutorial.tables.selection import Selector
from replay_tutorial.tables.selectors import Fifo, Lifo


@dataclass
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
        rate_limiter: Who waits for whom. One that waits for more items than max_size is refused.
        max_times_sampled: An item sampled so often is deleted; 0 for no limit.
        hooks: What is called when an item comes, goes, or changes.
    """

    name: str
    _: KW_ONLY
    sampler: Selector
    remover: Selector
    max_size: int
    rate_limiter: RateLimiter
    max_times_sampled: int = 0
    hooks: Sequence[Hook] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"A table's name is a string, not {self.name!r}.")
        if not self.name:
            raise ValueError("A table's name can't be empty.")
        self.max_size = operator.index(self.max_size)
        if self.max_size < 1:
            raise ValueError(f"max_size must be at least 1, not {self.max_size}.")
        self.max_times_sampled = operator.index(self.max_times_sampled)
        if self.max_times_sampled < 0:
            raise ValueError(
                f"max_times_sampled must be at least 0 (no limit), not {self.max_times_sampled}."
            )
        for selector in (self.sampler, self.remover):
            if Selector not in type(selector).mro():
                raise TypeError(f"A selector is such as Uniform() or Prioritized(0.6), not {selector!r}.")
        check_reachable(self.rate_limiter, self.max_size)
        self.hooks = tuple(self.hooks)

    @classmethod
    def queue(cls, name: str, max_size: int, hooks: Sequence[Hook] = ()) -> Self:
        """Describe a queue: each item is sampled once, the oldest first; a full one lets nothing in.

        An item that is deleted by hand stays counted: it makes no room. So it is in Reverb.
        """
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
        queue = cls.queue(name, max_size, hooks)
        return replace(queue, sampler=Lifo(), remover=Lifo(), rate_limiter=Stack(max_size))


def check_reachable(limiter: RateLimiter, max_size: int) -> None:
    """Refuse what is no limiter, and one that waits for more items than the table can hold."""
    if not isinstance(limiter, RateLimiter):
        raise TypeError(f"A rate limiter is such as MinSize(100), not {limiter!r}.")
    if limiter.min_size > max_size:
        raise ValueError(
            f"The limiter waits for {limiter.min_size} items, but the table holds {max_size} at most: "
            "nothing could ever be sampled. Lower min_size, or raise max_size."
        )
