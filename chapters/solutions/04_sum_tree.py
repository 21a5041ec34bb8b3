"""Solutions to the exercises of chapter 04."""

import math

# 1. 10 ≥ 9: right, with 10 - 9 = 1. 1 < 2.5: left. 1 ≥ 0.5: right, to node 13, which is slot 5.
my_path = [1, 3, 6, 13]


def my_set_minimum(minima, slot, mass):
    """2. Like `set` of the sum tree, with `min` instead of `+`; masses of 0 are excluded."""
    node = len(minima) // 2 + slot
    minima[node] = mass if mass > 0 else math.inf
    while node > 1:
        node //= 2
        minima[node] = min(minima[2 * node], minima[2 * node + 1])


def my_find(nodes, query):
    """3. With `>`, a query equal to the left sum went left, to a slot that doesn't own it or has no mass."""
    leaf_count = len(nodes) // 2
    node = 1
    while node < leaf_count:
        node *= 2
        if query >= nodes[node]:
            query -= nodes[node]
            node += 1
    return node - leaf_count
