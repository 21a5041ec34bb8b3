"""Solutions to the exercises of chapter 04."""

import math

import numpy as np


class MyTree:
    """`set`: the leaf, then each node above it from its two children."""

    def __init__(self, capacity):
        self.leaf_count = 1
        while self.leaf_count < capacity:
            self.leaf_count *= 2
        self.nodes = [0.0] * (2 * self.leaf_count)

    @property
    def total(self):
        return self.nodes[1]

    def set(self, slots, masses):
        for slot, mass in zip(slots, masses, strict=True):
            node = self.leaf_count + slot
            self.nodes[node] = mass
            while node > 1:
                node //= 2
                self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]


class MySumTree(MyTree):
    """`find_one`: left only if the query is less than the left sum; never a leaf of mass 0."""

    def find(self, queries):
        leaves = [self.find_one(query) for query in queries]
        return np.array(leaves) - self.leaf_count, np.array([self.nodes[leaf] for leaf in leaves])

    def find_one(self, query):
        node = 1
        while node < self.leaf_count:
            node *= 2
            if query >= self.nodes[node]:
                query -= self.nodes[node]
                node += 1
        while self.nodes[node] == 0 and node > self.leaf_count:
            node -= 1
        return node


# 1. 10 ≥ 9: right, with 10 - 9 = 1. 1 < 2.5: left. 1 ≥ 0.5: right, to node 13, which is slot 5.
my_path = [1, 3, 6, 13]


def my_set_minimum(minima, slot, mass):
    """2. Like `set` of the sum tree, with `min` instead of `+`; masses of 0 are excluded."""
    node = len(minima) // 2 + slot
    minima[node] = mass if mass > 0 else math.inf
    while node > 1:
        node //= 2
        minima[node] = min(minima[2 * node], minima[2 * node + 1])


def my_range_sum(nodes, first, last):
    """3. `high` is the end of the range, which is excluded: one more than the leaf of the last slot."""
    low, high = first + len(nodes) // 2, last + 1 + len(nodes) // 2
    total = 0.0
    while low < high:
        if low % 2 == 1:
            total += nodes[low]
            low += 1
        if high % 2 == 1:
            high -= 1
            total += nodes[high]
        low, high = low // 2, high // 2
    return total
