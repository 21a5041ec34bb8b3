"""Why a batch should descend together: dependent and independent memory reads.

Both functions read every element of an array once, in random order. In the first, each element contains the
position of the next, as in a descent of a tree: the processor cannot request an element before the previous
one has arrived. In the second, all positions are known in advance, and the processor requests many elements
at once.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Integers = npt.NDArray[np.int64]


@njit
def read_one_after_the_other(next_place: Integers) -> Any:
    """Follow the positions from element to element; return the last."""
    place = 0
    for _ in range(len(next_place)):
        place = next_place[place]
    return place


@njit
def read_together(values: Integers, places: Integers) -> Any:
    """Sum the values at positions that are known in advance."""
    total = 0
    for i in range(len(places)):
        total += values[places[i]]
    return total


def random_circle(length: int) -> tuple[Integers, Integers]:
    """Return a random order of all positions, and for each position the next one in that order."""
    places = np.random.default_rng(0).permutation(length)
    next_place = np.empty(length, np.int64)
    next_place[places] = np.roll(places, -1)
    return next_place, places
