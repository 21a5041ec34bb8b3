"""Checks of the exercises of chapter 05: late updates, stratified queries, and an update with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.prioritized import PlainSumTree
from replay_tutorial.teaching.exercises import NotYet


def check_late(dropped: Sequence[Any], priority_of_8: Any) -> None:
    """Check the result of updating rows 3, 8, 12, 7 and 8 in a buffer of capacity 5 after 13 rows."""
    if ... in dropped or priority_of_8 is ...:
        raise NotYet("write the indexes that are dropped, and the priority of row 8 after the update")
    for index in dropped:
        if index >= 8:
            raise NotYet(f"row {index} is still stored: the newest five rows are 8 to 12")
    if missing := {3, 7} - set(dropped):
        raise NotYet(f"row {missing.pop()} has been replaced: the newest five rows are 8 to 12")
    if priority_of_8 != 5.0:
        raise NotYet(f"row 8 occurs twice in the update, and its last priority counts, not {priority_of_8}")
    print("right: updates of replaced rows are dropped, and the last priority of an index counts")


def check_stratified(stratified: Callable[..., Any]) -> None:
    """Check a function `stratified(total, count, rng)` that draws one query from each of equal segments."""
    for total, count in [(8.0, 8), (1.0, 1), (3.5, 32), (100.0, 5)]:
        rng = np.random.default_rng(0)
        drawn = [stratified(total, count, rng) for _ in range(500)]
        if drawn[0] is None or np.shape(drawn[0]) != (count,):
            raise NotYet(f"my_stratified must return {count} queries, not {drawn[0]!r:.40}")
        parts = np.floor(np.array(drawn) / total * count)
        if (parts != np.arange(count)).any():
            query = np.array(drawn)[parts != np.arange(count)][0]
            place = int(np.flatnonzero((parts != np.arange(count)).any(axis=0))[0])
            first = place * total / count
            raise NotYet(
                f"total {total:g}, {count} segments: query {place} is {query:.3f}, but its segment is "
                f"{first:.3f} to {first + total / count:.3f}"
            )
        spread = (np.array(drawn) / total * count - np.arange(count)).std(axis=0)
        if (np.abs(spread - 12**-0.5) > 0.05).any():
            raise NotYet("each query must be uniformly distributed in its segment")
        if count > 1 and np.corrcoef(np.array(drawn)[:, :2].T)[0, 1] > 0.5:
            raise NotYet(
                "all queries of a batch have the same offset in their segments: draw a random number for each"
            )
    print("right: one query in each segment, uniformly distributed")


def check_update(update: Callable[..., Any]) -> None:
    """Check a function `update(tree, indexes, masses, next_index, capacity)` that drops late updates."""
    rng = np.random.default_rng(0)
    for capacity, next_index in [(8, 8), (8, 11), (8, 24), (5, 13), (8, 3)]:
        tree = PlainSumTree(capacity)
        oldest = max(next_index - capacity, 0)
        expected = {index: 1.0 for index in range(oldest, next_index)}
        tree.set([index % capacity for index in expected], list(expected.values()))
        for _ in range(50):
            indexes = rng.integers(max(next_index - 2 * capacity, 0), next_index, 4)
            masses = rng.integers(2, 9, 4).astype(np.float64)
            update(tree, indexes, masses, next_index, capacity)
            for index, mass in zip(indexes.tolist(), masses.tolist(), strict=True):
                if index in expected:
                    expected[index] = mass
            for index, mass in expected.items():
                given = tree.nodes[tree.leaf_count + index % capacity]
                if given != mass:
                    raise NotYet(
                        f"capacity {capacity}, rows {oldest} to {next_index - 1} are stored: after setting "
                        f"{indexes.tolist()} to {masses.tolist()}, row {index} has the mass {given:g}, "
                        f"not {mass:g}"
                    )
    print("right: every stored row is updated, including the oldest, and no other row")
