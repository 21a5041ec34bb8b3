"""The exercises of chapter 05, solved."""

import numpy as np

# 1. The rows 8 to 12 are there. Row 8 is given 2 and then 5: the last one stays.
my_dropped = [3, 7]
my_priority_of_8 = 5.0


def my_stratified(total, count, rng):
    """2. A number of its own for each part."""
    return (np.arange(count) + rng.random(count)) / count * total


def my_update(tree, indexes, masses, next_index, capacity):
    """3. With `>` the oldest row kept its old mass for as long as it was there as the oldest."""
    oldest_index = next_index - capacity
    still_there = indexes >= oldest_index
    tree.set(indexes[still_there] % capacity, masses[still_there])
