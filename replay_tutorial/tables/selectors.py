"""Selectors, as the user describes them: who is sampled next, and who is evicted next.

A description is a value; each table makes its own selector from it, so one description may serve many.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from replay_tutorial.tables.dense import Dense
from replay_tutorial.tables.heap import Heap
from replay_tutorial.tables.linked import Linked
from replay_tutorial.tables.proportional import Proportional
from replay_tutorial.tables.selection import Selection


class Selector(Protocol):
    """A way to select items."""

    def over(self, slots: int) -> Selection:
        """Make a selector of this kind, for slots 0 to slots - 1, with none in."""
        ...


@dataclass(frozen=True)
class Uniform(Selector):
    """Every item is as likely."""

    def over(self, slots: int) -> Selection:
        return Dense(slots)


@dataclass(frozen=True)
class Fifo(Selector):
    """The item that was inserted first; updates don't count."""

    def over(self, slots: int) -> Selection:
        return Linked(slots, newest_first=False)


@dataclass(frozen=True)
class Lifo(Selector):
    """The item that was inserted last; updates don't count."""

    def over(self, slots: int) -> Selection:
        return Linked(slots, newest_first=True)


@dataclass(frozen=True)
class MinHeap(Selector):
    """The item of the least priority; of several the one inserted or updated longest ago."""

    def over(self, slots: int) -> Selection:
        return Heap(slots, greatest_first=False)


@dataclass(frozen=True)
class MaxHeap(Selector):
    """The item of the greatest priority; of several the one inserted or updated longest ago."""

    def over(self, slots: int) -> Selection:
        return Heap(slots, greatest_first=True)


@dataclass(frozen=True)
class Prioritized(Selector):
    """An item with a probability proportional to priority ** exponent.

    Attributes:
        exponent: Finite and at least 0. With 0 all items are as likely, but those of priority 0.
    """

    exponent: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.exponent < math.inf:
            raise ValueError(f"exponent must be finite and at least 0, not {self.exponent}.")

    def over(self, slots: int) -> Selection:
        return Proportional(slots, float(self.exponent))
