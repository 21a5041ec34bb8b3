"""The sum tree of `compiled_sum_tree`, with all queries descending together.

Improvement over the compiled tree: memory accesses overlap. Within a level no query depends on another, so
the loop over queries is the inner loop, without a branch that the processor would have to predict. It
therefore requests the nodes of many queries before the first arrives. Steps and results are unchanged.

Remaining problems: an update passes through 20 levels in memory. The package stores only every third level,
so that eight children share a cache line, and passes through seven. The importance weights also need the
smallest mass, which this tree does not track.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@njit
def set_level_by_level(nodes: Floats, slots: Integers, masses: Floats) -> None:
    """Set the leaves of slots, then their parents, then the parents of these."""
    leaf_count = len(nodes) // 2
    changed = slots + leaf_count
    for i in range(len(slots)):
        nodes[changed[i]] = masses[i]
    level = leaf_count
    while level > 1:
        level //= 2
        for i in range(len(slots)):
            node = changed[i] // 2
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
            changed[i] = node


@njit
def find_level_by_level(nodes: Floats, queries: Floats) -> Integers:
    """Return the leaf of each query. All queries descend one level before any descends the next."""
    leaf_count = len(nodes) // 2
    reached = np.ones(len(queries), np.int64)  # the node that each query has reached; all start at the root
    rest = queries.copy()  # position of each query within that node's mass
    level = 1
    while level < leaf_count:
        for i in range(len(queries)):
            left, query = 2 * reached[i], rest[i]
            reached[i] = left + (query >= nodes[left])
            to_the_right = query - nodes[left]
            # Not `query >= nodes[left]`: of two selections by the same comparison, LLVM makes a branch.
            rest[i] = to_the_right if to_the_right >= 0.0 else query
        level *= 2
    for i in range(len(queries)):
        while nodes[reached[i]] == 0.0 and reached[i] > leaf_count:
            reached[i] -= 1
    return reached


class LevelByLevel:
    """The masses of `capacity` slots as the leaves of a binary tree in an array."""

    def __init__(self, capacity: int) -> None:
        """Initialise all masses to 0."""
        self.leaf_count = 1
        while self.leaf_count < capacity:
            self.leaf_count *= 2
        self.nodes = np.zeros(2 * self.leaf_count)  # float64[2 * leaf_count]: node 1 is the root

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.nodes[1])

    def set(self, slots: Integers, masses: Floats) -> None:
        """Set the masses of slots in order, so that the last mass of a repeated slot wins."""
        set_level_by_level(self.nodes, slots, masses)

    def find(self, queries: Floats) -> tuple[Integers, Floats]:
        """Return the slot, int64[n], and its mass, float64[n], for each query in [0, total)."""
        leaves = find_level_by_level(self.nodes, queries)
        return leaves - self.leaf_count, self.nodes[leaves]
