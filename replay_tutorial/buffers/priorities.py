"""The equations of prioritized replay: priorities to masses, and masses to importance-sampling weights.

    P(i) = (p_i + ε)^α / Σ_k (p_k + ε)^α        the probability of row i with the priority p_i, a |TD error|
    w_i  = u_i / max_k u_k = (min_k m_k / m_i)^β        its weight in the loss: u_i = (1 / N · 1 / P(i))^β

The mass m_i = (p_i + ε)^α of a row is stored in its leaf of the sum tree. Powers are computed with
branch-free additions and multiplications, so that the compiler can vectorize loops of them; it can't
vectorize `x ** y`, which calls the C library. Prioritization is proportional; for the rank-based variant
(section 3.3), see `rank_based`.

Source: Schaul et al. 2016, "Prioritized Experience Replay", eq. 1 and section 3.4; for powers Abramowitz and
Stegun 1964, 4.1.27 and 4.2.1.

Built in chapter 03, *Priorities*.
"""

import copy
import math
import sys
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.cast import as_array, widened
from replay_tutorial.buffers.rows import (
    as_integers,
    checked_number,
    checked_share,
    indexes_of,
    unknown_index_error,
)
from replay_tutorial.buffers.runtime.jit import Floats, Integers, jitable, kernel, types, writable
from replay_tutorial.buffers.streams import state_before
from replay_tutorial.buffers.sum_tree import SumTree

Weights = Annotated[npt.NDArray[np.float32], types.float32[::1]]
Formula = tuple[float, float, float]  # alpha, eps, and the largest valid priority

FIRST_PRIORITY = 1.0  # initial priority while no priority is known (p_1 = 1 in algorithm 1)
NO_PRIORITY = -1.0  # stands for "no priority", because priorities are never negative
LEAST_WEIGHT = 2.0**-126  # the smallest normal float32: a weight is never 0
# A step that is scaled by less than the rounding error of float32 leaves a parameter of its size unchanged.
LEAST_USEFUL_WEIGHT = 2.0**-24
ROUNDING = 1e-9  # tolerance for an annealed beta, such as 0.4 + 0.6 / n added n times, outside [0, 1]

# Status codes that kernels return.
DONE, UNKNOWN_INDEX, BAD_PRIORITY = 0, 1, 2

# Enough terms for double precision, the last term first as in Horner's method.
LOG2_TERMS = tuple(2 / math.log(2) / (2 * k + 1) for k in reversed(range(11)))
EXP2_TERMS = tuple(math.log(2) ** k / math.factorial(k) for k in reversed(range(14)))

# A double consists of a sign bit, 11 bits of exponent (biased by 1023) and 52 bits of fraction.
FRACTION_BITS, ZERO_EXPONENT = 52, 1023
ROOT_OF_HALF = int(np.float64(math.sqrt(0.5)).view(np.int64))  # its bits
MIN_NORMAL = 2.0**-1022  # smaller numbers are subnormal: their bits have another meaning


@kernel
def power(x: float, y: float) -> float:
    """Return x ** y for x in [0, 2^1023] and y in [0, 1], with a relative error below 10^-13.

    x^y = 2^(y · log2 x),    x = 2^e · m with m in [√½, √2),    s = (m - 1) / (m + 1)
    log2 x = e + 2 / ln 2 · (s + s^3 / 3 + s^5 / 5 + ...),    2^f = Σ_k (f · ln 2)^k / k!  for f in [-½, ½]

    0 ** 0 is 1. Nonzero x below 2^-1022 are treated as 2^-1022.
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


@jitable
def mass_of(priority: float, alpha: float, eps: float) -> float:
    """Return the mass for a priority."""
    return power(priority + eps, alpha)


@jitable
def priority_of(mass: Any, alpha: float, eps: float) -> Any:
    """Return the priority for a mass, or several for several masses: the inverse of `mass_of`."""
    return mass ** (1.0 / alpha) - eps


@kernel
def masses_of(priorities: Floats, alpha: float, eps: float) -> Floats:
    """Return the masses for priorities, float64[n]."""
    masses = np.empty(priorities.shape[0])
    for i in range(priorities.shape[0]):  # only the power, so that the compiler vectorizes the loop
        masses[i] = mass_of(priorities[i], alpha, eps)
    return masses


@kernel
def write_weights(
    masses: Floats, beta: float, min_in_buffer: float, by_buffer: bool, weights: Weights
) -> None:
    """Write the weights for masses, normalized so that the largest in the buffer or batch is 1."""
    min_mass = min_in_buffer if by_buffer else np.inf
    if not by_buffer:
        for i in range(masses.shape[0]):
            min_mass = min(min_mass, masses[i])
    for i in range(masses.shape[0]):
        # min(): in shared memory, the smallest mass may have grown since the row was sampled.
        weights[i] = min(max(power(min_mass / masses[i], beta), LEAST_WEIGHT), 1.0)


@kernel
def write_masses(priorities: Floats, formula: Formula, masses: Floats) -> tuple[int, float]:
    """Write the masses for priorities, unless one is out of range.

    Return DONE or BAD_PRIORITY, and the largest priority (NO_PRIORITY if there is none, or one is invalid).
    """
    alpha, eps, priority_limit = formula
    max_priority = NO_PRIORITY
    for i in range(priorities.shape[0]):
        if not 0.0 <= priorities[i] <= priority_limit:  # this form also rejects NaN
            return BAD_PRIORITY, NO_PRIORITY
        max_priority = max(max_priority, priorities[i])
    for i in range(priorities.shape[0]):
        masses[i] = mass_of(priorities[i], alpha, eps)
    return DONE, max_priority


@kernel
def check_update(indexes: Integers, priorities: Floats, next_index: int, priority_limit: float) -> int:
    """Check the arguments of an update; return DONE, UNKNOWN_INDEX or BAD_PRIORITY."""
    for i in range(indexes.shape[0]):
        if not 0 <= indexes[i] < next_index:
            return UNKNOWN_INDEX
        if not 0.0 <= priorities[i] <= priority_limit:
            return BAD_PRIORITY
    return DONE


def check_weights(weights: Weights, rng: np.random.Generator | None = None, count: int = 0) -> None:
    """Raise ValueError if all weights are so small that nothing would be learned from the batch.

    `rng` then returns to its state before the last `count` numbers. The check takes 0.1 µs, because the first
    weight is usually large enough.
    """
    if weights.item(0) < LEAST_USEFUL_WEIGHT and (largest := weights.max()) < LEAST_USEFUL_WEIGHT:
        if rng is not None:
            rng.bit_generator.state = state_before(rng, count)
        raise ValueError(
            f"The largest weight of the batch is {largest:.1e}, so nothing would be learned from it: with "
            'normalize="buffer", the least likely row in the buffer has the weight 1. Pass '
            'normalize="batch" (or, because of a tiny priority, a larger eps to the constructor).'
        )


def check_weight_options(beta: float, normalize: str) -> float:
    """Check the arguments of `sample`; return beta, clipped to [0, 1] if it is off by a rounding error."""
    if type(beta) is not float:
        beta = checked_number("beta", beta)
    if not 0.0 <= beta <= 1.0:
        if not -ROUNDING <= beta <= 1.0 + ROUNDING:
            raise ValueError(f"beta must be in [0, 1], not {beta}.")
        beta = min(max(beta, 0.0), 1.0)
    if normalize not in ("buffer", "batch"):
        raise ValueError(f'normalize must be "buffer" or "batch", not {normalize!r}.')
    return beta


def only_stored_count(initial_priority: str, alpha: float) -> bool:
    """Check the argument `initial_priority`; return whether it is "max_stored"."""
    if initial_priority not in ("max", "max_stored"):
        raise ValueError(f'initial_priority must be "max" or "max_stored", not {initial_priority!r}.')
    if initial_priority == "max_stored" and alpha == 0.0:
        raise ValueError(
            'initial_priority="max_stored" requires alpha above 0: with alpha=0, all masses are 1.'
        )
    return initial_priority == "max_stored"


def limit_of_priorities(capacity: int) -> float:
    """Return the largest valid priority, chosen so that the sum of `capacity` masses can't overflow."""
    return sys.float_info.max / (8 * capacity)


class Priorities:
    """The priorities of the stored rows, by index.

    They are computed from the masses, (priority + eps) ** alpha, so they are accurate to about 12 digits of
    priority + eps, and not exactly the numbers that were set.

    Example:
        >>> from replay_tutorial import PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(3, {"obs": {}})
        >>> buffer.add(obs=[10, 11, 12], priorities=[2, 3, 4])
        0
        >>> buffer.priorities[[2, 1]].round(9).tolist(), float(buffer.priorities[0].round(9))
        ([4.0, 3.0], 2.0)
    """

    __iter__ = None  # otherwise, Python would count up from index 0, which may have been replaced, and stop

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def __repr__(self) -> str:
        return f"<Priorities of {len(self._buffer.indexes):,} rows>"

    def __getitem__(self, indexes: "npt.ArrayLike | slice") -> Floats:
        """Return the priorities of rows: float64[n], or one number for a single index.

        A slice, such as `[:]`, returns those of the stored rows, oldest first, as for the buffer itself.

        Raises:
            IndexError: If a row is not stored: it has not been added, has been replaced, or was removed.
            TypeError: If the indexes are not integers.
            ValueError: If alpha is 0, because all masses are then 1, or the step of a slice is not 1.
        """
        if isinstance(indexes, slice):
            indexes = indexes_of(indexes, self._buffer.indexes)
        masses = self._buffer._masses_of(as_integers("indexes", indexes))
        priorities = self._buffer._ring.rules.priorities_of(masses)
        return priorities[0] if np.ndim(indexes) == 0 else priorities


class Prioritized:
    """The methods of a buffer with priorities, whose ring has `rules`, and `update`."""

    _ring: Any

    def update_priorities(self, indexes: "npt.ArrayLike", priorities: "npt.ArrayLike") -> None:
        """Set the priorities of rows.

        If an index is repeated, its last priority counts. Updates of rows that have been replaced or evicted
        since they were sampled are ignored and counted in `stale_updates`. O(n log capacity).

        Args:
            indexes: The `indexes` of a sample, int[n], an array or a tensor.
            priorities: |TD error|, float[n] or one number for all rows, finite and at least 0: an array, a
                list, or a tensor, on any device and with or without gradient.

        Raises:
            IndexError: If an index has not been assigned to any row, or belongs to the final observation of
                an episode.
            RuntimeError: In shared memory: if another living process updates priorities.
            TypeError: If the indexes are not integers, or the priorities are not real numbers.
            ValueError: If the lengths differ, or a priority is negative, infinite or NaN. The buffer is then
                unchanged.
        """
        self._update(indexes, priorities)

    def _update(self, indexes: "npt.ArrayLike", priorities: "npt.ArrayLike") -> None:
        self._ring.update(indexes, priorities)

    @property
    def stale_updates(self) -> int:
        """Number of priority updates that were ignored because their row was no longer stored."""
        return self._ring.rules.stale_updates.item()

    @property
    def priorities(self) -> Priorities:
        """The priorities of the stored rows: `buffer.priorities[indexes]` is float64[n].

        They are computed from the masses, so they equal the priorities that were set to about 12 digits of
        priority + eps. `buffer.priorities[:]` returns those of all stored rows, oldest first. With alpha=0,
        the priorities are unknown, and reading them raises ValueError. In a buffer of sequences, only the
        first learned steps of windows have priorities.
        """
        return Priorities(self)


class Prioritization:
    """The prioritization parameters of a buffer and its maximum priority so far.

    Attributes:
        alpha: Exponent of the priorities, in [0, 1].
        eps: Added to each priority.
        priority_limit: Largest valid priority.
        formula: alpha, eps and priority_limit, for the kernels.
        largest_priority: float64[1], the largest priority set so far, or NO_PRIORITY.
        stale_updates: int64[1], the number of updates of rows that were no longer stored.
    """

    def __init__(self, capacity: int, largest_priority: Floats, alpha: float, eps: float) -> None:
        """Check alpha and eps; `largest_priority` may be in shared memory."""
        self.alpha = checked_share("alpha", alpha)
        self.priority_limit = limit_of_priorities(capacity)
        if not 0.0 <= checked_number("eps", eps) <= self.priority_limit:
            raise ValueError(f"eps must be between 0 and {self.priority_limit:.3g}, not {eps}.")
        self.eps = float(eps)
        self.formula: Formula = (self.alpha, self.eps, self.priority_limit)
        self.largest_priority = largest_priority
        self.stale_updates: Integers = np.zeros(1, np.int64)
        # Cache for new rows without priorities: their priority and mass.
        self._default = FIRST_PRIORITY, self._mass(FIRST_PRIORITY)

    def with_max(self, largest_priority: float = NO_PRIORITY) -> "Prioritization":
        """Return the same rules with another maximum priority, by default none."""
        rules = copy.copy(self)
        rules.largest_priority, rules.stale_updates = np.full(1, largest_priority), self.stale_updates.copy()
        return rules

    @property
    def max_priority(self) -> float:
        """Largest priority set so far; FIRST_PRIORITY if none has been set."""
        largest_priority = self.largest_priority.item(0)
        return FIRST_PRIORITY if largest_priority == NO_PRIORITY else largest_priority

    def lower_max(self, tree: SumTree, capacity: int) -> None:
        """Lower the maximum priority to that of the largest mass in a tree; none if every mass is 0."""
        mass = tree.largest_mass(capacity, bound=self._initial_mass()[0])
        if mass == 0.0:
            self.largest_priority[0] = NO_PRIORITY
        else:
            priority = min(max(priority_of(mass, self.alpha, self.eps), 0.0), self.priority_limit)
            self.largest_priority[0], self._default = priority, (priority, mass)

    def initial_masses(self, priorities: Any, count: int) -> tuple[Floats | float, float]:
        """Return the masses of `count` new rows, and the largest of their priorities.

        `priorities` are one number per row, or one for all; None means `max_priority`. The masses are
        float64[count], or a single mass if count is 1 or priorities is None.
        """
        if priorities is not None:
            given = self.as_floats(priorities, count)
            masses = np.empty(count)
            status, max_priority = write_masses(given, self.formula, masses)
            if status == BAD_PRIORITY:
                raise self.priority_error(given)
            return masses if count > 1 else masses[0], max_priority
        return self._initial_mass()

    def _initial_mass(self) -> tuple[float, float]:
        """Return the mass of a new row without a priority, and `max_priority`."""
        max_priority = self.max_priority
        if self._default[0] != max_priority:
            self._default = max_priority, self._mass(max_priority)
        return self._default[1], max_priority

    def priorities_of(self, masses: Floats) -> Floats:
        """Return the priorities of masses: the inverse of `masses_of`."""
        if self.alpha == 0.0:
            raise ValueError("With alpha=0, all masses are 1, so the priorities of the rows are unknown.")
        priorities = priority_of(masses, self.alpha, self.eps)
        return np.clip(priorities, 0.0, self.priority_limit)  # rounding may lead out of the range

    def as_floats(self, priorities: Any, count: int) -> Floats:
        """Convert priorities to float64[count], repeating a single one; their range is not checked."""
        array = priorities if type(priorities) is np.ndarray else as_array("priorities", priorities)
        array = array if array.dtype.kind in "biuf" else widened(array)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"priorities must be real numbers, not {array.dtype} ({priorities!r:.60}).")
        if array.size != count:
            if array.size != 1:
                raise ValueError(
                    f"priorities must be one number per row or one for all: {count} or 1, not {array.size}."
                )
            array = np.broadcast_to(array.reshape(1), count)
        return writable(np.ascontiguousarray(array, np.float64).reshape(count))

    def as_update(self, indexes: Any, priorities: Any) -> tuple[Integers, Floats]:
        """Convert the arguments of `update_priorities` to int64[n] and float64[n]; ranges are not checked."""
        checked = as_integers("indexes", indexes)
        return checked, self.as_floats(priorities, len(checked))

    def priority_error(self, given: Floats) -> ValueError:
        """Return the error for the first priority that is out of range."""
        wrong = given[~((given >= 0.0) & (given <= self.priority_limit))][0]
        return ValueError(
            f"A priority must be between 0 and {self.priority_limit:.3g}, not {wrong}. Pass |TD error|."
        )

    def update_error(self, status: int, indexes: Integers, given: Floats, next_index: int) -> Exception:
        """Return the error for the status UNKNOWN_INDEX or BAD_PRIORITY of `check_update`."""
        if status == BAD_PRIORITY:
            return self.priority_error(given)
        return unknown_index_error(indexes, next_index)

    def check_loaded(self, masses: Floats, largest_priority: float) -> None:
        """Raise Damaged if the masses or the maximum priority in a file are out of range."""
        from replay_tutorial.buffers.archive import Damaged

        most = 2 * self.priority_limit  # no mass is larger, and the total still can't overflow
        if not ((masses >= 0.0) & (masses <= most)).all():
            raise Damaged(f"a mass is not between 0 and {most:.3g}")
        if largest_priority != NO_PRIORITY and not 0.0 <= largest_priority <= self.priority_limit:
            raise Damaged(f"the largest priority, {largest_priority}, is out of range")

    def _mass(self, priority: float) -> float:
        return float(mass_of(priority, self.alpha, self.eps))
