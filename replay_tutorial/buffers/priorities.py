"""Priorities: from the |TD error| that a caller gives to the mass that lies beside a row.

    P(i) = (p_i + ε)^α / Σ_k (p_k + ε)^α, the probability of row i with the priority p_i    (Schaul et al. 2016, eq. 1)

A row's mass is (p + ε)^α. Floats lie in an array beside the rows, one a slot; whoever adds a row leaves its mass there
and is done. The sum tree over them belongs to whoever draws (`proportional`).

Left out: rank-based priorities (section 3.3, variant 2).
"""

import math
import sys
from typing import Any

import numpy as np

from replay_tutorial.buffers.jit import Floats, kernel
from replay_tutorial.buffers.power import power

FIRST_PRIORITY = 1.0  # of a row that comes before any priority is known (p_1 = 1 in algorithm 1)
NO_PRIORITY = -1.0  # no priority is negative: stands for "there is none"


@kernel
def write_masses(priorities: Floats, alpha: float, eps: float, masses: Floats) -> None:
    """Turn priorities into masses."""
    for i in range(priorities.shape[0]):  # nothing else in this loop, so that it goes several at a time
        masses[i] = power(priorities[i] + eps, alpha)


@kernel
def masses_and_highest(
    priorities: Floats, alpha: float, eps: float, greatest: float, masses: Floats
) -> float:
    """Compute masses and give the highest priority; NaN if one is negative, too great, or NaN."""
    highest = NO_PRIORITY
    for i in range(priorities.shape[0]):
        if not 0.0 <= priorities[i] <= greatest:  # so written, NaN fails too
            return np.nan
        highest = max(highest, priorities[i])
    write_masses(priorities, alpha, eps, masses)
    return highest


class Priorities:
    """The masses of a ring's slots, and the highest priority so far.

    Attributes:
        alpha: How much priorities count, in [0, 1].
        eps: Added to each priority.
        greatest: The greatest priority that may be given; the total of so many masses can't overflow.
        masses: float64[capacity], the mass of each slot.
        seen: float64[1], the highest priority that any row has been given, NO_PRIORITY before the first.
    """

    def __init__(self, masses: Floats, seen: Floats, alpha: float, eps: float) -> None:
        """Begin with the arrays given, which may lie in shared memory.

        Raises:
            ValueError: If alpha or eps is out of range.
        """
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha must lie in [0, 1], not {alpha}.")
        self.greatest = sys.float_info.max / (8 * len(masses))
        if not 0.0 <= eps <= self.greatest:
            raise ValueError(f"eps must lie between 0 and {self.greatest:.3g}, not {eps}.")
        self.alpha = float(alpha)
        self.eps = float(eps)
        self.masses = masses
        self.seen = seen
        self._mass_of_new = (NO_PRIORITY, float(self.to_masses(FIRST_PRIORITY, 1)[0][0]))

    @property
    def highest(self) -> float:
        """The highest priority that any row has been given; FIRST_PRIORITY before the first."""
        return FIRST_PRIORITY if self.seen[0] == NO_PRIORITY else float(self.seen[0])

    def checked(self, priorities: Any, count: int) -> Floats:
        """Give priorities as float64[count]; whether each is in range is not looked at.

        Args:
            priorities: `count` numbers; any shape of that size.
            count: How many there must be.

        Raises:
            TypeError: If they are not real numbers.
            ValueError: If there are more or fewer.
        """
        array = np.asarray(priorities)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"Priorities are real numbers, not {array.dtype} ({priorities!r:.60}).")
        if array.size != count:
            raise ValueError(f"There must be one priority for each of {count} rows, not {array.size}.")
        return np.ascontiguousarray(array, np.float64).reshape(count)

    def to_masses(self, priorities: Any, count: int) -> tuple[Floats, float]:
        """Check priorities and turn them into masses.

        Args:
            priorities: `count` numbers, finite and at least 0; any shape of that size.
            count: How many there must be.

        Returns:
            The masses, float64[count], and the highest of the priorities, NO_PRIORITY if there are none.

        Raises:
            TypeError: If they are not real numbers.
            ValueError: If there are more or fewer, or one is negative, infinite, NaN, or so great that the total
                would overflow.
        """
        given = self.checked(priorities, count)
        masses = np.empty(count)
        highest = masses_and_highest(given, self.alpha, self.eps, self.greatest, masses)
        if math.isnan(highest):
            raise self.refusal(given)
        return masses, highest

    def refusal(self, given: Floats) -> ValueError:
        """Make the error that names the first priority out of range."""
        wrong = given[~((given >= 0.0) & (given <= self.greatest))][0]
        return ValueError(
            f"A priority must lie between 0 and {self.greatest:.3g}, not {wrong}. Give |TD error|."
        )

    def masses_of_new(self, priorities: Any, count: int) -> Floats | float:
        """Give the masses of rows that are to be added, float64[count], or one for all if `priorities` is None.

        Their highest priority counts from now on.
        """
        if priorities is not None:
            masses, highest = self.to_masses(priorities, count)
            self.saw(highest)
            return masses
        if self._mass_of_new[0] != self.seen[0]:
            self._mass_of_new = (float(self.seen[0]), float(self.to_masses(self.highest, 1)[0][0]))
        if self.seen[0] == NO_PRIORITY:
            self.saw(FIRST_PRIORITY)
        return self._mass_of_new[1]

    def put(self, first_index: int, count: int, masses: Floats | float) -> None:
        """Lay masses beside the `count` rows from `first_index` on."""
        slot = first_index % len(self.masses)
        if count == 1:
            self.masses[slot] = masses[0] if isinstance(masses, np.ndarray) else masses
        elif slot + count <= len(self.masses):
            self.masses[slot : slot + count] = masses
        else:
            kept = min(count, len(self.masses))
            slots = np.arange(first_index + count - kept, first_index + count) % len(self.masses)
            self.masses[slots] = masses[count - kept :] if isinstance(masses, np.ndarray) else masses

    def saw(self, highest: float) -> None:
        """Remember the highest of the priorities that rows have been given."""
        self.seen[0] = max(float(self.seen[0]), highest)
