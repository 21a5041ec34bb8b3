"""Checks of chapter 04: the reader's sum tree, a path by hand, a tree of minima, and a range sum."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.prioritized import PlainSumTree
from replay_tutorial.teaching.exercises import CheckFailed, Hints, NotYet

MASSES = (1.0, 0.0, 3.0, 5.0, 0.5, 2.0, 4.0, 0.5)  # as in the chapter's drawing

set_hints = Hints(
    "Start with leaf_count = 1 and double it while it is less than the capacity.",
    "A new mass changes one leaf, and then the nodes above it, up to the root and including it.",
    "The leaf of a slot is node leaf_count + slot. The parent of a node is node // 2.",
    "Store the mass in its leaf. While node > 1: go to the parent, and store the sum of its children there.",
    "nodes[node] = nodes[2 * node] + nodes[2 * node + 1]",
)
find_hints = Hints(
    "Start at node 1. While node < leaf_count, which means that it isn't a leaf, go to one of its children.",
    "Compare the query with the sum of the left child, nodes[2 * node]. If it is less, go left.",
    "Otherwise subtract that sum from the query and go right. An equal query goes right, too.",
    "A query that equals the total always goes right and may end at a leaf of mass 0. Which leaf owns it?",
    "After the descent: while nodes[node] is 0 and node > leaf_count, go one leaf to the left: node -= 1",
)


def check_set(kind: Callable[[int], Any]) -> None:
    """Check `set` of a sum tree in a list: after each call, compare all nodes with sums computed anew.

    Args:
        kind: A class that takes the capacity, with the attributes `leaf_count` and `nodes`.

    Raises:
        CheckFailed: On the first error.
    """
    rng = np.random.default_rng(0)
    for capacity, leaf_count in [(8, 8), (1, 1), (2, 2), (3, 4), (9, 16), (100, 128)]:
        tree = kind(capacity)
        expect_layout(tree, capacity, leaf_count)
        leaves = [0.0] * leaf_count
        for _ in range(50):
            slots = rng.integers(capacity, size=4).tolist()  # of few slots, some are repeated
            masses = (10.0 ** rng.uniform(-6, 6, 4)).tolist()
            tree.set(slots, masses)
            for slot, mass in zip(slots, masses, strict=True):
                leaves[slot] = mass
            expect_nodes(tree, leaves, f"capacity {capacity}, after setting slots {slots}")
    print("right: every node is exactly the sum of its children, for capacities 1, 2, 3, 8, 9 and 100")


def expect_layout(tree: Any, capacity: int, leaf_count: int) -> None:
    """Raise CheckFailed unless a new tree has the right number of leaves and nodes, all 0."""
    if tree.leaf_count != leaf_count:
        raise CheckFailed(
            f"capacity {capacity}: leaf_count is {tree.leaf_count}, but the smallest power of two that is at "
            f"least {capacity} is {leaf_count}"
        )
    if len(tree.nodes) != 2 * leaf_count or any(tree.nodes):
        raise CheckFailed(
            f"capacity {capacity}: a new tree needs 2 * {leaf_count} nodes of 0.0, because nodes 1 to "
            f"{2 * leaf_count - 1} are used and node 0 is not; it has {len(tree.nodes)}"
        )


def expect_nodes(tree: Any, leaves: list[float], when: str) -> None:
    """Raise CheckFailed unless the tree has these leaves, and each other node is the sum of its children."""
    count = len(leaves)
    for slot, mass in enumerate(leaves):
        given = tree.nodes[count + slot]
        if given != mass:
            hint = (
                f"The leaf of slot {slot} is node {count} + {slot}; the last mass of a repeated slot counts"
            )
            if math.isclose(given, mass, rel_tol=1e-3):
                hint = "Store the mass itself instead of adding a difference, which rounds"
            raise CheckFailed(
                f"{when}: node {count + slot}, the leaf of slot {slot}, is {given!r}, not {mass!r}. {hint}"
            )
    for node in range(count - 1, 0, -1):
        left, right, given = tree.nodes[2 * node], tree.nodes[2 * node + 1], tree.nodes[node]
        if given != left + right:
            hint = "Are all nodes above the leaf recomputed, up to node 1?"
            if math.isclose(given, left + right, rel_tol=1e-3):
                hint = "Add the two children instead of a difference, whose rounding error would remain"
            raise CheckFailed(
                f"{when}: node {node} is {given!r}, but the sum of its children is {left + right!r}. {hint}"
            )


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


def check_range_sum(range_sum: Callable[..., Any]) -> None:
    """Check a function `(nodes, first, last)` that adds the masses of slots first to last, both included."""
    for leaf_count, masses in [(8, list(MASSES)), (4, [1.0, 2.0, 4.0, 8.0]), (2, [0.0, 3.0]), (1, [5.0])]:
        tree = PlainSumTree(leaf_count)
        tree.set(range(leaf_count), masses)
        for first, last in itertools.combinations_with_replacement(range(leaf_count), 2):
            given, expected = range_sum(list(tree.nodes), first, last), sum(masses[first : last + 1])
            if given != expected:
                raise NotYet(
                    f"masses {', '.join(f'{mass:g}' for mass in masses)}: slots {first} to {last} sum to "
                    f"{expected:g}, not {given:g}. Which slot is missing or extra?"
                )
    print("right: both ends are included. If a sampler's total omits the last stored row, that row is never")
    print("drawn.")
