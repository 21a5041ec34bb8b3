"""The sum tree of `compiled_sum_tree`, with all queries walking down together.

What it fixes of the compiled one: the waiting. On one level no query depends on another. The loop over
queries is the inner one, and has no branch whose outcome the processor would have to guess. So it asks
memory for the nodes of many queries before the first of them has come. Steps and results are the same.

Still wrong with it: an update goes through 20 levels of memory. The package stores every third level only, so
that eight children share a cache line, and goes through seven. The weights also need the smallest mass, which
this tree does not know.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@njit
def set_level_by_level(nodes: Floats, slots: Integers, masses: Floats) -> None:
    """Set the leaves of slots, then their parents, then the parents of those."""
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
    """Return the leaf of each query; all queries take one step down, then all take the next."""
    leaf_count = len(nodes) // 2
    reached = np.ones(len(queries), np.int64)  # the node that each query stands on; all begin at the root
    rest = queries.copy()  # where in that node's masses each query lies
    level = 1
    while level < leaf_count:
        for i in range(len(queries)):
            left, query = 2 * reached[i], rest[i]
            to_the_right = query >= nodes[left]
            rest[i] = query - nodes[left] if to_the_right else query
            reached[i] = left + to_the_right
        level *= 2
    for i in range(len(queries)):
        while nodes[reached[i]] == 0.0 and reached[i] > leaf_count:
            reached[i] -= 1
    return reached


class LevelByLevel:
    """The masses of `capacity` slots as the leaves of a binary tree in an array."""

    def __init__(self, capacity: int) -> None:
        """Begin with masses of 0."""
        self.leaf_count = 1
        while self.leaf_count < capacity:
            self.leaf_count *= 2
        self.nodes = np.zeros(2 * self.leaf_count)  # float64[2 * leaf_count]: node 1 is the root

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.nodes[1])

    def set(self, slots: Integers, masses: Floats) -> None:
        """Set the masses of slots, in order: of a repeated slot the last mass stays."""
        set_level_by_level(self.nodes, slots, masses)

    def find(self, queries: Floats) -> tuple[Integers, Floats]:
        """Return the slots that own these points of [0, total), int64[n], and their masses, float64[n]."""
        leaves = find_level_by_level(self.nodes, queries)
        return leaves - self.leaf_count, self.nodes[leaves]
