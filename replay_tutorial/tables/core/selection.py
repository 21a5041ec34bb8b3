"""What a selector does for a table: it knows slots, and says which is next.

A table has two: one that draws, and one that evicts. The table owns the items and their priorities; a
selector keeps only what it needs to be fast, by slot. Everything has been checked when it is called.

What a user makes, such as `Fifo()`, has no slots: it describes. Each table makes its own from it by `over`.
"""

import copy
import sys
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats, Integers, types

# Slots as they are kept: half the memory of int64.
Slots = Annotated[npt.NDArray[np.int32], types.int32[::1]]


class Selected(NamedTuple):
    """Which slots were selected, with what probability.

    Attributes:
        slots: int64[n].
        probabilities: float64[n].
        least_probability: The smallest that any item had which could be selected.
    """

    slots: Integers
    probabilities: Floats
    least_probability: float


@dataclass
class Selector(Protocol):
    """A way to select slots: in an order, so that one is `first`; or at random.

    One that selects at random has no `first`, and its own `pick`, `select` and `probabilities`. Two selectors
    of one class are equal, and print alike, if their numbers are.
    """

    low = -sys.float_info.max  # the smallest priority that it takes
    high = sys.float_info.max  # the largest

    def over(self, slots: int) -> Self:
        """Make a selector of this kind, for slots 0 to slots - 1, with none in."""
        selector = copy.copy(self)
        selector.begin(slots)
        return selector

    def begin(self, slots: int) -> None:
        """Make the arrays for so many slots."""
        ...

    def insert(self, slot: int, priority: float) -> None:
        """Take in a slot that is not in yet."""
        ...

    def update(self, slots: Integers, priorities: Floats) -> None:
        """Change priorities, one after the other, of slots that are in."""

    def delete(self, slot: int) -> None:
        """Let go of a slot that is in."""
        ...

    def first(self) -> int:
        """Return the slot that is next, where one is for certain."""
        return int(self.in_order()[0])

    def pick(self, rng: np.random.Generator) -> int:
        """Select once, and return the slot alone."""
        return self.first()

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        """Select `count` times, with replacement; there must be a slot."""
        return Selected(np.full(count, self.first(), np.int64), np.ones(count), 1.0)

    def probabilities(self, slots: Integers) -> Floats:
        """Return with what probability each of these would be selected now, float64[n]."""
        return (slots == self.first()).astype(np.float64)

    def in_order(self) -> Integers:
        """List the slots, int64[size], so that inserting them in this order leads to the same selector."""
        ...
