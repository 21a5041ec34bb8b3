"""Proportional draws: rows in proportion to their masses, and the weights that make good for it.

    w_i = u_i / max_k u_k = (least mass / mass of i)^β, u_i = (1 / N · 1 / P(i))^β     (Schaul et al. 2016, section 3.4)

The tree over the masses is private to whoever draws. It takes in the masses of new rows, all at once, before it
draws, so that adding a row costs no walk up the tree, and a writer of another process need never touch it. In one
process the array of masses is the tree's own leaves: `add` writes a leaf, and the nodes above it don't know until then.
"""

import math
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats, Integers, int64, kernel, types
from replay_tutorial.buffers.power import power
from replay_tutorial.buffers.priorities import NO_PRIORITY, Priorities, write_masses
from replay_tutorial.buffers.ring import newest_indexes
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_stratified, first_leaf, recompute_above

Weights = Annotated[npt.NDArray[np.float32], types.float32[::1]]

NEVER_GIVEN_OUT = -1  # no number of rows: stands for an index that no row has had


@kernel
def weigh(minima: Floats, masses: Floats, beta: float, in_buffer: bool) -> Weights:
    """Give the weights of rows of these masses, the equation above; the least mass is the buffer's or the batch's."""
    least = minima[ROOT] if in_buffer else masses.min()
    weights = np.empty(masses.shape[0], np.float32)
    for i in range(masses.shape[0]):
        # In shared memory the least mass may have grown since the row was drawn.
        weights[i] = min(power(least / masses[i], beta), 1.0)
    return weights


@kernel
def draw_weighed(
    sums: Floats,
    minima: Floats,
    uniforms: Floats,
    next_index: int,
    capacity: int,
    beta: float,
    in_buffer: bool,
) -> tuple[Integers, Integers, Weights]:
    """Find slots for numbers in [0, 1), which are used up, with the indexes and weights of their rows."""
    slots = find_stratified(sums, uniforms)
    masses = uniforms  # by now
    return slots, newest_indexes(slots, next_index, capacity), weigh(minima, masses, beta, in_buffer)


@kernel
def update_leaves(
    indexes: Integers,
    priorities: Floats,
    oldest_index: int,
    next_index: int,
    capacity: int,
    alpha: float,
    eps: float,
    greatest: float,
    sums: Floats,
    minima: Floats,
) -> tuple[float, float]:
    """Give rows that are still there new masses; gives their number and their highest priority.

    The number is NEVER_GIVEN_OUT if some index never was; the highest is NaN if some priority is out of range. Nothing
    has changed then.
    """
    for i in range(indexes.shape[0]):
        if not 0 <= indexes[i] < next_index:
            return NEVER_GIVEN_OUT, 0.0
        if not 0.0 <= priorities[i] <= greatest:  # so written, NaN fails too
            return 0, np.nan
    masses = np.empty(indexes.shape[0])
    write_masses(priorities, alpha, eps, masses)
    leaf, first_of_lap = int64(first_leaf(sums)), next_index - next_index % capacity
    slots = np.empty(indexes.shape[0], np.int64)
    count, highest = 0, NO_PRIORITY
    for i in range(indexes.shape[0]):
        index = indexes[i]
        if index >= oldest_index:  # trap: else its slot holds another row by now
            slot = index - first_of_lap if index >= first_of_lap else index - first_of_lap + capacity
            sums[leaf + slot] = masses[i]  # of a repeated index the last one stays
            highest = max(highest, priorities[i])
            slots[count] = slot
            count += 1
    recompute_above(sums, minima, slots[:count])
    return count, highest


def checked_indexes(indexes: Any) -> Integers:
    """Give indexes as int64[n].

    Raises:
        TypeError: If they are not integers.
    """
    array = np.asarray(indexes)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"Indexes are integers, as `sample` gave them, not {array.dtype}.")
    return np.ascontiguousarray(array, np.int64).reshape(-1)


def never_given_out(indexes: Integers, next_index: int) -> IndexError:
    """Make the error that names the first index that no row has had."""
    wrong = indexes[(indexes < 0) | (indexes >= next_index)][0]
    return IndexError(f"No row has had the index {wrong}; indexes given out are 0 to {next_index - 1}.")


def check_weighing(beta: float, normalize: str) -> None:
    """Refuse a beta that is out of range, and an unknown `normalize`."""
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta must lie in [0, 1], not {beta}.")
    if normalize not in ("buffer", "batch"):
        raise ValueError(f'normalize must be "buffer" or "batch", not {normalize!r}.')


class ProportionalDraw:
    """Draws slots of a ring in proportion to their masses.

    Attributes:
        priorities: The masses beside the rows.
        tree: The sum tree over those taken in.
        stale_updates: Updates dropped because their row had been replaced.
    """

    def __init__(self, priorities: Priorities, tree: SumTree) -> None:
        """Begin with a tree of the ring's capacity; the first `take_in` brings it up to date."""
        self.priorities = priorities
        self.tree = tree
        self.stale_updates = 0
        self._taken_in = 0  # the index up to which the tree knows the masses

    def take_in(self, oldest_index: int, next_index: int) -> None:
        """Let the masses of the rows since the last call count; O(new rows · log capacity)."""
        first = max(self._taken_in, oldest_index)
        if first < next_index:
            slots = np.arange(first, next_index) % len(self.priorities.masses)
            self.tree.set(slots, self.priorities.masses[slots])
            self._taken_in = next_index

    def draw(
        self, batch_size: int, beta: float, normalize: str, rng: np.random.Generator
    ) -> tuple[Integers, Integers, npt.NDArray[np.float32]]:
        """Draw slots, stratified: int64[batch_size], their rows' indexes, int64, and weights, float32.

        Raises:
            ValueError: If beta or `normalize` is out of range, or every mass is 0.
        """
        check_weighing(beta, normalize)
        self.tree.check_total()
        uniforms, capacity = rng.random(batch_size), len(self.priorities.masses)
        return draw_weighed(
            self.tree.sums,
            self.tree.minima,
            uniforms,
            self._taken_in,
            capacity,
            beta,
            normalize == "buffer",
        )

    def update(self, indexes: Any, priorities: Any, oldest_index: int, next_index: int) -> None:
        """Set the masses of rows in the tree anew; see `PrioritizedReplayBuffer.update_priorities`."""
        checked = checked_indexes(indexes)
        given, own = self.priorities.checked(priorities, len(checked)), self.priorities
        count, highest = update_leaves(
            checked,
            given,
            oldest_index,
            next_index,
            len(own.masses),
            own.alpha,
            own.eps,
            own.greatest,
            self.tree.sums,
            self.tree.minima,
        )
        if count == NEVER_GIVEN_OUT:
            raise never_given_out(checked, next_index)
        if math.isnan(highest):
            raise own.refusal(given)
        self.stale_updates += len(checked) - int(count)
        own.saw(highest)

    def forget(self, slots: Integers, next_index: int) -> None:
        """Let no slot have mass any more; `slots` are those that hold rows."""
        self.priorities.masses[slots] = 0.0
        self.priorities.seen[0] = NO_PRIORITY
        self.tree.set(slots, self.priorities.masses[slots])
        self._taken_in = next_index
