"""Sampling schemes: other ways for `sample` to choose rows.

    buffer.sample(256, scheme=Geometric(half_life=10_000))        # a scheme is an argument of `sample`

A scheme draws rows and reports the probability P(row) of each, so that importance weights and mixtures of
buffers remain exact. The sample then contains two more arrays, `indexes` and `probabilities`. P(row) is the
expected number of times that the row is in the batch, divided by the batch size; the probabilities of all
stored rows add up to 1.

A scheme computes with indexes, which are never reused, instead of slots. The age of a row is the number of
newer rows, so it is also correct after a wrap-around.

Source: Zhang and Sutton 2017, "A Deeper Look at Experience Replay" (combined); Rotinov 2019, "Reverse
Experience Replay".
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.gather import ArraySpec
from replay_tutorial.buffers.rows import checked_at_least, checked_number, random_below
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.buffers.sum_tree import ROOT, SumTree

ROUNDING = 1e-9  # relative tolerance for equal probabilities
SMALLEST = float(np.finfo(np.float64).tiny)  # stands for probabilities that are too small for a double

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
        alpha: Exponent of the priorities; with 0, the masses are equal.
    """

    oldest_index: int
    next_index: int
    capacity: int
    tree: SumTree | None
    alpha: float = 1.0

    @property
    def row_count(self) -> int:
        """Number of stored rows."""
        return self.next_index - self.oldest_index

    def indexes_of(self, slots: Integers) -> Integers:
        """Return the indexes of the rows in slots, int64[n]."""
        newest = self.next_index - 1
        return newest - (newest - slots) % self.capacity


class Drawn(NamedTuple):
    """The rows that a scheme has drawn.

    Attributes:
        indexes: int64[n], the indexes of the rows.
        probabilities: float64[n], P(row) of each.
        least: Smallest P(row) above 0 of all stored rows; normalize="buffer" divides the weights by its
            weight.
    """

    indexes: Integers
    probabilities: Floats
    least: float

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays that a batch contains in addition to the fields."""
        return {"indexes": self.indexes, "probabilities": self.probabilities}


class Scheme(ABC):
    """A way to choose rows. Subclass it to define your own scheme."""

    @abstractmethod
    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw rows; in shared memory, only the sampler calls this.

        Args:
            stored: The stored rows.
            batch_size: Number of rows to draw, at least 1.
            rng: The buffer's random generator. Use no other source of randomness, so that a saved buffer
                resumes exactly.

        Returns:
            The indexes of `batch_size` stored rows, and their probabilities.

        Raises:
            ValueError: If the scheme can't draw from this buffer. Raise it before using `rng`: a buffer
                without priorities doesn't restore the state of `rng`, because that would slow sampling.
        """

    def replace(
        self, stored: StoredRows, drawn: Drawn, positions: Integers, rng: np.random.Generator
    ) -> None:
        """Replace the rows at some positions of a batch, in place, because they can't be read.

        This happens only in shared memory, if rows are being written or have been overwritten.

        Args:
            stored: The rows stored now.
            drawn: The batch.
            positions: int64[m], which rows of the batch to replace.
            rng: The buffer's random generator.
        """
        again = self.draw(stored, len(positions), rng)
        drawn.indexes[positions], drawn.probabilities[positions] = again.indexes, again.probabilities


class Distribution(Scheme):
    """A scheme in which P(row) depends only on the stored rows, not on the batch."""

    @abstractmethod
    def probabilities(self, stored: StoredRows, indexes: Integers) -> Floats:
        """Return P(row) of stored rows, float64[n].

        Args:
            stored: The stored rows.
            indexes: int64[n], each of a stored row.
        """


def check_scheme(scheme: object, fields: Mapping[str, object]) -> None:
    """Raise an error if this is not a scheme, or a field has the name of an array that a scheme adds."""
    if not isinstance(scheme, Scheme):
        raise TypeError(f"scheme must be a scheme such as Uniform(), not {scheme!r:.60}.")
    if taken := SCHEME_SPECS.keys() & fields.keys():
        raise ValueError(
            f"A sample with a scheme contains arrays with the names {sorted(taken)}; rename these fields."
        )


def tree_of(stored: StoredRows, scheme: Scheme) -> SumTree:
    """Return the tree of masses; raise ValueError if there is none, or every mass is 0."""
    if stored.tree is None:
        raise ValueError(
            f"{type(scheme).__name__} requires priorities, which this buffer does not have. Use "
            "PrioritizedReplayBuffer or MPPrioritizedReplayBuffer, or another scheme."
        )
    stored.tree.check_total()
    return stored.tree


class Uniform(Distribution):
    """Every stored row is equally likely: P(row) = 1 / N.

    A uniform buffer also samples uniformly without a scheme, which is slightly faster. In a prioritized
    buffer, this scheme ignores the priorities.
    """

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw independently, with replacement."""
        indexes = random_below(stored.row_count, batch_size, rng)
        indexes += stored.oldest_index
        share = 1.0 / stored.row_count
        return Drawn(indexes, np.full(batch_size, share), share)

    def probabilities(self, stored: StoredRows, indexes: Integers) -> Floats:
        """Return 1 / N for each row."""
        return np.full(len(indexes), 1.0 / stored.row_count)


class Proportional(Distribution):
    """A row's probability is proportional to its mass: P(row) = m / Σ m, with m = (priority + eps) ** alpha.

    A prioritized buffer draws the same rows without a scheme. Other buffers raise ValueError.
    """

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw one row from each of `batch_size` equal segments of the total mass."""
        tree = tree_of(stored, self)
        slots, masses = tree.find((np.arange(batch_size) + rng.random(batch_size)) / batch_size * tree.total)
        return Drawn(stored.indexes_of(slots), masses / tree.total, float(tree.minima[ROOT]) / tree.total)

    def probabilities(self, stored: StoredRows, indexes: Integers) -> Floats:
        """Return the share of each row's mass in the total."""
        tree = tree_of(stored, self)
        return tree.leaves[indexes % stored.capacity] / tree.total


class Geometric(Distribution):
    """Newer rows are more likely: each `half_life` steps of age halve the probability.

        P(row) ∝ 2 ** (-age / half_life)        a geometric distribution, truncated at the oldest row

    A draw takes O(1), without a tree. A half-life far above the number of stored rows is uniform sampling.

    If rows of several environments are added in turns, one of each, pass their number: the age is then the
    number of newer rows of the same environment, and each environment's newest row has age 0.

    In a prioritized buffer, the weights undo the preference for newer rows; to keep it, pass beta=0. With
    normalize="buffer", the oldest row has the largest weight; if all others are too small to learn from,
    `sample` raises an error.

    Example:
        >>> geometric = Geometric(half_life=1)
        >>> rows = StoredRows(oldest_index=4, next_index=7, capacity=3, tree=None)
        >>> geometric.probabilities(rows, np.array([6, 5, 4])).round(4).tolist()
        [0.5714, 0.2857, 0.1429]
    """

    def __init__(self, half_life: float, *, num_envs: int = 1) -> None:
        """Choose the half-life.

        Args:
            half_life: Age at which a row has half the probability of the newest row, in steps of one
                environment; finite and above 0.
            num_envs: Number of environments whose rows are added in turns.

        Raises:
            TypeError: If half_life is not a number, or num_envs is not an integer.
            ValueError: If a value is out of range.
        """
        if not 0.0 < checked_number("half_life", half_life) < math.inf:
            raise ValueError(
                f"half_life must be finite and above 0, not {half_life}. To ignore the age, use Uniform()."
            )
        self.half_life = float(half_life)
        self.environments = checked_at_least("num_envs", num_envs, 1)
        # P(age + 1) / P(age) = e^-decay. Beyond the limit, P of all but the newest rows is practically 0.
        self._decay = min(math.log(2.0) / self.half_life, 700.0)

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw the age by the inverse of its cumulative distribution, then the environment."""
        environments, last, oldest_rows, total, newest = self._constants(stored)
        uniforms = rng.random(batch_size if environments == 1 else (2, batch_size))
        ages = uniforms if environments == 1 else uniforms[0]
        ages *= -total
        np.log1p(ages, out=ages)  # log1p and expm1 remain exact as the decay approaches 0
        ages /= -self._decay
        np.floor(ages, out=ages)
        np.minimum(ages, last, out=ages)  # only rounding errors are greater
        newer = ages
        if environments > 1:
            newer = ages * environments
            newer += np.floor(uniforms[1] * np.where(ages == last, oldest_rows, environments))
        indexes = np.subtract(stored.next_index - 1, newer).astype(np.int64)
        ages *= -self._decay
        probabilities = np.exp(ages, out=ages)
        probabilities *= newest
        return Drawn(indexes, probabilities, max(newest * math.exp(-self._decay * last), SMALLEST))

    def probabilities(self, stored: StoredRows, indexes: Integers) -> Floats:
        """Return the probability of each row, from its age."""
        environments, _, _, _, newest = self._constants(stored)
        return newest * np.exp(-self._decay * ((stored.next_index - 1 - indexes) // environments))

    def _constants(self, stored: StoredRows) -> tuple[int, int, int, float, float]:
        """Return what depends only on the number of stored rows.

        These are the number of environments; the age of the oldest rows; the number of rows of that age; the
        sum Σ_rows q (1 - q)^age / environments with q = 1 - e^-decay; and P of a row of age 0.
        """
        environments = self.environments
        last = (stored.row_count - 1) // environments
        oldest_rows = stored.row_count - last * environments
        q = -math.expm1(-self._decay)
        share = oldest_rows / environments
        total = -math.expm1(-self._decay * last) + share * q * math.exp(-self._decay * last)
        return environments, last, oldest_rows, total, q / (environments * total)


class Combined(Scheme):
    """The newest rows are in every batch; another scheme draws the other rows.

    This reduces the harm of a buffer that is too large, because every new row is sampled at once. With
    several environments, pass their number, so that the newest row of each is in every batch.

    The newest rows come first in the batch. With n of them in a batch of B rows, and P of the other scheme,
    P(row) is ((B - n) P + 1) / B for the newest rows, and (B - n) P / B for all others.
    """

    def __init__(self, newest: int = 1, scheme: Distribution | None = None) -> None:
        """Choose the number of newest rows.

        Args:
            newest: Number of newest rows that are in every batch.
            scheme: Draws the other rows of the batch, from all stored rows. None means `Uniform()`.

        Raises:
            TypeError: If newest is not an integer, or the scheme can't be combined.
            ValueError: If newest is below 1.
        """
        scheme = Uniform() if scheme is None else scheme
        if not isinstance(scheme, Distribution):
            raise TypeError(
                f"Combined requires a scheme that draws every row with a fixed probability, such as "
                f"Uniform() or Geometric(...), not {scheme!r:.60}."
            )
        self.newest = checked_at_least("newest", newest, 1)
        self.scheme = scheme

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Take the newest rows, and draw the others."""
        newest, others = self.newest, batch_size - self.newest
        if newest > stored.row_count:
            raise ValueError(
                f"Combined(newest={newest}) requires at least {newest} stored rows, not {stored.row_count}; "
                "add more before the first sample."
            )
        if others < 1:
            raise ValueError(
                f"Combined(newest={newest}) requires a batch_size above {newest}, not {batch_size}."
            )
        first_new = stored.next_index - newest
        drawn = self.scheme.draw(stored, others, rng)
        new = np.arange(first_new, stored.next_index)
        *of_new, of_oldest = self.scheme.probabilities(stored, np.append(new, stored.oldest_index))
        indexes = np.concatenate([new, drawn.indexes])
        probabilities = np.concatenate([of_new, drawn.probabilities])
        least_old = drawn.least if newest < stored.row_count else math.inf
        limit = drawn.least * (1 + ROUNDING)
        # The rarest row may be new, so look at all old rows, unless the oldest is equally rare: O(rows).
        if min(of_new) <= limit and not 0.0 < of_oldest <= limit:
            old = self.scheme.probabilities(stored, np.arange(stored.oldest_index, first_new))
            least_old = old.min(where=old > 0.0, initial=math.inf)
        probabilities *= others
        probabilities += indexes >= first_new
        probabilities /= batch_size
        # A new row is in the batch even if the other scheme never draws it.
        least = min(others * least_old / batch_size, probabilities[:newest].min())
        return Drawn(indexes, probabilities, float(least))

    def replace(
        self, stored: StoredRows, drawn: Drawn, positions: Integers, rng: np.random.Generator
    ) -> None:
        """Replace rows, including the newest rows, with rows that the other scheme draws."""
        again = self.scheme.draw(stored, len(positions), rng)
        drawn.indexes[positions] = again.indexes
        drawn.probabilities[positions] = again.probabilities * (1.0 - self.newest / len(drawn.indexes))


class Reverse(Scheme):
    """A batch walks back from the newest row, `stride` rows at a time; the next batch begins one row earlier.

    A reward therefore reaches the rows before it within a few batches. After 2 · stride batches, the walk
    begins at the newest row again. A walk that passes the oldest row continues at the newest row. A batch
    contains a row twice only if the batch is larger than the buffer. Choose a stride that doesn't divide the
    length of the episodes; otherwise, a batch consists of similar rows. The author mixes these batches with
    uniform batches, about half of each.

    The rows are not random, except for replacements in shared memory. P(row) is 1 / batch_size for each row
    of the batch, and the weights in a prioritized buffer are 1.

    The object keeps its position, so use one object for each buffer. To resume exactly, save `position`
    (an integer, or None) together with the buffer, or pickle the object.

    Attributes:
        position: Index at which the next batch begins. If it is None, or the index of a row that is no longer
            stored, the next batch begins at the newest row.
    """

    def __init__(self, stride: int = 300) -> None:
        """Choose the stride.

        Args:
            stride: Distance between two rows of a batch, in rows.

        Raises:
            TypeError: If the stride is not an integer.
            ValueError: If the stride is below 1.
        """
        self.stride = checked_at_least("stride", stride, 1, limit=math.inf)
        self.position: int | None = None

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Walk back once; the position changes."""
        newest, start = stored.next_index - 1, self.position
        if start is None or not max(stored.oldest_index, newest - 2 * self.stride + 1) <= start <= newest:
            start = newest
        rows = stored.row_count
        steps = np.arange(batch_size) % rows
        # Walks of this length end where they began; the next one begins a row earlier, so that all differ.
        cycle = rows // math.gcd(rows, self.stride)
        stride = self.stride % rows  # the same walk, and the product can't overflow
        ages = (newest - start + steps * stride + steps // cycle) % rows
        times = batch_size // rows + (steps < batch_size % rows)  # of each row in the batch
        self.position = start - 1
        return Drawn(newest - ages, times / batch_size, max(batch_size // rows, 1) / batch_size)

    def replace(
        self, stored: StoredRows, drawn: Drawn, positions: Integers, rng: np.random.Generator
    ) -> None:
        """Draw the other rows uniformly."""
        drawn.indexes[positions] = Uniform().draw(stored, len(positions), rng).indexes
