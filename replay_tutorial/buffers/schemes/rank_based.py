"""Rank-based prioritization: the probability of a row depends on its rank, not on the size of its TD error.

    P(i) = rank(i)^-α / Σ_r r^-α        rank 1 is the row with the largest priority

A single outlier among the TD errors gets rank 1, however large it is, and the other probabilities remain the
same. The ranks from a + 1 to b have the probability (H[b] - H[a]) / H[N], where H[n] = Σ_{r≤n} r^-α is
computed once. Masses have the same order as the priorities, so the masses in the sum tree determine the
ranks, and `ranking` finds the rows. Rows whose masses differ by less than 1/64 may be tied: they share a
group, and each has the mean probability of the group's ranks, so that none of them is favoured.

Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.3 and appendix B.2.1. The paper's array
of a binary heap is only approximately sorted, and its segments are recomputed when N has changed.
"""

from typing import Any

import numpy as np

from replay_tutorial.buffers.ranking import LOW, Groups, Ranking, draw_by_rank
from replay_tutorial.buffers.rows import checked_share
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.buffers.schemes.scheme import Distribution, Drawn, StoredRows, tree_of


class RankBased(Distribution):
    """A row's probability is proportional to rank^-alpha; rank 1 is the row with the largest priority.

    Unlike proportional prioritization, it is insensitive to outliers and to the scale of the TD errors. It
    requires a prioritized buffer, whose own alpha must be above 0, so that the masses have the order of the
    priorities. Rows of mass 0 are never drawn. Every priority update takes effect at the next draw.

    O(batch_size + number of groups of equal mass + changed priorities). The first draw from a buffer takes
    O(capacity), and the buffer then keeps about 40 bytes per row until `clear`.

    Example:
        >>> from replay_tutorial import PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(1000, {"obs": {"shape": 4}}, seed=0)
        >>> buffer.add(obs=np.zeros((100, 4)), priorities=np.arange(100))
        0
        >>> batch = buffer.sample(32, beta=0.5, scheme=RankBased(alpha=0.7))
        >>> buffer.update_priorities(batch["indexes"], np.full(32, 0.5))
    """

    def __init__(self, alpha: float = 0.7) -> None:
        """Create a scheme, which can be used with any number of buffers.

        Args:
            alpha: Exponent of the ranks, in [0, 1]; 0 samples uniformly. The paper uses alpha=0.7, and beta
                from 0.5 to 1.

        Raises:
            TypeError: If alpha is not a number.
            ValueError: If alpha is out of range.
        """
        self.alpha = checked_share("alpha", alpha)
        self._cumulative: Floats = np.zeros(1)  # [ranks + 1], H[n] = Σ_{r≤n} r^-alpha

    def draw(self, stored: StoredRows, batch_size: int, rng: np.random.Generator) -> Drawn:
        """Draw one row from each of `batch_size` equal segments of the total probability."""
        groups, uniforms = self._groups(stored), rng.random(2 * batch_size)
        slots, probabilities = np.empty(batch_size, np.int64), np.empty(batch_size)
        least = draw_by_rank(groups, self._cumulative, uniforms, slots, probabilities)
        return Drawn(stored.indexes_of(slots), probabilities, least)

    def probabilities(self, stored: StoredRows, indexes: Integers) -> Floats:
        """Return P(row) of stored rows, float64[n]; 0 for rows of mass 0. O(n + number of groups)."""
        groups = Groups(*self._groups(stored))
        used = np.flatnonzero(groups.counts)[::-1]
        counts = groups.counts[used]
        cumulative = self._cumulative[np.append(0, np.cumsum(counts))]
        shares = np.zeros(len(groups.counts))
        shares[used] = np.diff(cumulative) / counts / cumulative[-1]
        return shares[groups.places[indexes % stored.capacity] >> LOW]

    def _groups(self, stored: StoredRows) -> tuple[Any, ...]:
        """Return the current `Groups` of the stored rows, and extend H to all ranks."""
        tree = tree_of(stored, self)
        if stored.alpha == 0.0:
            raise ValueError(
                "RankBased requires a buffer with alpha above 0: with alpha=0, all masses are equal and have "
                "no order. The alpha of RankBased is the exponent of the ranks."
            )
        if len(self._cumulative) <= stored.capacity:
            powers = np.arange(1.0, stored.capacity + 1) ** -self.alpha
            self._cumulative = np.concatenate([[0.0], np.cumsum(powers)])
        if tree.ranking is None:
            tree.ranking = Ranking(stored.capacity)
        return tree.ranking.groups(tree.leaves)
