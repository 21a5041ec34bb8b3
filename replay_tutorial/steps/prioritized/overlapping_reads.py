"""Why a batch should walk down together: reads that wait for each other, and reads that don't.

Both functions read every place of an array once, in a random order. In the first, each place says where to
read next, as in a walk down a tree: the processor can't ask memory for the second place before the first has
come. In the second, all places are known beforehand, and the processor asks for many of them at once.

Left out: everything else that a tree does.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Integers = npt.NDArray[np.int64]


@njit
def read_one_after_the_other(next_place: Integers) -> int:
    """Go from place to place, as each one says; return the last."""
    place = 0
    for _ in range(len(next_place)):
        place = next_place[place]
    return place


@njit
def read_together(values: Integers, places: Integers) -> int:
    """Add up the values of places that are known beforehand."""
    total = 0
    for i in range(len(places)):
        total += values[places[i]]
    return total


def random_circle(length: int) -> tuple[Integers, Integers]:
    """Return a random order of all places, and for each place the one that comes after it in that order."""
    places = np.random.default_rng(0).permutation(length)
    next_place = np.empty(length, np.int64)
    next_place[places] = np.roll(places, -1)
    return next_place, places
