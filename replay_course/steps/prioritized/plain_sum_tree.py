"""A sum tree as a binary heap in a list: sampling descends the tree, and updating ascends it.

    node 1                  9              a query of 3.5: 3.5 ≥ 1, so right, with 3.5 - 1 = 2.5 left;
    nodes 2, 3         1         8                         2.5 < 3, so left: node 6, which is slot 2
    nodes 4 to 7     1   0     3   5

Node 1 is the root. Node n has the children 2n and 2n + 1, so its parent is n // 2. A leaf holds the mass of a
slot; every other node holds the sum of its two children.

Improvement over the running sums: a new mass changes only the nodes between its leaf and the root, which are
20 for a million leaves. A draw reads the same number.

Remaining problem: Python interprets every step, which takes far longer than the step's single addition.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


class PlainSumTree:
    """The masses of `capacity` slots as the leaves of a binary tree."""

    def __init__(self, capacity: int) -> None:
        """Initialise all masses to 0."""
        self.leaf_count = 1
        while self.leaf_count < capacity:  # a power of two: all leaves on one level, in slot order
            self.leaf_count *= 2
        self.nodes = [0.0] * (2 * self.leaf_count)  # the leaf of a slot is node leaf_count + slot

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return self.nodes[1]

    def set(self, slots: Iterable[int], masses: Iterable[float]) -> None:
        """Set the masses of slots in order, so that the last mass of a repeated slot wins."""
        for slot, mass in zip(slots, masses, strict=True):
            node = self.leaf_count + int(slot)
            self.nodes[node] = float(mass)
            while node > 1:
                node //= 2
                # recomputed, because adding differences would accumulate rounding errors
                self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, queries: Iterable[float]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the slot, int64[n], and its mass, float64[n], for each query in [0, total)."""
        leaves = [self.find_one(query) for query in queries]
        return np.array(leaves, np.int64) - self.leaf_count, np.array([self.nodes[leaf] for leaf in leaves])

    def find_one(self, query: float) -> int:
        """Return the leaf that contains a point of [0, total)."""
        node = 1
        while node < self.leaf_count:
            node *= 2
            if query >= self.nodes[node]:  # left only if strictly less: an interval excludes its end
                query -= self.nodes[node]
                node += 1
        while self.nodes[node] == 0.0 and node > self.leaf_count:
            node -= 1  # the query equals the total, or rounding moved it past the last leaf with mass
        return node
