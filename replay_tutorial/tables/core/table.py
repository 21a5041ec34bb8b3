"""The configuration of a table, from which a server creates the table.

A configuration holds no items, so several servers can use the same one; they then share its hooks.
`table_state` contains the state of a table.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, Self, cast

import numpy as np

from replay_tutorial.buffers.rows import checked_at_least
from replay_tutorial.tables.core.arguments import check_names
from replay_tutorial.tables.core.hooks import Hook
from replay_tutorial.tables.core.message import Layout, Part
from replay_tutorial.tables.core.rate_limiters import Queue, RateLimiter, Stack
from replay_tutorial.tables.core.selectors import Fifo, Lifo, Selector

Length = int | Literal["one", "any"]
Signature = Mapping[str, Length | tuple[str, Length]]
PartTypes = dict[str, tuple[str, Length]]  # name of each part → its column and length; ordered


@dataclass(frozen=True)
class Table:
    """Configuration of a table: its selectors, size, rate limiter and signature. It can't be changed.

    Example:
        >>> from replay_tutorial.tables import MinSize, Prioritized, Fifo, Table
        >>> table = Table("replay", sampler=Prioritized(0.6), remover=Fifo(), max_size=1000,
        ...               rate_limiter=MinSize(100))

    Attributes:
        name: Name of the table.
        sampler: Selects the items to sample.
        remover: Selects the item to evict when an item is inserted into a full table.
        max_size: Maximum number of items.
        rate_limiter: Decides when inserts and samples have to wait. Its `min_size` must not exceed
            `max_size`.
        max_times_sampled: An item is deleted after it has been sampled this many times; 0 for no limit.
        hooks: Callbacks for inserts, samples, updates and deletes.
        signature: The parts of every item's trajectory, in order, and their lengths. A length is 4 for four
            values, "one" for one value without a time axis, or "any" for at least one value. A part that is
            not named after its column is declared as `(column, length)`, such as `("obs", 4)`. With None, the
            first item determines the parts until `reset`, and lengths are not restricted.
        parts: Column and length of each part in the signature; empty without a signature.

    Example:
        >>> queue = Table.queue("pairs", 100, signature={"reward": "one", "pair": ("obs", 2)})
        >>> queue.parts
        {'reward': ('reward', 'one'), 'pair': ('obs', 2)}
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
    parts: PartTypes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_names([self.name])
        if not self.name:
            raise ValueError("A table's name can't be empty.")
        max_size = checked_at_least("max_size", self.max_size, 1)
        max_times_sampled = checked_at_least("max_times_sampled", self.max_times_sampled, 0)
        for selector in (self.sampler, self.remover):
            if not isinstance(selector, Selector):
                raise TypeError(
                    f"A selector must be, for example, Uniform() or Prioritized(0.6), not {selector!r}."
                )
        check_reachable(self.rate_limiter, max_size)
        parts = parts_of(self.signature)
        checked = {"max_size": max_size, "max_times_sampled": max_times_sampled, "parts": parts}
        for name, value in (checked | {"hooks": tuple(self.hooks)}).items():
            object.__setattr__(self, name, value)

    @property
    def most_cells_per_column(self) -> int:
        """Largest number of cells of one column that an item references according to the signature.

        A part of unknown length counts as 1.
        """
        cells = dict.fromkeys((column for column, _ in self.parts.values()), 0)
        for column, length in self.parts.values():
            cells[column] += length if isinstance(length, int) else 1
        return max(cells.values(), default=1)

    @classmethod
    def queue(
        cls, name: str, max_size: int, hooks: Sequence[Hook] = (), signature: Signature | None = None
    ) -> Self:
        """Return the configuration of a queue, from which each item is sampled once, oldest first.

        Inserts wait while the queue is full. As in Reverb, an item that is deleted by key still counts as
        queued.
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
        """Return the configuration of a stack, from which each item is sampled once, newest first.

        Inserts wait while the stack is full.
        """
        queue = cls.queue(name, max_size, hooks, signature)
        return replace(queue, sampler=Lifo(), remover=Lifo(), rate_limiter=Stack(max_size))


def parts_of(signature: Any) -> PartTypes:
    """Return the parts that a signature declares, or no parts if it is None.

    Raises:
        TypeError: If the signature is not a mapping, or the name of a part is not a string.
        ValueError: If the signature is empty, or a length is invalid.
    """
    if signature is None:
        return {}
    if not isinstance(signature, Mapping):
        raise TypeError(
            f"A signature must be a dict such as {{'obs': 4, 'reward': 'one'}}, not {signature!r:.60}."
        )
    parts: PartTypes = {}
    for name, value in cast("Mapping[str, Any]", signature).items():
        check_names([name])
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
                f"The signature declares the part {name!r} with the length {length!r:.60}; a length must be "
                "an integer of at least 1, 'one' (no time axis) or 'any'. Use ('obs', 4) for a column and a "
                "length."
            )
    if not parts:
        raise ValueError("A signature must declare at least one part.")
    return parts


def inferred_parts(layout: Layout) -> PartTypes:
    """Return the parts that an item determines for a table without a signature; lengths are unrestricted."""
    check_names(part.name for part in layout)
    parts: PartTypes = {part.name: (part.column, "one" if part.squeezed else "any") for part in layout}
    if len(parts) < len(layout) or not parts:
        raise ValueError(f"An item must have at least one part, with unique names, not {layout!r:.200}.")
    return parts


def item_layout(parts: PartTypes, lengths: Sequence[int]) -> Layout:
    """Return the layout of a trajectory with these parts and lengths."""
    return tuple(
        Part(name, column, count, length == "one")
        for (name, (column, length)), count in zip(parts.items(), lengths, strict=True)
    )


def check_reachable(limiter: RateLimiter, max_size: int) -> None:
    """Check that `limiter` is a rate limiter, and that its `min_size` does not exceed `max_size`."""
    if not isinstance(limiter, RateLimiter):
        raise TypeError(f"A rate limiter must be, for example, MinSize(100), not {limiter!r}.")
    if limiter.min_size > max_size:
        raise ValueError(
            f"The limiter requires min_size={limiter.min_size} items, but max_size is {max_size}, so nothing "
            "could ever be sampled. Lower min_size or raise max_size."
        )
