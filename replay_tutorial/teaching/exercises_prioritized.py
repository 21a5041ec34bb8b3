"""Checks of chapter 05: the reader's prioritized buffer, late updates, stratified queries, and a bug.

In a stratified batch of n draws, a row with the probability P owns n P segments, of which only the first and
the last may be shared with its neighbours. So the number of its draws differs from n P by less than 2.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.steps.prioritized import PlainSumTree
from replay_tutorial.teaching.chi_square import fairness
from replay_tutorial.teaching.exercises import CheckFailed, Hints, NotYet, expect

ALPHA, EPS, BETA = 0.7, 0.01, 0.5
DRAWS = 4000

buffer_hints = Hints(
    "add: the rows first, first + 1, ... go to slots = np.arange(first, first + count) % capacity; the "
    "tree's leaves of the same slots receive the masses, (priority + eps) ** alpha.",
    "sample: queries = (np.arange(batch_size) + rng.random(batch_size)) / batch_size * tree.total; tree.find "
    "returns their slots and masses.",
    "sample: the index of the row in a slot is the largest one below next_index whose remainder is the slot: "
    "slot + (next_index - 1 - slot) // capacity * capacity.",
    "sample: the smallest mass of all rows is tree.minima[sum_tree.ROOT]; weights are as in chapter 03.",
    "update_priorities: reject bad priorities first; then kept = indexes >= next_index - capacity, and only "
    "indexes[kept] and priorities[kept] may change the tree and the largest priority.",
)


def check_prioritized(kind: Callable[..., Any]) -> None:
    """Check a prioritized buffer against a dictionary with the priority of each row.

    Args:
        kind: A class with the arguments `capacity, fields, *, alpha, eps, seed` and the methods `add`,
            `sample` and `update_priorities`, like `PrioritizedReplayBuffer`.

    Raises:
        CheckFailed: On the first difference.
    """
    for capacity in (5, 8, 50):
        rng = np.random.default_rng(capacity)
        buffer = kind(capacity, {"reward": {}}, alpha=ALPHA, eps=EPS, seed=0)
        known: dict[int, float] = {}
        largest, stale = 1.0, 0
        for turn in range(40):
            count, first = int(rng.integers(1, capacity // 2 + 1)), len(known)
            rewards = np.arange(first, first + count, dtype=np.float64)  # each row contains its own index
            priorities = rng.exponential(3.0, count) if turn % 3 == 1 else None
            index = buffer.add(reward=rewards, priorities=priorities)
            expect(
                index == first,
                f"capacity {capacity}: add returned {index!r}, but the first new row is {first}",
            )
            added = [largest] * count if priorities is None else priorities.tolist()
            known.update(zip(range(first, first + count), added, strict=True))
            largest = max(largest, *added)
            oldest = max(len(known) - capacity, 0)
            indexes = rng.integers(max(oldest - capacity, 0), len(known), 6)
            late = rng.exponential(3.0, 6)
            buffer.update_priorities(indexes, late)
            stale += int((indexes < oldest).sum())
            for row, priority in zip(indexes.tolist(), late.tolist(), strict=True):
                if row >= oldest:
                    known[row], largest = priority, max(largest, priority)
            where = f"capacity {capacity}, {len(known)} rows added"
            expect(
                buffer.stale_updates == stale,
                f"{where}: stale_updates is {buffer.stale_updates}, not {stale}",
            )
            if turn % 5 == 4 or turn == 0:
                expect_batch(buffer.sample(DRAWS, beta=BETA), known, oldest, where)
        oldest = max(len(known) - capacity, 0)
        expect_rejected(buffer, known, oldest, f"capacity {capacity}")
        buffer.update_priorities(np.array([0]), np.array([1000.0]))  # an update of replaced rows only
        expect_batch(
            buffer.sample(DRAWS, beta=BETA), known, oldest, f"capacity {capacity}, after updating row 0"
        )
        expect_independent(buffer, known, oldest, capacity)
    print("right: rows, indexes, weights and draws agree with a dictionary of priorities, also after")
    print("wrap-around, with repeated and late updates, and after rejected ones")


def masses_of(known: dict[int, float], oldest: int) -> npt.NDArray[np.float64]:
    """Return the masses of the stored rows, the oldest first."""
    return (np.array([known[index] for index in range(oldest, len(known))]) + EPS) ** ALPHA


def expect_batch(batch: Any, known: dict[int, float], oldest: int, where: str) -> None:
    """Raise CheckFailed unless a batch has stored rows only, drawn in proportion to their masses."""
    for name in ("reward", "indexes", "weights"):
        expect(np.shape(batch[name]) == (DRAWS,), f"{where}: {name} has shape {np.shape(batch[name])}")
    indexes = np.asarray(batch["indexes"])
    beyond = indexes[(indexes < oldest) | (indexes >= len(known))]
    expect(
        not len(beyond),
        f"{where}: sample returned index {beyond[:1].sum()}; rows {oldest} to {len(known) - 1} are stored",
    )
    wrong = np.flatnonzero(np.asarray(batch["reward"]) != indexes)[:1]
    expect(
        not len(wrong),
        f"{where}: the row with index {indexes[wrong].sum()} has the contents of another row. Does the index "
        "belong to the row in that slot?",
    )
    masses = masses_of(known, oldest)
    expected = DRAWS * masses / masses.sum()
    counts = np.bincount(indexes - oldest, minlength=len(masses))
    row = int(np.argmax(np.abs(counts - expected)))
    expect(
        abs(counts[row] - expected[row]) < 2.001,
        f"{where}: row {oldest + row} with priority {known[oldest + row]:.3f} was drawn {counts[row]} times "
        f"in a batch of {DRAWS:,}, not {expected[row]:.1f} times. The difference must be less than 2. Is "
        "there one query in each segment, and does the row have the mass (priority + eps) ** alpha? If it "
        "was added without a priority: its priority is the largest of all rows so far, at least 1, and late "
        "updates don't count",
    )
    weights = (masses.min() / masses[indexes - oldest]) ** BETA
    far = int(np.argmax(np.abs(np.asarray(batch["weights"]) - weights)))
    expect(
        np.allclose(batch["weights"], weights, rtol=1e-4),
        f"{where}: row {indexes[far]} has the weight {batch['weights'][far]:.4f}, not {weights[far]:.4f}. "
        "The row with the smallest mass in the buffer has weight 1",
    )


def expect_independent(buffer: Any, known: dict[int, float], oldest: int, capacity: int) -> None:
    """Raise CheckFailed unless the two rows of small batches are drawn independently, each from its half."""
    slots = np.arange(oldest, len(known)) % capacity
    masses = masses_of(known, oldest)[np.argsort(slots)]
    ends = np.append(0.0, masses.cumsum() / masses.sum())
    halves = [np.diff(ends.clip(low, low + 0.5)) * 2 for low in (0.0, 0.5)]
    pairs = np.array([np.sort(np.asarray(buffer.sample(2)["indexes"]) % capacity) for _ in range(2000)])
    counts = np.zeros((capacity, capacity))
    np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    expect(
        fairness(counts.ravel(), np.outer(*halves).ravel()).is_fair,
        f"capacity {capacity}: in 2,000 batches of two rows, the two are not drawn independently at random. "
        "Does each segment have a random number of its own?",
    )


def expect_rejected(buffer: Any, known: dict[int, float], oldest: int, where: str) -> None:
    """Raise CheckFailed unless bad priorities raise ValueError and change nothing."""
    for bad in (float("nan"), -1.0):
        try:
            buffer.update_priorities(np.array([len(known) - 1, len(known) - 2]), np.array([1000.0, bad]))
        except ValueError:
            expect_batch(buffer.sample(DRAWS, beta=BETA), known, oldest, f"{where}, after a rejected update")
        else:
            raise CheckFailed(f"{where}: update_priorities accepted the priority {bad}; raise ValueError")


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
        places = np.array(drawn) / total * count - np.arange(count)  # of each query in its segment
        if (np.abs(places.std(axis=0) - 12**-0.5) > 0.05).any() or places.min() > 0.05 or places.max() < 0.95:
            raise NotYet("each query must be uniformly distributed in its segment, from its start to its end")
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
