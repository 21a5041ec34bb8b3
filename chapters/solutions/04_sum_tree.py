"""Solutions to the exercises of chapter 04."""

import math

from replay_tutorial.steps.prioritized import PlainSumTree

# The tree, with `set` and then with `find`: the class that the chapter shows.
MyTree = MySumTree = PlainSumTree

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
