"""The exercises of chapter 04, solved."""

import math

# 1. 10 ≥ 9: right, 1 is left. 1 < 2.5: left. 1 ≥ 0.5: right, to node 13, slot 5.
my_path = [1, 3, 6, 13]


def my_set_minimum(minima, slot, mass):
    """2. As `set` of the sum tree, with `min` for `+`; a mass of 0 must not be the smallest."""
    node = len(minima) // 2 + slot
    minima[node] = mass if mass > 0 else math.inf
    while node > 1:
        node //= 2
        minima[node] = min(minima[2 * node], minima[2 * node + 1])


def my_find(nodes, query):
    """3. `>` let a query equal to the left sum go left, into a slot that it does not own, or that has no mass."""
    leaf_count = len(nodes) // 2
    node = 1
    while node < leaf_count:
        node *= 2
        if query >= nodes[node]:
            query -= nodes[node]
            node += 1
    return node - leaf_count
