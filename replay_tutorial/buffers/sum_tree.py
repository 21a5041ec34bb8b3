"""A sum tree: draw a leaf with probability proportional to its mass, in O(log capacity).

Every leaf holds the mass of one slot; every other node holds the sum of its two children, so the root holds
the total. To draw, pick a number below the total and walk down: left if it is less than the left child's sum,
else right, less that sum. A batch goes down level by level, all queries together, because then the memory's
waits overlap; walking one query at a time to its leaf is the same algorithm, twelve times slower.

Left out: deletion (set the mass to 0) and growth. A second tree, of minima, gives the least mass in O(1).

Source: Schaul et al. 2016, "Prioritized Experience Replay", appendix B.2.1.
"""

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import kernel, uint64

ROOT = 1  # node i has the children 2i and 2i + 1; node 0 is not used

BLOCK = 8  # masses, 8 bytes each, in a cache line of 64 bytes

Slots = npt.NDArray[np.int64]
Masses = npt.NDArray[np.float64]

# Nodes are unsigned in the kernels: Numba would test a signed index for being negative, at every step.
LEFT = uint64(1)  # shift a node left by one: its left child; right by one: its parent
RIGHT = uint64(1)  # set the lowest bit of a left child: its right sibling


@kernel("void(float64[::1], int64[::1])")
def recompute_sums(sums: Masses, slots: Slots) -> None:
    """Recompute the ancestors of leaves that have been set, level by level; neighbours share theirs."""
    nodes = np.empty(slots.shape[0], np.uint64)
    width = uint64(sums.shape[0] // 2)  # nodes in the level that is up to date
    for i in range(uint64(slots.shape[0])):
        nodes[i] = width + uint64(slots[i])
    count = uint64(slots.shape[0])
    while width > ROOT:
        parents, last = uint64(0), uint64(0)
        for i in range(count):
            parent = nodes[i] >> LEFT
            left = parent << LEFT
            # recompute, not += difference: differences pile up rounding errors until a draw runs off the tree
            sums[parent] = sums[left] + sums[left | RIGHT]
            nodes[parents] = parent
            # without a branch; if the next parent is the same, it is written over this one
            parents += uint64(parent != last)
            last = parent
        count = parents
        width >>= LEFT


@kernel("void(float64[::1], float64[::1], int64[::1])")
def recompute_minima(minima: Masses, sums: Masses, slots: Slots) -> None:
    """Recompute the minima above leaves that have been set, as far up as they change."""
    leaf_count = uint64(sums.shape[0] // 2)
    width = uint64(minima.shape[0] // 2)
    block_size = leaf_count // width
    nodes = np.empty(slots.shape[0], np.uint64)
    count, last = uint64(0), width  # no block has so high a number
    for i in range(uint64(slots.shape[0])):
        block = uint64(slots[i]) // block_size
        if block == last:
            continue
        last = block
        first = leaf_count + block * block_size
        least = np.inf
        for leaf in range(first, first + block_size):
            mass = sums[uint64(leaf)]
            least = mass if 0.0 < mass < least else least
        nodes[count] = width + block
        if least != minima[width + block]:
            minima[width + block] = least
            count += uint64(1)
    while width > uint64(1) and count > uint64(0):
        changed = uint64(0)
        for i in range(count):
            parent = nodes[i] >> LEFT
            left = parent << LEFT
            least = min(minima[left], minima[left | RIGHT])
            nodes[changed] = parent
            if least != minima[parent]:  # else its ancestors stay as they are
                minima[parent] = least
                changed += uint64(1)
        count = changed
        width >>= LEFT


@kernel("void(float64[::1], float64[::1], int64[::1])")
def recompute_above(sums: Masses, minima: Masses, slots: Slots) -> None:
    """Recompute both trees above the leaves of slots."""
    recompute_sums(sums, slots)
    recompute_minima(minima, sums, slots)


@kernel("void(float64[::1], float64[::1], int64[::1], float64[::1])")
def set_leaves(sums: Masses, minima: Masses, slots: Slots, masses: Masses) -> None:
    """Set leaves, and both trees above them."""
    leaf_count = sums.shape[0] // 2
    for i in range(slots.shape[0]):  # in order: of a repeated slot the last mass stays
        sums[leaf_count + slots[i]] = masses[i]
    recompute_above(sums, minima, slots)


@kernel("uint64(float64[::1], uint64)")
def last_massive_leaf(sums: Masses, node: np.uint64) -> np.uint64:
    """Find the last leaf of mass > 0 at or before a node without mass."""
    while sums[node] == 0.0:
        node = node - uint64(1) if node & RIGHT and sums[node - uint64(1)] > 0.0 else node >> LEFT
    leaf_count = uint64(sums.shape[0] // 2)
    while node < leaf_count:
        left = node << LEFT
        node = left | RIGHT if sums[left | RIGHT] > 0.0 else left
    return node


@kernel("int64[::1](float64[::1], float64[::1])")
def find_leaves(sums: Masses, queries: Masses) -> Slots:
    """Walk all queries down together; leaves in their place the masses that they found."""
    leaf_count = uint64(sums.shape[0] // 2)
    nodes = np.full(queries.shape[0], ROOT, np.uint64)
    width = uint64(1)
    while width < leaf_count:
        for i in range(uint64(queries.shape[0])):  # without a branch: the processor cannot guess the way
            left = nodes[i] << LEFT
            query, mass_on_the_left = queries[i], sums[left]
            to_the_right = query >= mass_on_the_left  # strictly less goes left: never into a leaf of mass 0
            nodes[i] = left | uint64(to_the_right)
            queries[i] = query - mass_on_the_left if to_the_right else query
        width <<= LEFT
    slots = np.empty(queries.shape[0], np.int64)
    found_nothing = False
    for i in range(uint64(queries.shape[0])):
        slots[i] = nodes[i] - leaf_count
        queries[i] = sums[nodes[i]]
        found_nothing |= queries[i] == 0.0
    if found_nothing:  # rounding, or a query equal to the total, led past the last leaf that has mass
        for i in range(uint64(queries.shape[0])):
            if queries[i] == 0.0:
                leaf = last_massive_leaf(sums, nodes[i])
                slots[i] = leaf - leaf_count
                queries[i] = sums[leaf]
    return slots


@kernel("int64[::1](float64[::1], float64[::1])")
def find_stratified(sums: Masses, uniforms: Masses) -> Slots:
    """Stretch numbers in [0, 1) to one query in each of n equal parts of the total, and find them; leaves in their place
    the masses that they found.
    """
    for i in range(uniforms.shape[0]):
        uniforms[i] = (i + uniforms[i]) / uniforms.shape[0] * sums[ROOT]
    return find_leaves(sums, uniforms)


class SumTree:
    """A binary tree over the masses of `capacity` slots.

    Example:
        >>> tree = SumTree(3)
        >>> tree.set(np.array([0, 1, 2]), np.array([1.0, 0.0, 3.0]))
        >>> tree.find(np.array([0.5, 1.0, 3.9])).tolist()  # slot 0 owns [0, 1), slot 2 owns [1, 4)
        [0, 2, 2]

    Attributes:
        leaf_count: Leaves: the least power of two that is at least the capacity.
        sums: float64[2 * leaf_count]; a leaf's mass, a parent's exact sum of its two children.
        minima: float64[2 * blocks]; the least mass above 0 below a node, infinite if there is none. The leaves of
            this tree are blocks of BLOCK slots, whose masses share one cache line.
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
        # A power of two, so that every leaf lies on one level and leaves stand in the order of their slots.
        self.leaf_count = 1 << (capacity - 1).bit_length()
        self.sums: Masses = np.zeros(2 * self.leaf_count)
        self.minima: Masses = np.full(2 * max(self.leaf_count // BLOCK, 1), np.inf)

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.sums[ROOT])

    @property
    def minimum(self) -> float:
        """The least mass above 0; infinite if all masses are 0."""
        return float(self.minima[ROOT])

    @property
    def leaves(self) -> Masses:
        """The masses, float64[leaf_count], one a slot: a view to read; write with `set`."""
        return self.sums[self.leaf_count :]

    def set(self, slots: Slots, masses: Masses) -> None:
        """Set the masses of slots; of a repeated slot the last mass stays.

        O(n log capacity); allocates 8 bytes a slot given.

        Args:
            slots: int64[n], each in [0, capacity).
            masses: float64[n], finite and at least 0.
        """
        set_leaves(self.sums, self.minima, slots, masses)

    def find(self, queries: Masses) -> Slots:
        """Find the slots in which queries lie, the masses laid end to end in the order of slots.

        O(n log capacity). Never finds a slot of mass 0; a query at or beyond the total finds the last slot that
        has mass.

        Args:
            queries: float64[n], each in [0, total).

        Returns:
            int64[n], the slot of each query.

        Raises:
            ValueError: If every mass is 0.
        """
        self.check_total()
        return find_leaves(self.sums, queries.copy())

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Slots, Masses]:
        """Draw slots, each with probability mass / total, stratified.

        The range [0, total) is split into `batch_size` equal parts, and one query is drawn in each (Schaul et al.
        2016, appendix B.2.1), so the slots come in ascending order.

        Args:
            batch_size: Number of slots to draw, at least 1.
            rng: The source of randomness; `batch_size` doubles are taken from it.

        Returns:
            The slots, int64[batch_size], and their masses, float64[batch_size].

        Raises:
            ValueError: If every mass is 0.
        """
        self.check_total()
        uniforms = rng.random(batch_size)
        slots = find_stratified(self.sums, uniforms)
        return slots, uniforms

    def check_total(self) -> None:
        """Refuse to draw from nothing.

        Raises:
            ValueError: If every mass is 0.
        """
        if self.sums[ROOT] == 0.0:
            raise ValueError(
                "Every mass is 0, so no slot can be drawn. Give a row a priority above 0, or eps above 0."
            )
