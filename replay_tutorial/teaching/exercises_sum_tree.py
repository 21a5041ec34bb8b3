"""Exercises of chapter 04: a path by hand, a tree of minima, and a descent with a bug."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.prioritized import PlainSumTree
from replay_tutorial.teaching.exercises import NotYet

MASSES = (1.0, 0.0, 3.0, 5.0, 0.5, 2.0, 4.0, 0.5)  # as in the chapter's drawing


def check_path(path: Sequence[Any]) -> None:
    """Check the nodes that the query 10 passes through in the chapter's tree."""
    expected = [1, 3, 6, 13]
    if len(path) != 4 or ... in path:
        raise NotYet("write the numbers of four nodes; the first is the root, node 1")
    if path[0] != 1:
        raise NotYet(f"the path begins at the root, node 1, not {path[0]}; write node numbers, not sums")
    for before, after in itertools.pairwise(path):
        if after not in (2 * before, 2 * before + 1):
            raise NotYet(f"node {before} has the children {2 * before} and {2 * before + 1}, not {after}")
    hints = {
        2: "10 is not less than 9, the sum of the left half",
        7: "the rest is 1, which is less than the 2.5 of node 6",
        12: "the rest is 1, which is not less than the 0.5 of node 12",
    }
    for given, right in zip(path, expected, strict=True):
        if given != right:
            hint = hints.get(given, "subtract the left sum whenever you go right")
            raise NotYet(f"the path does not pass through node {given}: {hint}")
    print("right: 10 - 9 = 1, which is less than 2.5 but not less than 0.5, so the query finds slot 5")


def check_minimum(set_minimum: Callable[..., Any]) -> None:
    """Check a function `(minima, slot, mass)` that keeps the smallest mass above 0 in node 1."""
    rng = np.random.default_rng(0)
    for leaf_count in (1, 2, 8, 64):
        minima, masses = [math.inf] * (2 * leaf_count), [0.0] * leaf_count
        for _ in range(200):
            slot, mass = int(rng.integers(leaf_count)), float(rng.integers(0, 5))
            set_minimum(minima, slot, mass)
            masses[slot] = mass
            expected = min((mass for mass in masses if mass > 0), default=math.inf)
            if minima[1] != expected:
                hint = "Compute each parent from both children, because the old mass of a slot is gone"
                if minima[1] == 0:
                    hint = "A mass of 0 must not count: store math.inf in its leaf"
                raise NotYet(
                    f"{leaf_count} slots, after slot {slot} was set to {mass:g}: node 1 is {minima[1]:g}, "
                    f"but the smallest mass above 0 is {expected:g}. {hint}"
                )
    print("right: also if the smallest mass is overwritten, and if all masses are 0")


def check_find(find: Callable[..., Any]) -> None:
    """Check a function `find(nodes, query)` that descends a sum tree and returns a slot."""
    trees = [
        (8, list(MASSES)),
        (8, [0.0, 0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0]),
        (4, [1.0] * 4),
        (2, [0.0, 3.0]),
    ]
    for leaf_count, masses in trees:
        tree = PlainSumTree(leaf_count)
        tree.set(range(leaf_count), masses)
        # one entry per 0.5 of mass
        owners = [slot for slot, mass in enumerate(masses) for _ in range(round(2 * mass))]
        for half, owner in enumerate(owners):
            slot = find(list(tree.nodes), half / 2)
            if slot != owner:
                at_all = "has mass 0" if masses[slot] == 0 else "does not own this point"
                raise NotYet(
                    f"masses {', '.join(f'{mass:g}' for mass in masses)}: the query {half / 2:g} finds slot "
                    f"{slot}, which {at_all}, instead of slot {owner}. Which way must a query go that equals "
                    "the left sum?"
                )
    print("right: only a query less than the left sum goes left. A query equal to the total still ends at an")
    print("empty leaf, which is why `find_one` has its last loop.")
