"""Prioritized sampling in the simplest way: add up masses from the left until the sum exceeds the query.

    masses    1    0    3    5         slot 0 owns [0, 1), slot 2 owns [1, 4), slot 3 owns [4, 9)
    sum       1    1    4    9         a query of 3.5: the first sum above it is 4, so slot 2

The masses of all slots are laid end to end on a line whose length is their total. A query is a point on this
line and selects its slot. Uniformly random queries thus select slots in proportion to their mass.

Remaining problem: each draw adds up half of all masses, half a million additions for a million rows.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


class LinearScan:
    """The masses of `capacity` slots in a list."""

    def __init__(self, capacity: int) -> None:
        """Initialise all masses to 0."""
        self.masses = [0.0] * capacity

    def set(self, slots: Iterable[int], masses: Iterable[float]) -> None:
        """Set the masses of slots in order, so that the last mass of a repeated slot wins."""
        for slot, mass in zip(slots, masses, strict=True):
            self.masses[slot] = float(mass)

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return sum(self.masses)

    def find(self, queries: Iterable[float]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the slot, int64[n], and its mass, float64[n], for each query in [0, total)."""
        slots = [self.find_one(query) for query in queries]
        return np.array(slots, np.int64), np.array([self.masses[slot] for slot in slots])

    def find_one(self, query: float) -> int:
        """Return the first slot whose running sum exceeds the query."""
        running_sum, last_with_mass = 0.0, 0
        for slot, mass in enumerate(self.masses):
            running_sum += mass
            if mass > 0.0:
                last_with_mass = slot
                if query < running_sum:
                    return slot
        return last_with_mass  # the query equals the total, possibly by rounding
