"""Selection in proportion to a power of the priority: a sum tree over the slots.

    P(i) = p_i^α / Σ_k p_k^α,   α ≥ 0

A priority of 0 has no mass, whatever α is. If no slot has any, all are as likely. Draws are independent of
each other, as their probabilities say; those of the buffers are stratified.

Source: Schaul et al. 2016, "Prioritized Experience Replay", eq. 1, with ε = 0; the rules for 0 are Reverb's.
"""

import sys

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers, kernel
from replay_tutorial.buffers.priorities import power
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, set_leaves
from replay_tutorial.tables.dense import Dense
from replay_tutorial.tables.selection import Selected, Selection


@kernel
def powers_of(priorities: Floats, exponent: float) -> Floats:
    """Return the masses of slots with these priorities, float64[n]."""
    masses = np.zeros(priorities.shape[0])
    for i in range(priorities.shape[0]):
        if priorities[i] > 0.0:
            small = exponent <= 1.0  # all that `power` can
            masses[i] = power(priorities[i], exponent) if small else priorities[i] ** exponent
    return masses


@kernel
def put_mass(sums: Floats, minima: Floats, slot: int, priority: float, exponent: float) -> None:
    """Set the mass of one slot; one call, where two with arrays of one would cost twice as much."""
    set_leaves(sums, minima, np.full(1, slot), powers_of(np.full(1, priority), exponent))


class Proportional(Selection):
    """Slots are drawn by their masses."""

    low = 0.0

    def __init__(self, slots: int, exponent: float) -> None:
        """Begin empty."""
        # The total of all masses can't overflow, with a margin for rounding.
        largest_mass = sys.float_info.max / (16 * slots)
        self.high = largest_mass ** (1.0 / max(exponent, 1.0))
        self._exponent = exponent
        self._tree = SumTree(slots)
        self._members = Dense(slots)

    @property
    def size(self) -> int:
        """How many slots are in."""
        return self._members.size

    def insert(self, slot: int, priority: float) -> None:
        self._members.insert(slot, priority)
        put_mass(self._tree.sums, self._tree.minima, slot, priority, self._exponent)

    def update(self, slots: Integers, priorities: Floats) -> None:
        self._tree.set(slots, powers_of(priorities, self._exponent))

    def delete(self, slot: int) -> None:
        self._members.delete(slot)
        put_mass(self._tree.sums, self._tree.minima, slot, 0.0, self._exponent)

    def select(self, count: int, rng: np.random.Generator) -> Selected:
        total = self._tree.total
        if total == 0.0:
            return self._members.select(count, rng)
        slots, masses = self._tree.find(rng.random(count) * total)
        return Selected(slots, masses / total, float(self._tree.minima[ROOT]) / total)

    def probabilities(self, slots: Integers) -> Floats:
        total = self._tree.total
        return self._members.probabilities(slots) if total == 0.0 else self._tree.leaves[slots] / total

    def in_order(self) -> Integers:
        return self._members.in_order()
