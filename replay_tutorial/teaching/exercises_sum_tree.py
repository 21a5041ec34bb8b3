"""The exercises of chapter 04: a path by hand, a tree of minima, and a walk with a hidden fault."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.prioritized import PlainSumTree
from replay_tutorial.teaching.exercises import NotYet

MASSES = (1.0, 0.0, 3.0, 5.0, 0.5, 2.0, 4.0, 0.5)  # of the tree that the chapter draws


def check_path(path: Sequence[Any]) -> None:
    """Check the nodes through which the query 10 walks down the chapter's tree."""
    expected = [1, 3, 6, 13]
    if len(path) != 4 or ... in path:
        raise NotYet("write the numbers of four nodes; the first is the root, node 1")
    if path[0] != 1:
        raise NotYet(f"the walk begins at the root, node 1, not {path[0]}: numbers of nodes, not their sums")
    for before, after in itertools.pairwise(path):
        if after not in (2 * before, 2 * before + 1):
            raise NotYet(
                f"node {after} is no child of node {before}: those are {2 * before} and {2 * before + 1}"
            )
    hints = {
        2: "10 is not less than 9, the sum of the left half",
        7: "1 is left, which is less than the 2.5 of node 6",
        12: "1 is left, which is not less than the 0.5 of node 12",
    }
    for given, right in zip(path, expected, strict=True):
        if given != right:
            hint = hints.get(given, "take off the left sum whenever you go right")
            raise NotYet(f"the walk does not come through node {given}: {hint}")
    print("right: 10 - 9 = 1, which is less than 2.5, but not less than 0.5: slot 5")


def check_minimum(set_minimum: Callable[..., Any]) -> None:
    """Check a function `set_minimum(minima, slot, mass)` that keeps the smallest mass above 0 at node 1."""
    rng = np.random.default_rng(0)
    for leaf_count in (1, 2, 8, 64):
        minima, masses = [math.inf] * (2 * leaf_count), [0.0] * leaf_count
        for _ in range(200):
            slot, mass = int(rng.integers(leaf_count)), float(rng.integers(0, 5))
            set_minimum(minima, slot, mass)
            masses[slot] = mass
            expected = min((mass for mass in masses if mass > 0), default=math.inf)
            if minima[1] != expected:
                hint = "Compute each parent from both children: the old mass of a slot counts no longer"
                if minima[1] == 0:
                    hint = "A mass of 0 must not count: let its leaf hold math.inf"
                raise NotYet(
                    f"{leaf_count} slots, of which slot {slot} has just been given {mass:g}: node 1 says "
                    f"{minima[1]:g}, the smallest mass above 0 is {expected:g}. {hint}"
                )
    print("right: also when the smallest mass is overwritten, and when there is none")


def check_find(find: Callable[..., Any]) -> None:
    """Check a function `find(nodes, query)` that walks down a heap and returns a slot."""
    trees = [
        (8, list(MASSES)),
        (8, [0.0, 0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0]),
        (4, [1.0] * 4),
        (2, [0.0, 3.0]),
    ]
    for leaf_count, masses in trees:
        tree = PlainSumTree(leaf_count)
        tree.set(range(leaf_count), masses)
        owners = [slot for slot, mass in enumerate(masses) for _ in range(round(2 * mass))]  # of each half
        for half, owner in enumerate(owners):
            slot = find(list(tree.nodes), half / 2)
            if slot != owner:
                at_all = "has the mass 0" if masses[slot] == 0 else f"does not own {half / 2:g}"
                raise NotYet(
                    f"masses {', '.join(f'{mass:g}' for mass in masses)}: the query {half / 2:g} finds slot "
                    f"{slot}, which {at_all}; slot {owner} does. Where does a query go that is equal to the "
                    "left sum?"
                )
    print("right: strictly less goes left. A query equal to the total still ends on an empty leaf:")
    print("for that `find_one` has its last loop.")
