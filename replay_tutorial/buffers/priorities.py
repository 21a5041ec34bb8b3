"""The equations of prioritized replay: from a priority to a mass, and from a mass to a weight.

    P(i) = (p_i + ε)^α / Σ_k (p_k + ε)^α        the probability of row i with the priority p_i, a |TD error|
    w_i  = u_i / max_k u_k = (min_k m_k / m_i)^β        its weight in the loss: u_i = (1 / N · 1 / P(i))^β

A row's mass m_i is (p_i + ε)^α: what its leaf in the sum tree holds. A power is written out here as additions
and multiplications without a branch, so that the compiler can vectorize a loop of powers: `x ** y` is a call
of the C library, which it can't.

Left out: rank-based priorities (section 3.3, variant 2).

Source: Schaul et al. 2016, "Prioritized Experience Replay", eq. 1 and section 3.4; for powers Abramowitz and
Stegun 1964, 4.1.27 and 4.2.1.
"""

import math
import sys
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import Damaged
from replay_tutorial.buffers.jit import Floats, Integers, kernel, types, writable

Weights = Annotated[npt.NDArray[np.float32], types.float32[::1]]
Formula = tuple[float, float, float]  # alpha, eps, and the largest priority that may be given

FIRST_PRIORITY = 1.0  # of a row that comes before any priority is known (p_1 = 1 in algorithm 1)
NO_PRIORITY = -1.0  # no priority is negative: stands for "there is none"
ROUNDING = 1e-9  # by which an annealed beta, such as 0.4 + 0.6 / n added n times, may be outside of [0, 1]

# What a kernel returns.
DONE, UNKNOWN_INDEX, BAD_PRIORITY = 0, 1, 2

# As many terms as add anything to a double. The last term comes first, as Horner's rule wants it.
LOG2_TERMS = tuple(2 / math.log(2) / (2 * k + 1) for k in reversed(range(11)))
EXP2_TERMS = tuple(math.log(2) ** k / math.factorial(k) for k in reversed(range(14)))

# A double is its sign, 11 bits of exponent (counted from -1023), and 52 bits of fraction.
FRACTION_BITS, ZERO_EXPONENT = 52, 1023
ROOT_OF_HALF = int(np.float64(math.sqrt(0.5)).view(np.int64))  # as bits
MIN_NORMAL = 2.0**-1022  # below it, the bits mean something else


@kernel
def power(x: float, y: float) -> float:
    """Return x ** y for x in [0, 2^1023] and y in [0, 1], with an error below 10^-13 of it.

    x^y = 2^(y · log2 x),    x = 2^e · m with m in [√½, √2),    s = (m - 1) / (m + 1)
    log2 x = e + 2 / ln 2 · (s + s^3 / 3 + s^5 / 5 + ...),    2^f = Σ_k (f · ln 2)^k / k!  for f in [-½, ½]

    0 ** 0 is 1; other x below 2^-1022 are taken for 2^-1022.
    """
    bits = np.float64(max(x, MIN_NORMAL)).view(np.int64)
    exponent = (bits - ROOT_OF_HALF) >> FRACTION_BITS
    m = np.int64(bits - (exponent << FRACTION_BITS)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    series = 0.0
    for term in LOG2_TERMS:
        series = series * (s * s) + term
    log2 = y * (exponent + s * series)
    whole = np.rint(log2)
    two_to_rest = 0.0
    for term in EXP2_TERMS:
        two_to_rest = two_to_rest * (log2 - whole) + term
    two_to_whole = np.int64((np.int64(whole) + ZERO_EXPONENT) << FRACTION_BITS).view(np.float64)
    return two_to_rest * two_to_whole if x > 0.0 or y == 0.0 else 0.0


@kernel
def masses_of(priorities: Floats, alpha: float, eps: float) -> Floats:
    """Return the masses of rows with these priorities, float64[n]."""
    masses = np.empty(priorities.shape[0])
    for i in range(priorities.shape[0]):  # nothing else in this loop, so that it is vectorized
        masses[i] = power(priorities[i] + eps, alpha)
    return masses


@kernel
def write_weights(
    masses: Floats, beta: float, min_in_buffer: float, by_buffer: bool, weights: Weights
) -> None:
    """Write the weights of rows of these masses; the largest in buffer or batch is 1."""
    min_mass = min_in_buffer if by_buffer else np.inf
    if not by_buffer:
        for i in range(masses.shape[0]):
            min_mass = min(min_mass, masses[i])
    for i in range(masses.shape[0]):
        # In shared memory the smallest mass may have grown since the row was drawn.
        weights[i] = min(power(min_mass / masses[i], beta), 1.0)


@kernel
def write_masses(priorities: Floats, formula: Formula, masses: Floats) -> tuple[int, float]:
    """Write the masses of rows, unless a priority is bad.

    Returns:
        DONE or BAD_PRIORITY, and the largest of the priorities, NO_PRIORITY if there are none.
    """
    alpha, eps, priority_limit = formula
    max_priority = NO_PRIORITY
    for i in range(priorities.shape[0]):
        if not 0.0 <= priorities[i] <= priority_limit:  # so written, NaN fails too
            return BAD_PRIORITY, NO_PRIORITY
        max_priority = max(max_priority, priorities[i])
    for i in range(priorities.shape[0]):
        masses[i] = power(priorities[i] + eps, alpha)
    return DONE, max_priority


@kernel
def check_update(indexes: Integers, priorities: Floats, next_index: int, priority_limit: float) -> int:
    """Return DONE if rows may get these priorities; else UNKNOWN_INDEX or BAD_PRIORITY."""
    for i in range(indexes.shape[0]):
        if not 0 <= indexes[i] < next_index:
            return UNKNOWN_INDEX
        if not 0.0 <= priorities[i] <= priority_limit:
            return BAD_PRIORITY
    return DONE


def check_weight_options(beta: float, normalize: str) -> float:
    """Return beta; refuse one that is out of range, and an unknown `normalize`."""
    if not 0.0 <= beta <= 1.0:
        if not -ROUNDING <= beta <= 1.0 + ROUNDING:
            raise ValueError(f"beta must lie in [0, 1], not {beta}.")
        beta = min(max(beta, 0.0), 1.0)
    if normalize not in ("buffer", "batch"):
        raise ValueError(f'normalize must be "buffer" or "batch", not {normalize!r}.')
    return beta


class Prioritization:
    """How a buffer prioritizes: its exponents, and the largest priority given so far; no row's priority.

    Attributes:
        alpha: How much priorities count, in [0, 1].
        eps: Added to each priority.
        priority_limit: The largest priority that may be given: the total of `capacity` masses can't overflow.
        formula: alpha, eps and priority_limit, as kernels take them.
        max_given: float64[1], the largest priority that any row has been given, NO_PRIORITY before the first.
    """

    def __init__(self, capacity: int, max_given: Floats, alpha: float, eps: float) -> None:
        """Begin with the array given, which may lie in shared memory."""
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha must lie in [0, 1], not {alpha}.")
        self.priority_limit = sys.float_info.max / (8 * capacity)
        if not 0.0 <= eps <= self.priority_limit:
            raise ValueError(f"eps must lie between 0 and {self.priority_limit:.3g}, not {eps}.")
        self.alpha = float(alpha)
        self.eps = float(eps)
        self.formula: Formula = (self.alpha, self.eps, self.priority_limit)
        self.max_given = max_given
        # Of new rows without priorities: for which max_given it was computed, their priority, their mass.
        self._of_new = (NO_PRIORITY, FIRST_PRIORITY, self._mass(FIRST_PRIORITY))

    @property
    def max_priority(self) -> float:
        """The largest priority that any row has been given; FIRST_PRIORITY before the first."""
        return FIRST_PRIORITY if self.max_given[0] == NO_PRIORITY else float(self.max_given[0])

    def initial_masses(self, priorities: Any, count: int) -> tuple[Floats | float, float]:
        """Return the masses of rows that are to be added, and what `max_given` is when they are.

        Args:
            priorities: `count` numbers, finite and at least 0, or one for all; None stands for
                `max_priority` each.
            count: How many rows there are.

        Returns:
            float64[count], or one mass if the count is 1 or `priorities` None; and a priority.
        """
        if priorities is not None:
            given = self.as_floats(priorities, count)
            masses = np.empty(count)
            status, max_priority = write_masses(given, self.formula, masses)
            if status == BAD_PRIORITY:
                raise self.refusal(given)
            return masses if count > 1 else masses[0], max(float(self.max_given[0]), max_priority)
        max_given, max_priority, mass = self._of_new
        if max_given != self.max_given[0]:
            max_given, max_priority = float(self.max_given[0]), self.max_priority
            mass = self._mass(max_priority)
            self._of_new = (max_given, max_priority, mass)
        return mass, max_priority

    def as_floats(self, priorities: Any, count: int) -> Floats:
        """Convert priorities to float64[count]; a single one is repeated. Ranges are not checked."""
        array = np.asarray(priorities)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"Priorities are real numbers, not {array.dtype} ({priorities!r:.60}).")
        if array.size != count:
            if array.size != 1:
                raise ValueError(
                    f"There must be one priority for each of {count} rows, or one for all, not {array.size}."
                )
            array = np.broadcast_to(array.reshape(1), count)
        return writable(np.ascontiguousarray(array, np.float64).reshape(count))

    def as_update(self, indexes: Any, priorities: Any) -> tuple[Integers, Floats]:
        """Convert the arguments of `update_priorities` to int64[n] and float64[n], of any range."""
        array = np.asarray(indexes)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"Indexes are integers, as `sample` gave them, not {array.dtype}.")
        checked = writable(np.ascontiguousarray(array, np.int64).reshape(-1))
        return checked, self.as_floats(priorities, len(checked))

    def refusal(self, given: Floats) -> ValueError:
        """Make the error that names the first priority out of range."""
        wrong = given[~((given >= 0.0) & (given <= self.priority_limit))][0]
        return ValueError(
            f"A priority must lie between 0 and {self.priority_limit:.3g}, not {wrong}. Give |TD error|."
        )

    def update_refusal(self, status: int, indexes: Integers, given: Floats, next_index: int) -> Exception:
        """Make the error for what `check_update` found: UNKNOWN_INDEX or BAD_PRIORITY."""
        if status == BAD_PRIORITY:
            return self.refusal(given)
        wrong = indexes[(indexes < 0) | (indexes >= next_index)][0]
        return IndexError(f"No row has had the index {wrong}; indexes given out are 0 to {next_index - 1}.")

    def check_loaded(self, masses: Floats, max_given: float) -> None:
        """Refuse what a file says, if no priorities can have led to it."""
        most = 2 * self.priority_limit  # no mass is larger, and the total still can't overflow
        if not ((masses >= 0.0) & (masses <= most)).all():
            raise Damaged(f"a mass does not lie between 0 and {most:.3g}")
        if max_given != NO_PRIORITY and not 0.0 <= max_given <= self.priority_limit:
            raise Damaged(f"the largest priority is {max_given}")

    def _mass(self, priority: float) -> float:
        return float(power(priority + self.eps, self.alpha))
