"""A sum tree with the smallest mass, which the weights of every batch need.

A second list has the nodes of the tree, too, but each parent is the smaller of its children. The package's
`SumTree` stores both in compiled code.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any


def set_minimum(minima: list[float], slot: int, mass: float) -> None:
    """Set the mass of a slot, and recompute the nodes above it. A mass of 0 is stored as inf."""
    node = len(minima) // 2 + slot
    minima[node] = mass if mass > 0.0 else math.inf
    while node > 1:
        node //= 2
        minima[node] = min(minima[2 * node], minima[2 * node + 1])


class TreeWithMinimum:
    """The masses of slots, their sum and the smallest one above 0."""

    def __init__(self, tree: Any, set_minimum: Callable[..., None] = set_minimum) -> None:
        """Add the smallest mass to an empty sum tree, such as a `PlainSumTree`."""
        self.tree, self.set_minimum = tree, set_minimum
        self.minima = [math.inf] * (2 * tree.leaf_count)  # node 1 is the smallest of all masses
        self.find = tree.find

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return self.tree.total

    @property
    def smallest(self) -> float:
        """The smallest mass above 0, or inf if all masses are 0."""
        return self.minima[1]

    def set(self, slots: Iterable[int], masses: Iterable[float]) -> None:
        """Set the masses of slots, one after the other."""
        slots, masses = list(slots), list(masses)
        self.tree.set(slots, masses)
        for slot, mass in zip(slots, masses, strict=True):
            self.set_minimum(self.minima, slot, mass)
