"""A check for sampling by mass: the versions in `steps/prioritized/`, the package's, and the reader's own.

The masses are laid end to end on a line in slot order: slot 0 owns [0, mass 0), and so on up to the total. If
the masses are integers, a plain list with the owner of each unit of the line contains the correct answer to
every query.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from replay_tutorial.teaching.chi_square import Fairness, fairness
from replay_tutorial.teaching.exercises import expect

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CAPACITIES = (1, 2, 3, 7, 8, 1000)
DRAWS = 20_000


class SumTreeLike(Protocol):
    """The methods that are checked."""

    @property
    def total(self) -> float:
        """Sum of all masses."""
        ...

    def set(self, slots: Any, masses: Any) -> None:
        """Set the masses of slots in order, so that the last mass of a repeated slot wins."""
        ...

    def find(self, queries: Any) -> tuple[Any, Any]:
        """Return the slots that own these points of the line, and their masses."""
        ...


Kind = Callable[[int], SumTreeLike]


def check_sum_tree(kind: Kind) -> None:
    """Check a sum tree against a plain list of owners and print what was checked.

    Args:
        kind: A class or another callable that takes the capacity and returns a tree.

    Raises:
        CheckFailed: On the first error.
    """
    for capacity in CAPACITIES:
        check_order(kind, capacity)
        check_owners(kind, capacity)
    for capacity in CAPACITIES:
        check_end(kind, capacity)
    check_repeated_slots(kind)
    check_drift(kind)
    drawn = check_draws(kind)
    print(
        f"right: capacities {', '.join(map(str, CAPACITIES))}; no drift in 50,000 updates; {DRAWS:,} draws "
        f"by mass (χ² = {drawn.chi_square:.1f} with {drawn.freedom} degrees of freedom)"
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
        tree.set(np.arange(capacity), masses)
        expect(tree.total == masses.sum(), f"the total is {tree.total}, the sum of masses {masses.sum()}.")
        owners = np.repeat(np.arange(capacity), masses.astype(np.int64))
        queries = np.concatenate([np.arange(len(owners), dtype=np.float64), rng.random(50) * len(owners)])
        before = queries.copy()
        slots, returned = found(tree, queries, capacity)
        expect(np.array_equal(queries, before), "find changed the caller's queries: work on a copy.")
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
    for last in {0, capacity // 2, capacity - 1}:
        tree = kind(capacity)
        tree.set(np.arange(last + 1), np.full(last + 1, 0.1))
        for query in (math.nextafter(tree.total, 0), tree.total):
            slots, _ = found(tree, np.array([query]), capacity)
            expect(
                slots[0] == last,
                f"capacity {capacity}, slots 0 to {last} of mass 0.1, the others of mass 0: the query "
                f"{query} with the total {tree.total} finds slot {slots[0]}. Rounding may take a query to "
                f"the total; it belongs to the last slot with mass, {last}.",
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
    drawn = fairness(counts, masses)
    expect(
        drawn.is_fair,
        f"{DRAWS:,} draws find the slots {some(counts)} times, but should find them "
        f"{some(expected.round())} times "
        f"(χ² = {drawn.chi_square:,.0f} with {drawn.freedom} degrees of freedom).",
    )
    return drawn


def found(tree: SumTreeLike, queries: Floats, capacity: int) -> tuple[Integers, Floats]:
    """Call `find` and check the shapes, the dtype and the range of its results."""
    slots, masses = (np.asarray(answer) for answer in tree.find(queries))
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
