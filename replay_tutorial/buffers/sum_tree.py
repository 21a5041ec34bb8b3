"""A sum tree: draw a leaf with probability proportional to its mass, in O(log capacity).

    sums            10              a query of 6.5: 6.5 ≥ 4, so right, with 6.5 - 4 = 2.5 left;
                4       6                           2.5 < 5, so left: slot 2
    slots      1 3     5 1

Every leaf holds the mass of one slot; every other node holds the sum of its children, so the root holds the
total. To draw, pick a number below the total and walk down: left if it is less than what the left half holds,
else right, after taking that off. A batch goes down level by level, all queries together, so that the
processor waits for many nodes from memory at once; one query at a time is the same algorithm, but waits for
each node alone.

The tree is binary, but only every third level is stored, so that a node has eight children: they share a
cache line of 64 bytes, and the two levels between are a few additions. Above a leaf of a million stand seven
nodes, in the plain binary tree twenty.

Left out: deletion (set the mass to 0) and growth. A second tree, of minima, gives the smallest mass in O(1).

Source: Schaul et al. 2016, "Prioritized Experience Replay", appendix B.2.1.
"""

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats, Integers, jitable, kernel, types, uint64, writable

# Node n has the children 8 (n - 6) to 8 (n - 6) + 7, and the parent n // 8 + 6. The numbers begin at 7 so
# that eight siblings begin at a multiple of eight. The nodes 0 to 6 are not used.
ROOT = 7
CHILDREN = 8

Nodes = Annotated[npt.NDArray[np.uint64], types.uint64[::1]]

# Nodes are unsigned in the kernels: Numba would test a signed index for being negative, at every step.
ONE, TWO, FOUR, SIX, LAST = uint64(1), uint64(2), uint64(4), uint64(6), uint64(CHILDREN - 1)
EIGHTH = uint64(3)  # shift right by it: divided by eight


@jitable
def parent(node: np.uint64) -> np.uint64:
    """Return the node above."""
    return (node >> EIGHTH) + SIX


@jitable
def first_child(node: np.uint64) -> np.uint64:
    """Return the first of the eight nodes below."""
    return (node - SIX) << EIGHTH


@kernel
def first_leaf(sums: Floats) -> np.uint64:
    """Find the node of slot 0: the first of the last level."""
    node = uint64(ROOT)
    while first_child(node) < uint64(sums.shape[0]):
        node = first_child(node)
    return node


@kernel
def sum_of_four(sums: Floats, node: np.uint64) -> float:
    """Add a node and the three after it, as the binary tree would."""
    return (sums[node] + sums[node + ONE]) + (sums[node + TWO] + sums[node + TWO + ONE])


@kernel
def min_of_eight(masses: Floats, first: np.uint64) -> float:
    """Find the smallest mass above 0 of eight siblings; 0 if there is none."""
    smallest = np.inf
    for node in range(first, first + uint64(CHILDREN)):
        mass: Any = masses[uint64(node)]
        smallest = mass if 0.0 < mass < smallest else smallest
    return smallest if smallest < np.inf else 0.0


@kernel
def recompute_sums(sums: Floats, nodes: Nodes) -> None:
    """Recompute the sums of nodes of one level, and of their ancestors, level by level; uses `nodes` up."""
    count = uint64(nodes.shape[0])
    while nodes[0] >= uint64(ROOT):
        parents, last = uint64(0), uint64(0)
        for i in range(count):
            node = nodes[i]
            first = first_child(node)
            # recompute, not += difference: differences pile up rounding errors until a draw runs off the tree
            sums[node] = sum_of_four(sums, first) + sum_of_four(sums, first + FOUR)
            above = parent(node)
            nodes[parents] = above
            # without a branch; a parent like the last one is written, but not counted, and so written over
            parents += uint64(above != last)
            last = above
        count = parents


@kernel
def recompute_minima(sums: Floats, minima: Floats, nodes: Nodes) -> None:
    """Recompute the minima of nodes just above the leaves, and of their ancestors as far as they change."""
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
    """Recompute both trees above the leaves of slots."""
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
    """Set leaves, and both trees above them."""
    first = first_leaf(sums)
    for i in range(uint64(slots.shape[0])):  # in order: of a repeated slot the last mass stays
        sums[first + uint64(slots[i])] = masses[i]
    recompute_above(sums, minima, slots)


@kernel
def last_leaf_with_mass(sums: Floats, node: np.uint64) -> np.uint64:
    """Find the last leaf with mass, from a leaf without mass that no leaf with mass follows."""
    first = first_leaf(sums)
    while sums[node] == 0.0:
        node = node - ONE if node & LAST else parent(node)
    while node < first:
        node = first_child(node) | LAST
        while sums[node] == 0.0:
            node -= ONE
    return node


@kernel
def find_leaves(sums: Floats, queries: Floats) -> tuple[Integers, Floats]:
    """Find where queries lie, the masses laid end to end in the order of slots; all walk down together.

    A query at or beyond the total finds the last slot with mass; no query finds a slot without.

    Returns:
        The slots found, int64[n], and their masses, float64[n].
    """
    count, first = uint64(queries.shape[0]), first_leaf(sums)
    nodes = np.empty(queries.shape[0], np.uint64)
    rest = np.empty(queries.shape[0])  # of each query what lies below its node
    for i in range(count):
        nodes[i], rest[i] = ROOT, queries[i]
    level = uint64(ROOT)
    while level < first:
        for i in range(count):  # without a branch: the processor cannot guess the way
            node, query = first_child(nodes[i]), rest[i]
            left = sum_of_four(sums, node)
            to_the_right = query >= left  # strictly less goes left: never into a leaf of mass 0
            query = query - left if to_the_right else query
            node += uint64(to_the_right) << TWO
            left = sums[node] + sums[node + ONE]
            to_the_right = query >= left
            query = query - left if to_the_right else query
            node += uint64(to_the_right) << ONE
            left = sums[node]
            to_the_right = query >= left
            rest[i] = query - left if to_the_right else query
            nodes[i] = node + uint64(to_the_right)
        level = first_child(level)
    slots, masses = np.empty(queries.shape[0], np.int64), np.empty(queries.shape[0])
    for i in range(count):
        node = nodes[i]
        if sums[node] == 0.0:  # rounding, or a query equal to the total, led past the last leaf that has mass
            node = last_leaf_with_mass(sums, node)
        slots[i], masses[i] = node - first, sums[node]
    return slots, masses


@kernel
def find_stratified(sums: Floats, uniforms: Floats) -> tuple[Integers, Floats]:
    """Stretch n numbers in [0, 1) to one query in each of n equal parts of the total, and find their leaves.

    A slot's probability is mass / total, and slots come in ascending order (appendix B.2.1).

    Returns:
        The slots found, int64[n], and their masses, float64[n].
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
        leaf_count: Leaves: the smallest power of eight that is at least the capacity.
        sums: float64[nodes]; a leaf's mass, a parent's sum of its children.
        minima: float64[nodes above the leaves]; the smallest mass above 0 below a node, 0 if there is none.
        leaves: float64[leaf_count], the masses, one per slot: a view of `sums`. What is written to it counts
            after `recompute`.
    """

    def __init__(self, capacity: int) -> None:
        """Build a tree of zero masses.

        Args:
            capacity: Number of slots, at least 1.

        Raises:
            ValueError: If the capacity is below 1.
        """
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}.")
        # All leaves lie on one level, so that they stand in the order of their slots. Memory is not touched
        # before it is used, so the leaves beyond the capacity cost nothing.
        self.leaf_count, first = CHILDREN, ROOT + 1
        while self.leaf_count < capacity:
            self.leaf_count, first = self.leaf_count * CHILDREN, (first - (ROOT - 1)) * CHILDREN
        self.sums: Floats = aligned_zeros(first + self.leaf_count)
        self.minima: Floats = aligned_zeros(first)
        self.leaves: Floats = self.sums[first:]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.leaves = self.sums[len(self.minima) :]  # unpickled, they were two arrays

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.sums[ROOT])

    def set(self, slots: Integers, masses: Floats) -> None:
        """Set the masses of slots; of a repeated slot the last mass stays.

        O(n log capacity); allocates up to 16 bytes per slot given.

        Args:
            slots: int64[n], each in [0, capacity).
            masses: float64[n], finite and at least 0.
        """
        set_leaves(self.sums, self.minima, writable(slots), writable(masses))

    def find(self, queries: Floats) -> tuple[Integers, Floats]:
        """Find the slots that own these points, the masses laid end to end; O(n log capacity).

        Args:
            queries: float64[n], each in [0, total); one at or beyond it finds the last slot with mass.

        Returns:
            The slots, int64[n], and their masses, float64[n], each above 0.

        Raises:
            ValueError: If every mass is 0.
        """
        self.check_total()
        return find_leaves(self.sums, writable(queries))

    def recompute(self, slots: Integers) -> None:
        """Bring the nodes above `slots`, int64[n], up to date, after their `leaves` have been written."""
        recompute_above(self.sums, self.minima, writable(slots))

    def check_total(self) -> None:
        """Refuse to draw from nothing.

        Raises:
            ValueError: If every mass is 0.
        """
        if self.sums[ROOT] == 0.0:
            raise ValueError(
                "Every mass is 0, so no slot can be drawn. Give a row a priority above 0, or eps above 0."
            )


def aligned_zeros(count: int) -> Floats:
    """Make float64[count] of zeros that begins with a cache line, so that eight siblings lie in one."""
    zeros = np.zeros(count + CHILDREN)
    start = -(zeros.ctypes.data // zeros.itemsize) % CHILDREN
    return zeros[start : start + count]
