"""Prioritized sampling by binary search in the running sums of all masses.

    masses         1    0    3    5
    running sums   1    1    4    9         a query of 3.5 lies between 1 and 4: slot 2

Improvement over the linear scan: the running sums are stored, and they are sorted. NumPy's `searchsorted`
finds the first sum above a query in 20 comparisons among a million.

Remaining problem: one new mass changes all running sums after it, so each update recomputes the sums of all
masses. A learner updates as often as it samples.
"""

import numpy as np
import numpy.typing as npt


class CumulativeSum:
    """The masses of `capacity` slots, and their running sums."""

    def __init__(self, capacity: int) -> None:
        """Initialise all masses to 0."""
        self.masses = np.zeros(capacity)  # float64[capacity]
        self.running_sums = np.zeros(capacity)  # float64[capacity]: masses[0] + ... + masses[slot]

    def set(self, slots: npt.NDArray[np.int64], masses: npt.NDArray[np.float64]) -> None:
        """Set the masses of slots in order, so that the last mass of a repeated slot wins."""
        for slot, mass in zip(slots, masses, strict=True):
            self.masses[slot] = mass
        np.cumsum(self.masses, out=self.running_sums)

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.running_sums[-1])

    def find(self, queries: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the slot, int64[n], and its mass, float64[n], for each query in [0, total)."""
        # side="right" finds the first running sum above the query instead of equal to it. A slot of mass 0
        # has the same running sum as its predecessor, so it is never found.
        slots = np.searchsorted(self.running_sums, queries, side="right")
        last_with_mass = np.searchsorted(self.running_sums, self.total, side="left")
        slots = np.minimum(slots, last_with_mass)  # no running sum exceeds the total
        return slots, self.masses[slots]
