"""Solutions to the exercises of chapter 05."""

import numpy as np

# 1. Rows 8 to 12 are stored. Row 8 gets priority 2 and then 5; the last one counts.
my_dropped = [3, 7]
my_priority_of_8 = 5.0


def my_stratified(total, count, rng):
    """2. Draw an independent random number for each segment."""
    return (np.arange(count) + rng.random(count)) / count * total


def my_update(tree, indexes, masses, next_index, capacity):
    """3. Use `>=`: with `>`, the oldest stored row was never updated."""
    oldest_index = next_index - capacity
    still_there = indexes >= oldest_index
    tree.set(indexes[still_there] % capacity, masses[still_there])
