"""What a selector does for a table: it knows slots, and says which is next.

A table has two: one that draws, and one that evicts. The table owns the items and their priorities; a
selector keeps only what it needs to be fast, by slot. Everything has been checked when it is called.

Left out: how each is described by the user (`selectors`).
"""

from typing import Annotated, NamedTuple, Protocol

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


class Selection(Protocol):
    """The slots of a table's items, in some order.

    Attributes:
        low: The smallest priority that it takes.
        high: The largest.
    """

    low: float
    high: float

    def insert(self, slot: int, priority: float) -> None:
        """Take in a slot that is not in yet."""
        ...

    def update(self, slots: Integers, priorities: Floats) -> None:
        """Change priorities, one after the other, of slots that are in."""
        ...

    def delete(self, slot: int) -> None:
        """Let go of a slot that is in."""
        ...

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        """Select `count` times, with replacement; there must be a slot."""
        ...

    def pick(self, rng: np.random.Generator) -> int:
        """Select once, and return the slot alone."""
        return int(self.select(1, rng).slots[0])

    def probabilities(self, slots: Integers) -> Floats:
        """Return with what probability each of these would be selected now, float64[n]."""
        ...

    def in_order(self) -> Integers:
        """List the slots, int64[size], so that inserting them in this order leads to the same selector."""
        ...
