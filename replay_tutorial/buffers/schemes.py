"""Sampling schemes: how `sample` chooses rows, if not in the buffer's own way.

    buffer.sample(256, scheme=Uniform())        # a scheme is an argument of `sample`

A scheme draws rows and reports the probability P(row) of each, so that importance weights and mixtures of
buffers remain exact. The sample then contains two more arrays, `indexes` and `probabilities`. P(row) is the
expected number of times that the row is in the batch, divided by the batch size; the probabilities of all
stored rows add up to 1.

A scheme computes with indexes, which are never reused, instead of slots; a wrap-around is therefore nothing
special.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from replay_tutorial.buffers.gather import ArraySpec
from replay_tutorial.buffers.jit import Floats, Integers, kernel
from replay_tutorial.buffers.rows import random_below
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_stratified

# The arrays that a sample with a scheme contains in addition to the fields.
SCHEME_SPECS: dict[str, ArraySpec] = {
    "indexes": (np.dtype(np.int64), ()),
    "probabilities": (np.dtype(np.float64), ()),
}


class StoredRows(NamedTuple):
    """The stored rows, as a scheme sees them; there is at least one.

    Attributes:
        oldest_index: Index of the oldest row.
        next_index: Index after that of the newest row.
        capacity: Number of slots; row `index` is stored in slot `index % capacity`.
        tree: Masses of the rows by slot; None if the buffer has no priorities.
    """

    oldest_index: int
    next_index: int
    capacity: int
    tree: SumTree | None

    @property
    def count(self) -> int:
        """Number of stored rows."""
        return self.next_index - self.oldest_index


class Drawn(NamedTuple):
    """The rows that a scheme has drawn.

    Attributes:
        indexes: int64[n], the indexes of the rows.
        probabilities: float64[n], P(row) of each.
        least: Smallest P(row) above 0 of all stored rows; the weights are normalized by it.
    """

    indexes: Integers
    probabilities: Floats
    least: float


class Scheme(ABC):
    """A way to choose rows; subclass it to define another one."""

    @abstractmethod
    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw rows.

        Args:
            stored: The stored rows.
            batch_size: Number of rows to draw, at least 1.
            rng: The buffer's random generator; no other source of randomness may be used, so that a saved
                buffer resumes exactly.

        Returns:
            The indexes of `batch_size` stored rows, and their probabilities.

        Raises:
            ValueError: If the scheme can't draw from this buffer.
        """


def check_scheme(scheme: object, fields: Mapping[str, object]) -> None:
    """Raise if this is not a scheme, or if a field has the name of an array that a scheme adds."""
    if not isinstance(scheme, Scheme):
        raise TypeError(f"scheme must be a scheme such as Uniform(), not {scheme!r:.60}.")
    if taken := SCHEME_SPECS.keys() & fields.keys():
        raise ValueError(
            f"A sample with a scheme contains arrays with the names {sorted(taken)}; rename these fields."
        )


def tree_of(stored: StoredRows, scheme: Scheme) -> SumTree:
    """Return the masses; raise ValueError if the buffer has none, or all of them are 0."""
    if stored.tree is None:
        raise ValueError(
            f"{type(scheme).__name__} requires priorities, which this buffer does not have. Use "
            "PrioritizedReplayBuffer or MPPrioritizedReplayBuffer, or another scheme."
        )
    stored.tree.check_total()
    return stored.tree


class Uniform(Scheme):
    """Every stored row is equally likely: P(row) = 1 / N.

    This is what a uniform buffer does without a scheme, at a slightly lower cost. In a prioritized buffer, it
    ignores the priorities.
    """

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw independently, with replacement."""
        indexes = random_below(stored.count, batch_size, rng)
        indexes += stored.oldest_index
        share = 1.0 / stored.count
        return Drawn(indexes, np.full(batch_size, share), share)


@kernel
def draw_by_mass(
    sums: Floats, uniforms: Floats, next_index: int, capacity: int, indexes: Integers, probabilities: Floats
) -> None:
    """Draw a row for each uniform random number; write the rows' indexes and probabilities."""
    slots, masses = find_stratified(sums, uniforms)
    next_slot = next_index % capacity
    for i in range(slots.shape[0]):
        indexes[i] = slots[i] + next_index - next_slot
        if slots[i] >= next_slot:
            indexes[i] -= capacity  # slots from next_slot on hold rows of the previous lap
        probabilities[i] = masses[i] / sums[ROOT]


class Proportional(Scheme):
    """A row's probability is proportional to its mass: P(row) = m / Σ m, with m = (priority + eps) ** alpha.

    This is what a prioritized buffer does without a scheme, and draws the same rows. Other buffers raise
    ValueError.
    """

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw one row from each of `batch_size` equal segments of the total mass."""
        tree = tree_of(stored, self)
        uniforms = rng.random(batch_size)
        indexes, probabilities = np.empty(batch_size, np.int64), np.empty(batch_size)
        draw_by_mass(tree.sums, uniforms, stored.next_index, stored.capacity, indexes, probabilities)
        return Drawn(indexes, probabilities, float(tree.minima[ROOT]) / tree.total)
