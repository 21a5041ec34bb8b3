"""A prioritized draw by bisection in the running sums of all masses.

    masses         1    0    3    5
    running sums   1    1    4    9         a query of 3.5 belongs between 1 and 4: slot 2

What it fixes of the linear scan: the running sums are kept, and they are sorted. NumPy's `searchsorted` finds
the first one above a query in 20 comparisons among a million.

Still wrong with it: one new mass changes every running sum after it, so each update adds up all masses again.
A learner updates as often as it draws.
"""

import numpy as np
import numpy.typing as npt


class CumulativeSum:
    """The masses of `capacity` slots, and their running sums."""

    def __init__(self, capacity: int) -> None:
        """Begin with masses of 0."""
        self.masses = np.zeros(capacity)  # float64[capacity]
        self.running_sums = np.zeros(capacity)  # float64[capacity]: masses[0] + ... + masses[slot]

    def set(self, slots: npt.NDArray[np.int64], masses: npt.NDArray[np.float64]) -> None:
        """Set the masses of slots, in order: of a repeated slot the last mass stays."""
        for slot, mass in zip(slots, masses, strict=True):
            self.masses[slot] = mass
        np.cumsum(self.masses, out=self.running_sums)

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.running_sums[-1])

    def find(self, queries: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the slots that own these points of [0, total), int64[n], and their masses, float64[n]."""
        # side="right": the first running sum above the query, not the first that is equal to it. A slot of
        # mass 0 has the running sum of the slot before it, so it is never the first.
        slots = np.searchsorted(self.running_sums, queries, side="right")
        last_with_mass = np.searchsorted(self.running_sums, self.total, side="left")
        slots = np.minimum(slots, last_with_mass)  # no running sum is above the total
        return slots, self.masses[slots]
