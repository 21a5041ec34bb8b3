"""A table, as the user describes it.

Left out: its items (`table_state`). The server makes the table from the description, which stays as it is.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self, cast

import numpy as np

from replay_tutorial.buffers.rows import checked_integer
from replay_tutorial.tables.core.hooks import Hook
from replay_tutorial.tables.core.message import Layout
from replay_tutorial.tables.core.rate_limiters import Queue, RateLimiter, Stack
from replay_tutorial.tables.core.selectors import Fifo, Lifo, Selector

Length = int | Literal["one", "any"]
Signature = Mapping[str, Length | tuple[str, Length]]
Parts = dict[str, tuple[str, Length]]  # of each part of a trajectory its column and length, in their order


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
        signature: The parts of every item's trajectory, in their order, and of each how many values it has:
            4; "one" for a value without an axis of time; "any" for one or more. `("obs", 4)` names a column
            that is not called as the part. None takes the parts of the first item, whatever they are, and
            any lengths; `reset` forgets them.
        parts: Of each part that the signature declares the column and the length; empty without a signature.

    Example:
        >>> queue = Table.queue("pairs", 100, signature={"rew": "one", "pair": ("obs", 2)})
        >>> queue.parts
        {'rew': ('rew', 'one'), 'pair': ('obs', 2)}
    """

    name: str
    _: KW_ONLY
    sampler: Selector
    remover: Selector
    max_size: int
    rate_limiter: RateLimiter
    max_times_sampled: int = 0
    hooks: Sequence[Hook] = ()
    signature: Signature | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"A table's name is a string, not {self.name!r}.")
        if not self.name:
            raise ValueError("A table's name can't be empty.")
        self.max_size = checked_integer("max_size", self.max_size)
        if self.max_size < 1:
            raise ValueError(f"max_size must be at least 1, not {self.max_size}.")
        self.max_times_sampled = checked_integer("max_times_sampled", self.max_times_sampled)
        if self.max_times_sampled < 0:
            raise ValueError(
                f"max_times_sampled must be at least 0 (no limit), not {self.max_times_sampled}."
            )
        for selector in (self.sampler, self.remover):
            if Selector not in type(selector).mro():
                raise TypeError(f"A selector is such as Uniform() or Prioritized(0.6), not {selector!r}.")
        check_reachable(self.rate_limiter, self.max_size)
        self.hooks = tuple(self.hooks)
        self.parts = parts_of(self.signature)

    @property
    def cells_of_an_item(self) -> int:
        """How many cells of one column an item names, at most; 1 for each length that is not declared."""
        cells = dict.fromkeys((column for column, _ in self.parts.values()), 0)
        for column, length in self.parts.values():
            cells[column] += length if isinstance(length, int) else 1
        return max(cells.values(), default=1)

    @classmethod
    def queue(
        cls, name: str, max_size: int, hooks: Sequence[Hook] = (), signature: Signature | None = None
    ) -> Self:
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
            signature=signature,
        )

    @classmethod
    def stack(
        cls, name: str, max_size: int, hooks: Sequence[Hook] = (), signature: Signature | None = None
    ) -> Self:
        """Describe a stack: each item is sampled once, the newest first; a full one lets nothing in."""
        queue = cls.queue(name, max_size, hooks, signature)
        return replace(queue, sampler=Lifo(), remover=Lifo(), rate_limiter=Stack(max_size))


def parts_of(signature: Any) -> Parts:
    """Read a signature; None has no parts.

    Raises:
        TypeError: If it is not a dict, or a column is not named by a string.
        ValueError: If it has no parts, or a length is none.
    """
    if signature is None:
        return {}
    if not isinstance(signature, Mapping):
        raise TypeError(f"A signature is a dict, such as {{'obs': 4, 'rew': 'one'}}, not {signature!r:.60}.")
    parts: Parts = {}
    for name, value in cast("Mapping[str, Any]", signature).items():
        match value:
            case [str(column), length]:
                pass
            case _:
                column, length = name, value
        if isinstance(length, (int, np.integer)) and length >= 1 and not isinstance(length, bool):
            parts[name] = column, operator.index(cast(int, length))
        elif isinstance(length, str) and length in ("one", "any"):
            parts[name] = column, length
        else:
            raise ValueError(
                f"The signature gives the part {name!r} the length {length!r:.60}; a length is at least 1, "
                "or 'one' without an axis of time, or 'any'. ('obs', 4) names a column and a length."
            )
    if not parts:
        raise ValueError("A signature has at least one part.")
    return parts


def inferred_parts(layout: Layout) -> Parts:
    """Return the parts that a table has whose first item is laid out so: any lengths will do."""
    return {part.name: (part.column, "one" if part.squeezed else "any") for part in layout}


def fits(layout: Layout, parts: Parts) -> bool:
    """Return whether a trajectory has these parts, in this order, and lengths that they allow."""
    return len(layout) == len(parts) and all(
        (part.name, part.column) == (name, column)
        and part.squeezed == (length == "one")
        and length in ("one", "any", part.length)
        for part, (name, (column, length)) in zip(layout, parts.items(), strict=True)
    )


def check_reachable(limiter: RateLimiter, max_size: int) -> None:
    """Refuse what is no limiter, and one that waits for more items than the table can hold."""
    if not isinstance(limiter, RateLimiter):
        raise TypeError(f"A rate limiter is such as MinSize(100), not {limiter!r}.")
    if limiter.min_size > max_size:
        raise ValueError(
            f"The limiter waits for {limiter.min_size} items, but the table holds {max_size} at most: "
            "nothing could ever be sampled. Lower min_size, or raise max_size."
        )
