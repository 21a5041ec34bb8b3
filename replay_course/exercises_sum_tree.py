"""Checks of chapters 03 and 04: sampling by mass, a sum tree, a path by hand, a tree of minima, a range sum.

The masses are laid end to end on a line in slot order: slot 0 owns [0, mass 0), and so on up to the total. If
the masses are integers, a plain list with the owner of each unit of the line contains the correct answer to
every query. `check_sum_tree` checks the versions in `replay_course/steps/prioritized/`, the package's and the
reader's own.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_course.answers import CountedList, Tally, Watched, array_of, call, expect_draws, numbers
from replay_course.chi_square import Fairness, fairness
from replay_course.exercises import CheckFailed, Hints, NotYet, expect
from replay_course.steps.prioritized import PlainSumTree

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Kind = Callable[[int], Any]

CAPACITIES = (1, 2, 3, 7, 8, 1000)
DRAWS = 20_000
MANY, MOST = (
    4096,
    150,
)  # slots of a large tree, and the nodes that an operation on one slot may read and write
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


def check_sum_tree(kind: Kind) -> None:
    """Check a sum tree against a plain list of owners and print what was checked.

    Args:
        kind: Called with the capacity; returns a tree with the property `total` and the methods
            `set(slots, masses)`, where the last mass of a repeated slot wins, and `find(queries)`, which
            returns the slots that own these points of the line, and their masses.

    Raises:
        CheckFailed: On the first error.
    """
    for capacity in CAPACITIES:
        check_order(kind, capacity)
        check_owners(kind, capacity)
    for capacity in CAPACITIES:
        check_end(kind, capacity)
    check_rounding(kind)
    check_repeated_slots(kind)
    check_drift(kind)
    drawn = check_draws(kind)
    print(
        f"right: capacities {', '.join(map(str, CAPACITIES))}; no drift in 50,000 updates; {DRAWS:,} draws "
        f"by mass (χ² = {drawn.chi_square:.1f} with {drawn.degrees})"
    )


def check_order(kind: Kind, capacity: int) -> None:
    """Check that with masses of 1 the middle of each unit finds its slot."""
    tree = kind(capacity)
    expect(tree.total == 0, f"a new tree of capacity {capacity} has the total {tree.total}, not 0.")
    tree.set(np.arange(capacity), np.ones(capacity))
    expect(
        tree.total == capacity,
        f"{capacity} slots of mass 1 have the total {tree.total}: is the first or the last slot missing?",
    )
    slots, _ = found(tree, np.arange(capacity, dtype=np.float64) + 0.5, capacity)
    if missing := sorted(set(range(capacity)) - set(slots.tolist())):
        expect(
            False,
            f"{capacity} slots of mass 1: no query finds slot {missing[-1]}. Is the left sum subtracted when "
            "a query goes right? Is the last slot included?",
        )
    expect(
        slots.tolist() == list(range(capacity)),
        f"{capacity} slots of mass 1: the queries 0.5, 1.5, ... find the slots {some(slots)}, not 0, 1, 2, "
        "... Are all leaves on one level, in slot order? Use a power of two as their number.",
    )


def check_owners(kind: Kind, capacity: int) -> None:
    """Check equal masses, then integer masses of which many are 0, against a list of owners."""
    rng = np.random.default_rng(capacity)
    tree = kind(capacity)
    for turn in range(11):  # the masses of one turn replace those of the turn before
        masses = rng.integers(0, 4, capacity).astype(np.float64) * (rng.random(capacity) < 0.6)
        masses[rng.integers(capacity)] = 3.0
        if turn == 0:
            masses[:] = 2.0
        call(tree.set, np.arange(capacity), masses)
        expect(tree.total == masses.sum(), f"the total is {tree.total}, the sum of masses {masses.sum()}.")
        owners = np.repeat(np.arange(capacity), masses.astype(np.int64))
        queries = np.concatenate([np.arange(len(owners), dtype=np.float64), rng.random(50) * len(owners)])
        slots, returned = found(tree, queries, capacity)
        ends = masses.cumsum()
        for query, slot, owner in zip(queries, slots, owners[queries.astype(np.int64)], strict=True):
            expect(masses[slot] > 0, f"the query {query:.6g} finds slot {slot}, which has mass 0.")
            expect(
                slot == owner,
                f"masses {some(masses)}: the query {query:.6g} finds slot {slot}, but slot {owner} owns "
                f"[{ends[owner] - masses[owner]:g}, {ends[owner]:g}). Only a query strictly less than a sum "
                "is inside it.",
            )
        expect(np.array_equal(returned, masses[slots]), "the masses returned are not those of the slots.")


def check_end(kind: Kind, capacity: int) -> None:
    """Check that a query equal to the total, which rounding can produce, finds the last slot with mass."""
    rng = np.random.default_rng(capacity)
    for last in {0, capacity // 2, capacity - 1}:
        expect_last(kind(capacity), np.arange(last + 1), 0.1 + rng.random(last + 1), capacity)


def check_rounding(kind: Kind) -> None:
    """Check that no query ends at a slot of mass 0, although each subtraction on its way is rounded.

    The path to slot 992 of 1,024 turns right five times, and then left five times, away from slots of mass 0.
    A tree that only moves its queries below the total fails at 5% of these masses.
    """
    rng, tree = np.random.default_rng(0), kind(1024)
    for _ in range(200):
        expect_last(tree, np.array([0, 512, 768, 896, 960, 992]), 0.1 + rng.random(6), 1024)


def expect_last(tree: Any, slots: Integers, masses: Floats, capacity: int) -> None:
    """Set masses; raise CheckFailed unless queries at the end of the line find the last of them."""
    tree.set(slots, masses)
    for query in (math.nextafter(tree.total, 0), tree.total):
        given, mass = found(tree, np.array([query]), capacity)
        expect(
            given[0] == slots[-1],
            f"capacity {capacity}, slots {some(slots)} have masses: the query {query} with the total "
            f"{tree.total} finds slot {given[0]} of mass {mass[0]:g}, but it belongs to the last slot with "
            f"mass, {slots[-1]}. Rounding may take a query to the total, or, on its way down, to the end of "
            "a subtree. If the leaf that it finds has mass 0, go to the leaf on its left",
        )


def check_repeated_slots(kind: Kind) -> None:
    """Check that the last mass of a repeated slot wins."""
    tree = kind(8)
    tree.set(np.array([3, 5, 3, 3]), np.array([100.0, 2.0, 50.0, 0.25]))
    _, masses = found(tree, np.array([0.1]), 8)
    expect(
        masses[0] == 0.25,
        f"slot 3 was set to 100, 50 and 0.25 in one call, and has {masses[0]}: the last mass must win.",
    )
    expect(
        tree.total == 2.25,
        f"slot 3 was set to 100, 50 and 0.25 in one call, and slot 5 to 2: the total is {tree.total}, "
        "not 2.25. Does a repeated slot count more than once?",
    )


def check_drift(kind: Kind) -> None:
    """Check that after 50,000 updates the total equals the sum of masses, and 0 if all masses are 0."""
    rng = np.random.default_rng(0)
    tree, masses = kind(1000), np.zeros(1000)
    for _ in range(100):
        slots, new = rng.permutation(1000)[:500], 10.0 ** rng.uniform(-6, 6, 500)
        tree.set(slots, new)
        masses[slots] = new
    exact = math.fsum(masses)
    error = abs(tree.total - exact) / exact
    expect(error < 1e-12, f"after 50,000 updates the total is {tree.total!r}, the sum of masses {exact!r}.")
    tree.set(np.arange(1000), np.zeros(1000))
    expect(
        tree.total == 0,
        f"after 50,000 updates and with all masses 0, the total is {tree.total}, not 0: rounding errors "
        "have accumulated. Recompute each node from its children instead of adding differences.",
    )


def check_draws(kind: Kind) -> Fairness:
    """Check that slots are drawn in proportion to their masses; return the test statistic."""
    tree, masses = kind(7), np.array([1.0, 0.0, 2.0, 7.0, 0.5, 0.0, 4.5])
    tree.set(np.arange(7), masses)
    slots, _ = found(tree, np.random.default_rng(0).random(DRAWS) * tree.total, 7)
    counts, expected = np.bincount(slots, minlength=7), DRAWS * masses / masses.sum()
    text = f"{DRAWS:,} draws find the slots {some(counts)} times, not {some(expected.round())} times"
    expect_draws(counts, masses, text, CheckFailed)
    return fairness(counts, masses)


def found(tree: Any, queries: Floats, capacity: int) -> tuple[Integers, Floats]:
    """Call `find` and check the shapes, the dtype and the range of its results."""
    given = call(tree.find, queries)
    expect(
        isinstance(given, tuple | list) and len(given) == 2,
        f"find must return slots and masses, not {given!r:.40}",
    )
    slots, masses = (np.asarray(answer) for answer in given)
    expect(
        slots.shape == masses.shape == queries.shape,
        f"find returned {slots.shape} slots and {masses.shape} masses for {queries.shape} queries.",
    )
    expect(slots.dtype.kind == "i", f"find returned slots of dtype {slots.dtype}; they must be integers.")
    beyond = slots[(slots < 0) | (slots >= capacity)]
    expect(
        not len(beyond),
        f"a query of at most the total found slot {beyond[:1].sum()}, but the capacity is {capacity}, so the "
        f"last slot is {capacity - 1}.",
    )
    return slots, masses


def some(numbers: npt.NDArray[Any]) -> str:
    """Format the first eight numbers."""
    return ", ".join(f"{number:g}" for number in numbers[:8].tolist()) + (", ..." if len(numbers) > 8 else "")


def check_find(kind: Kind) -> None:
    """Check a sum tree like `check_sum_tree`, and count the nodes that it reads for one query."""
    check_sum_tree(kind)
    tree = kind(MANY)
    tree.set(range(MANY), [1.0] * MANY)
    check_cost(
        "find",
        max(Watched(tree).cost_of(lambda q=q: tree.find(np.array([q]))) for q in (0.5, 1234.5, 4095.5)),
    )


def check_cost(name: str, cost: int) -> None:
    """Raise CheckFailed unless an operation of a tree with 4,096 leaves has read and written few nodes."""
    expect(cost > 0, f"the results are right, but {name} uses none of the nodes: start at the root, node 1")
    expect(
        cost <= MOST,
        f"the results are right, but with {MANY:,} slots {name} reads or writes {cost:,} nodes for a single "
        "slot. There are 13 on its way, one on each level; the others, and copies of the list, aren't needed",
    )


def check_set(kind: Callable[[int], Any]) -> None:
    """Check `set` of a sum tree in a list: after each call, compare all nodes with sums computed anew.

    Args:
        kind: A class that takes the capacity, with the attributes `leaf_count` and `nodes`.

    Raises:
        CheckFailed: On the first error, or if `set` reads or writes other nodes than those above a leaf.
    """
    rng = np.random.default_rng(0)
    for capacity, leaf_count in [(8, 8), (1, 1), (2, 2), (3, 4), (9, 16), (100, 128)]:
        tree = kind(capacity)
        expect_layout(tree, capacity, leaf_count)
        leaves = [0.0] * leaf_count
        for _ in range(50):
            slots = rng.integers(capacity, size=4).tolist()  # of few slots, some are repeated
            masses = (10.0 ** rng.uniform(-6, 6, 4)).tolist()
            call(tree.set, slots, masses)
            for slot, mass in zip(slots, masses, strict=True):
                leaves[slot] = mass
            expect_nodes(tree, leaves, f"capacity {capacity}, after setting slots {slots}")
    tree = kind(MANY)
    tree.set(range(MANY), [1.0] * MANY)
    check_cost("set", max(Watched(tree).cost_of(lambda s=s: tree.set([s], [2.0])) for s in (0, 1234, 4095)))
    print("right: every node is exactly the sum of its children, for capacities 1, 2, 3, 8, 9 and 100")


def expect_layout(tree: Any, capacity: int, leaf_count: int) -> None:
    """Raise CheckFailed unless a new tree has the right number of leaves and nodes, all 0."""
    for name in ("leaf_count", "nodes"):
        if not hasattr(tree, name):
            raise CheckFailed(f"__init__ has not set self.{name}")
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
    path = numbers(path, 4, "write the numbers of four nodes; the first is the root, node 1")
    if path[0] != 1:
        raise NotYet(f"the path begins at the root, node 1, not {path[0]:g}; write node numbers, not sums")
    for before, after in itertools.pairwise(path):
        if after not in (2 * before, 2 * before + 1):
            raise NotYet(
                f"node {before:g} has the children {2 * before:g} and {2 * before + 1:g}, not {after:g}"
            )
    hints = {
        2: "10 is not less than 9, the sum of the left half",
        7: "the rest is 1, which is less than the 2.5 of node 6",
        12: "the rest is 1, which is not less than the 0.5 of node 12",
    }
    for given, right in zip(path, expected, strict=True):
        if given != right:
            hint = hints.get(int(given), "subtract the left sum whenever you go right")
            raise NotYet(f"the path does not pass through node {given:g}: {hint}")
    print("right: 10 - 9 = 1, which is less than 2.5 but not less than 0.5, so the query finds slot 5")


def check_minimum(set_minimum: Callable[..., Any]) -> None:
    """Check a function `(minima, slot, mass)`, after which every node is the smaller of its children."""
    rng, most = np.random.default_rng(0), 0
    for leaf_count, turns in ((1, 20), (2, 200), (8, 200), (64, 200), (MANY, 5)):
        minima, right = [math.inf] * (2 * leaf_count), [math.inf] * (2 * leaf_count)
        for _ in range(turns):
            slot, mass = int(rng.integers(leaf_count)), float(rng.integers(0, 5))
            listed = CountedList(minima, tally := Tally())
            set_minimum(listed, slot, mass)
            most = max(most, tally.touched)
            minima = listed.plain()
            right[leaf_count + slot] = mass or math.inf
            for node in range(leaf_count - 1, 0, -1):
                right[node] = min(right[2 * node], right[2 * node + 1])
            where = f"{leaf_count} slots, after slot {slot} was set to {mass:g}"
            if len(minima) != 2 * leaf_count:
                raise NotYet(f"{where}: the list has {len(minima)} nodes, not {2 * leaf_count}")
            for node in range(1, 2 * leaf_count):
                if minima[node] != right[node]:
                    hint = "Compute each parent from both children, because the old mass of a slot is gone"
                    if minima[node] == 0:
                        hint = "A mass of 0 must not count: store math.inf in its leaf"
                    raise NotYet(
                        f"{where}: node {node} is {minima[node]}, but the smallest mass above 0 under it is "
                        f"{right[node]:g}. {hint}"
                    )
    if most > MOST:
        raise NotYet(
            f"the minima are right, but with {MANY:,} slots a call reads or writes {most:,} nodes. Only the "
            "13 nodes from the leaf to the root can change"
        )
    print("right: also if the smallest mass is overwritten, and if all masses are 0")


def check_range_sum(range_sum: Callable[..., Any]) -> None:
    """Check a function `(nodes, first, last)` that adds the masses of slots first to last, both included."""
    for leaf_count, masses in [(8, list(MASSES)), (4, [1.0, 2.0, 4.0, 8.0]), (2, [0.0, 3.0]), (1, [5.0])]:
        tree = PlainSumTree(leaf_count)
        tree.set(range(leaf_count), masses)
        for first, last in itertools.combinations_with_replacement(range(leaf_count), 2):
            where = f"masses {', '.join(f'{mass:g}' for mass in masses)}, slots {first} to {last}"
            given = float(array_of(call(range_sum, list(tree.nodes), first, last), (), where))
            expected = sum(masses[first : last + 1])
            if given != expected:
                raise NotYet(f"{where} sum to {expected:g}, not {given:g}. Which slot is missing or extra?")
    tree, tally = PlainSumTree(MANY), Tally()
    tree.set(range(MANY), [1.0] * MANY)
    for first, last in ((0, MANY - 1), (1, MANY - 2), (1000, 3000)):
        tally.touched = 0
        if range_sum(CountedList(tree.nodes, tally), first, last) != last - first + 1:
            raise NotYet(f"{MANY:,} masses of 1: slots {first} to {last} must sum to {last - first + 1:,}")
        if tally.touched > MOST:
            raise NotYet(
                f"the sums are right, but slots {first} to {last:,} take {tally.touched:,} reads. Climb from "
                "both ends of the range, which takes at most two nodes on each level"
            )
    print("right: both ends are included. If a sampler's total omits the last stored row, that row is never")
    print("drawn.")
