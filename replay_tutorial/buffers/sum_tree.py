"""A sum tree: samples a leaf with probability proportional to its mass, in O(log capacity).

    sums            10              query 6.5:  6.5 ≥ 4, so go right with 6.5 - 4 = 2.5;
                4       6                       2.5 < 5, so go left: slot 2
    slots      1 3     5 1

Each leaf holds the mass of one slot, each inner node the sum of its children, and the root the total. To
sample, draw a number below the total and descend: go left if it is less than the sum of the left child;
otherwise subtract that sum and go right. A batch of queries descends level by level, so that the processor
loads many nodes from memory at the same time instead of waiting for each.

The tree is binary, but only every third level is stored. A stored node has eight children, which share a
cache line of 64 bytes; the sums of the two levels in between are recomputed with a few additions. With a
million leaves, the path to a leaf visits seven nodes instead of the binary tree's twenty.

To delete a slot, set its mass to 0; the tree can't grow. A second tree stores minima and returns the smallest
nonzero mass in O(1).

Source: Schaul et al. 2016, "Prioritized Experience Replay", appendix B.2.1.

Built in chapter 04, *The sum tree*.
"""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.runtime.jit import Floats, Integers, jitable, kernel, types, uint64, writable

if TYPE_CHECKING:  # loaded when masses are ranked
    from replay_tutorial.buffers.ranking import Ranking

# Node n has the children 8 (n - 6) to 8 (n - 6) + 7 and the parent n // 8 + 6. The root is node 7, so that
# each group of eight siblings begins at a multiple of eight. Nodes 0 to 6 are unused.
ROOT = 7
CHILDREN = 8

Nodes = Annotated[npt.NDArray[np.uint64], types.uint64[::1]]

# Kernels use unsigned node numbers, because Numba checks at each access whether a signed index is negative.
ONE, TWO, FOUR, SIX, LAST = uint64(1), uint64(2), uint64(4), uint64(6), uint64(CHILDREN - 1)
THREE = uint64(3)  # shifting by three bits multiplies or divides by eight


@jitable
def parent(node: np.uint64) -> np.uint64:
    """Return the parent of a node."""
    return (node >> THREE) + SIX


@jitable
def first_child(node: np.uint64) -> np.uint64:
    """Return the first of a node's eight children."""
    return (node - SIX) << THREE


@kernel
def first_leaf(sums: Floats) -> np.uint64:
    """Return the node of slot 0, the first node of the last level."""
    node = uint64(ROOT)
    while first_child(node) < uint64(sums.shape[0]):
        node = first_child(node)
    return node


@kernel
def sum_of_four(sums: Floats, node: np.uint64) -> float:
    """Return the sum of a node and the three after it, added in the binary tree's order."""
    return (sums[node] + sums[node + ONE]) + (sums[node + TWO] + sums[node + TWO + ONE])


@kernel
def min_of_eight(masses: Floats, first: np.uint64) -> float:
    """Return the smallest nonzero mass of eight siblings; 0 if all are 0."""
    smallest = np.inf
    for node in range(first, first + uint64(CHILDREN)):
        mass: Any = masses[uint64(node)]
        smallest = mass if 0.0 < mass < smallest else smallest
    return smallest if smallest < np.inf else 0.0


@kernel
def recompute_sums(sums: Floats, nodes: Nodes) -> None:
    """Recompute the sums of nodes on one level and of all their ancestors; overwrites `nodes`."""
    count = uint64(nodes.shape[0])
    while nodes[0] >= uint64(ROOT):
        parents, last = uint64(0), uint64(0)
        for i in range(count):
            node = nodes[i]
            first = first_child(node)
            # recompute instead of adding the difference: rounding errors would accumulate until a draw fails
            sums[node] = sum_of_four(sums, first) + sum_of_four(sums, first + FOUR)
            above = parent(node)
            nodes[parents] = above
            # branch-free: a repeated parent is written but not counted, so the next one overwrites it
            parents += uint64(above != last)
            last = above
        count = parents


@kernel
def recompute_minima(sums: Floats, minima: Floats, nodes: Nodes) -> None:
    """Recompute the minima of parents of leaves, and of their ancestors up to where nothing changes."""
    masses, count = sums, uint64(nodes.shape[0])
    while count > uint64(0):
        changes = uint64(0)
        for i in range(count):
            node = nodes[i]
            smallest = min_of_eight(masses, first_child(node))
            nodes[changes] = parent(node)
            changes += uint64(smallest != minima[node] and node > uint64(ROOT))
            minima[node] = smallest
        masses, count = minima, changes


@kernel
def recompute_above(sums: Floats, minima: Floats, slots: Integers) -> None:
    """Recompute the sums and minima above the leaves of slots."""
    if slots.shape[0] == 0:
        return
    first = first_leaf(sums)
    nodes = np.empty(slots.shape[0], np.uint64)
    count, last = uint64(0), uint64(0)
    for i in range(uint64(slots.shape[0])):
        node = parent(first + uint64(slots[i]))
        nodes[count] = node
        count += uint64(node != last)
        last = node
    recompute_minima(sums, minima, nodes[:count].copy())
    recompute_sums(sums, nodes[:count])


@kernel
def set_leaves(sums: Floats, minima: Floats, slots: Integers, masses: Floats) -> None:
    """Set leaves, and recompute the sums and minima above them."""
    first = first_leaf(sums)
    for i in range(uint64(slots.shape[0])):  # in order, so that the last mass of a repeated slot counts
        sums[first + uint64(slots[i])] = masses[i]
    recompute_above(sums, minima, slots)


@kernel
def last_leaf_with_mass(sums: Floats, node: np.uint64) -> np.uint64:
    """Return the last leaf with nonzero mass; `node` is a leaf of mass 0 after it."""
    first = first_leaf(sums)
    while sums[node] == 0.0:
        node = node - ONE if node & LAST else parent(node)
    while node < first:
        node = first_child(node) | LAST
        while sums[node] == 0.0:
            node -= ONE
    return node


@jitable
def within_child(query: float, left: float) -> float:
    """Return the position of a query within the child that it goes to; the left child has the mass `left`."""
    rest = query - left
    # Not `query >= left`: of two selections by the same comparison, LLVM makes a branch.
    return rest if rest >= 0.0 else query


@kernel
def find_leaves(sums: Floats, queries: Floats) -> tuple[Integers, Floats]:
    """Find the slot of each query, a position in the cumulative sum of the masses; all descend together.

    A query at or above the total finds the last slot with nonzero mass. If masses differ by a factor of 2^53,
    rounding can lead to an earlier one. Slots of mass 0 are never found.

    Returns:
        The slots, int64[n], and their masses, float64[n].
    """
    count, first = uint64(queries.shape[0]), first_leaf(sums)
    nodes = np.empty(queries.shape[0], np.uint64)
    rest = np.empty(queries.shape[0])  # the query relative to the start of its node's masses
    for i in range(count):
        nodes[i], rest[i] = ROOT, queries[i]
    level = uint64(ROOT)
    while level < first:
        for i in range(count):  # branch-free, because the processor can't predict the direction
            node, query = first_child(nodes[i]), rest[i]
            left = sum_of_four(sums, node)
            node += uint64(query >= left) << TWO  # left only if strictly less: never to a leaf of mass 0
            query = within_child(query, left)
            left = sums[node] + sums[node + ONE]
            node += uint64(query >= left) << ONE
            query = within_child(query, left)
            left = sums[node]
            nodes[i] = node + uint64(query >= left)
            rest[i] = within_child(query, left)
        level = first_child(level)
    slots, masses = np.empty(queries.shape[0], np.int64), np.empty(queries.shape[0])
    for i in range(count):
        node = nodes[i]
        if sums[node] == 0.0:  # past the last leaf with mass, because of rounding or a query ≥ the total
            node = last_leaf_with_mass(sums, node)
        slots[i], masses[i] = node - first, sums[node]
    return slots, masses


@kernel
def write_leaves(sums: Floats, queries: Floats, slots: Integers, masses: Floats) -> None:
    """Write what `find_leaves` returns, for Python: see `kernel`."""
    slots[:], masses[:] = find_leaves(sums, queries)


@kernel
def find_stratified(sums: Floats, uniforms: Floats) -> tuple[Integers, Floats]:
    """Sample one slot from each of n equal segments of the total (appendix B.2.1).

    The probability of a slot is mass / total. `uniforms` are n random numbers in [0, 1).

    Returns:
        The slots in ascending order, int64[n], and their masses, float64[n].
    """
    queries = np.empty(uniforms.shape[0])
    for i in range(uniforms.shape[0]):
        queries[i] = (i + uniforms[i]) / uniforms.shape[0] * sums[ROOT]
    return find_leaves(sums, queries)


class SumTree:
    """A sum tree over the masses of `capacity` slots.

    Example:
        >>> tree = SumTree(3)
        >>> tree.set(np.array([0, 1, 2]), np.array([1.0, 0.0, 3.0]))
        >>> slots, masses = tree.find(np.array([0.5, 1.0, 3.9]))
        >>> slots.tolist(), masses.tolist()  # slot 0 owns [0, 1), slot 2 owns [1, 4)
        ([0, 2, 2], [1.0, 3.0, 3.0])

    Attributes:
        leaf_count: Number of leaves: the smallest power of eight that is at least the capacity.
        sums: float64[nodes]; the masses of the leaves and the sums of the inner nodes.
        minima: float64[nodes above the leaves]; the smallest nonzero mass below each node, or 0.
        leaves: float64[leaf_count], the mass of each slot, a view of `sums`. After writing to it, call
            `recompute`.
        ranking: The slots grouped by mass, for rank-based sampling; None if it is not used. Code that
            changes masses in a kernel of its own must first `mark` the slots.
    """

    def __init__(self, capacity: int) -> None:
        """Build a tree of `capacity` zero masses; raise ValueError if `capacity` is below 1."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}.")
        # All leaves are on one level and so in the order of their slots. Leaves beyond the capacity cost no
        # memory, because the operating system allocates pages on the first write.
        self.leaf_count, first = CHILDREN, ROOT + 1
        while self.leaf_count < capacity:
            self.leaf_count, first = self.leaf_count * CHILDREN, (first - (ROOT - 1)) * CHILDREN
        self.sums: Floats = aligned_zeros(first + self.leaf_count)
        self.minima: Floats = aligned_zeros(first)
        self.leaves: Floats = self.sums[first:]
        self.ranking: Ranking | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.sums, self.minima = aligned(self.sums), aligned(self.minima)
        self.leaves = self.sums[len(self.minima) :]  # pickling turned the view into a copy

    @property
    def total(self) -> float:
        """Sum of all masses."""
        return float(self.sums[ROOT])

    def set(self, slots: Integers, masses: Floats) -> None:
        """Set the masses of slots. If a slot is repeated, its last mass is used.

        O(n log capacity); allocates up to 16 bytes per entry of `slots`.

        Args:
            slots: int64[n], each in [0, capacity).
            masses: float64[n], finite and at least 0.
        """
        if self.ranking is not None:
            self.ranking.mark(slots.copy())
        set_leaves(self.sums, self.minima, writable(slots), writable(masses))

    def find(self, queries: Floats) -> tuple[Integers, Floats]:
        """Find the slot of each query, a position in the cumulative sum of the masses. O(n log capacity).

        Args:
            queries: float64[n], each in [0, total); larger queries find the last slot with nonzero mass.

        Returns:
            The slots, int64[n], and their masses, float64[n], all nonzero.

        Raises:
            ValueError: If every mass is 0.
        """
        self.check_total()
        slots, masses = np.empty(len(queries), np.int64), np.empty(len(queries))
        write_leaves(self.sums, writable(queries), slots, masses)
        return slots, masses

    def recompute(self, slots: Integers) -> None:
        """Recompute the nodes above `slots`, int64[n], after writing to their `leaves`."""
        if self.ranking is not None:
            self.ranking.mark(slots.copy())
        recompute_above(self.sums, self.minima, writable(slots))

    def largest_mass(self, capacity: int, bound: float) -> float:
        """Return the largest mass of `capacity` slots, which is at most `bound`; 0 if all are 0.

        O(changed slots), except for the first call; creates the ranking.
        """
        from replay_tutorial.buffers.ranking import Ranking, largest_mass

        if self.ranking is None:
            self.ranking = Ranking(capacity)
        return largest_mass(self.ranking.groups(self.leaves), self.leaves, bound)

    def check_total(self) -> None:
        """Raise ValueError if every mass is 0, so that no slot can be sampled."""
        if self.sums[ROOT] == 0.0:
            raise ValueError(
                "Every mass is 0, so no row can be sampled. Set a priority above 0, or construct the buffer "
                "with eps > 0."
            )


def aligned_zeros(count: int) -> Floats:
    """Return zeros, float64[count], aligned so that each group of eight siblings is one cache line."""
    zeros = np.zeros(count + CHILDREN)
    start = -(zeros.ctypes.data // zeros.itemsize) % CHILDREN
    return zeros[start : start + count]


def aligned(array: Floats) -> Floats:
    """Return a copy that is aligned in the same way."""
    copied = aligned_zeros(len(array))
    copied[:] = array
    return copied
