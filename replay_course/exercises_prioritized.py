"""Checks of chapter 05: the reader's prioritized buffer, late updates, stratified queries, and a bug.

In a stratified batch of n draws, a row with the probability P owns n P segments, of which only the first and
the last may be shared with its neighbours. So the number of its draws differs from n P by less than 2.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_course.answers import array_of, call, expect_draws, numbers
from replay_course.exercises import CheckFailed, Hints, NotYet, expect
from replay_course.steps.prioritized import PlainSumTree

ALPHA, EPS = 0.7, 0.01
BETAS = (0.5, 1.0, 0.0, 0.25)
DRAWS = 4000
FIELDS: dict[str, Any] = {"reward": {}, "obs": {"shape": (2,)}}

buffer_hints = Hints(
    "add: the rows first, first + 1, ... go to slots = np.arange(first, first + count) % capacity; the "
    "tree's leaves of the same slots receive the masses, (priority + eps) ** alpha.",
    "sample: queries = (np.arange(batch_size) + rng.random(batch_size)) / batch_size * tree.total; tree.find "
    "returns their slots and masses.",
    "sample: the index of the row in a slot is the largest one below next_index whose remainder is the slot: "
    "slot + (next_index - 1 - slot) // capacity * capacity.",
    "sample: the smallest mass of all rows is tree.smallest; weights are as in chapter 03.",
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
        buffer = kind(capacity, FIELDS, alpha=ALPHA, eps=EPS, seed=0)
        known: dict[int, float] = {}
        largest, stale = 1.0, 0
        for turn in range(40):
            count, first = int(rng.integers(1, capacity // 2 + 1)), len(known)
            priorities = rng.exponential(3.0, count) if turn % 3 == 1 else None
            index = call(buffer.add, **rows_from(first, count), priorities=priorities)
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
            call(buffer.update_priorities, indexes, late)
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
                expect_batch(buffer, BETAS[turn % 4], known, oldest, where)
        expect_rejected(buffer, known, len(known) - capacity, f"capacity {capacity}")
        expect_unknown_rejected(kind(capacity, FIELDS, alpha=ALPHA, eps=EPS, seed=0), f"capacity {capacity}")
        buffer.update_priorities(np.array([0]), np.array([1000.0]))  # an update of replaced rows only
        where = f"capacity {capacity}, after rejected updates, an update of row 0, and a new row"
        buffer.add(**rows_from(len(known), 1))
        known[len(known)] = largest
        expect_batch(buffer, 0.5, known, len(known) - capacity, where)
        expect_independent(buffer, known, len(known) - capacity, capacity)
    expect_seeds(kind)
    print("right: rows, indexes, weights and draws agree with a dictionary of priorities, also after")
    print("wrap-around, with repeated and late updates, and after rejected ones")


def rows_from(first: int, count: int) -> dict[str, Any]:
    """Return rows that contain their own indexes."""
    indexes = np.arange(first, first + count, dtype=np.float64)
    return {"reward": indexes, "obs": np.stack([-indexes, indexes], axis=1)}


def masses_of(known: dict[int, float], oldest: int) -> npt.NDArray[np.float64]:
    """Return the masses of the stored rows, the oldest first."""
    return (np.array([known[index] for index in range(oldest, len(known))]) + EPS) ** ALPHA


def expect_batch(buffer: Any, beta: float, known: dict[int, float], oldest: int, where: str) -> None:
    """Raise CheckFailed unless a batch has stored rows only, drawn in proportion to their masses."""
    batch = buffer.sample(DRAWS, beta=beta)
    expect(isinstance(batch, Mapping), f"{where}: sample must return a dict, not {batch!r:.40}")
    for name, shape in {
        "reward": (DRAWS,),
        "obs": (DRAWS, 2),
        "indexes": (DRAWS,),
        "weights": (DRAWS,),
    }.items():
        array_of(batch.get(name), shape, f"{where}: {name!r} of a sample")
    indexes = np.asarray(batch["indexes"])
    expect(indexes.dtype.kind == "i", f"{where}: 'indexes' must be integers, not {indexes.dtype}")
    beyond = indexes[(indexes < oldest) | (indexes >= len(known))]
    expect(
        not len(beyond),
        f"{where}: sample returned index {beyond[:1].sum()}; rows {oldest} to {len(known) - 1} are stored",
    )
    right = (np.asarray(batch["reward"]) == indexes) & (
        np.asarray(batch["obs"]) == np.stack([-indexes, indexes], 1)
    ).all(1)
    wrong = np.flatnonzero(~right)[:1]
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
        "or rejected updates don't count",
    )
    for sample in (
        batch,
        *(buffer.sample(4, beta=beta) for _ in range(8)),
    ):  # small ones rarely have the smallest mass
        drawn, given = np.asarray(sample["indexes"]), np.asarray(sample["weights"])
        weights = (masses.min() / masses[drawn - oldest]) ** beta
        far = int(np.argmax(np.abs(given - weights)))
        expect(
            np.allclose(given, weights, rtol=1e-4),
            f"{where}, beta {beta}: row {drawn[far]} has the weight {given[far]:.4f} in a batch of "
            f"{len(given):,}, not {weights[far]:.4f}. The row with the smallest mass in the buffer, not in "
            "the batch, has weight 1",
        )
    batch["reward"][:] = -1.0
    expect(
        (np.asarray(buffer.sample(8, beta=beta)["reward"]) >= 0).all(),
        f"{where}: a stored row changed when the caller wrote to a batch: return copies",
    )


def expect_independent(buffer: Any, known: dict[int, float], oldest: int, capacity: int) -> None:
    """Raise CheckFailed unless the two rows of small batches are drawn independently, each from its half."""
    slots = np.arange(oldest, len(known)) % capacity
    masses = masses_of(known, oldest)[np.argsort(slots)]
    ends = np.append(0.0, masses.cumsum() / masses.sum())
    halves = [np.diff(ends.clip(low, low + 0.5)) * 2 for low in (0.0, 0.5)]
    batches = [np.asarray(buffer.sample(2)["indexes"]).tolist() for _ in range(2000)]
    pairs = np.sort(np.array(batches) % capacity, axis=1)
    counts = np.zeros((capacity, capacity))
    np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    text = (
        f"capacity {capacity}: in 2,000 batches of two rows, the two are not drawn independently at random. "
        "Does each segment have a random number of its own, and a new one in each batch?"
    )
    expect_draws(counts.ravel(), np.outer(*halves).ravel(), text, CheckFailed)


def expect_seeds(kind: Callable[..., Any]) -> None:
    """Raise CheckFailed unless the seed, and nothing else, determines which rows are drawn."""
    drawn: list[list[int]] = []
    for seed in (0, 0, 1):
        buffer = kind(1000, FIELDS, alpha=ALPHA, eps=EPS, seed=seed)
        buffer.add(**rows_from(0, 1000))
        drawn.append(np.asarray(buffer.sample(8)["indexes"]).tolist())
    expect(drawn[0] == drawn[1], "two buffers with the same seed draw different rows: draw with self.rng")
    expect(drawn[0] != drawn[2], "buffers with different seeds draw the same rows: draw with self.rng")


def expect_rejected(buffer: Any, known: dict[int, float], oldest: int, where: str) -> None:
    """Raise CheckFailed unless bad priorities, even of replaced rows, raise ValueError and change nothing."""
    newest, stale = len(known) - 1, buffer.stale_updates
    for bad, row in [(np.nan, newest - 1), (-1.0, newest - 1), (np.inf, newest - 1), (np.nan, 0)]:
        try:
            buffer.update_priorities(np.array([newest, 0, row]), np.array([1000.0, 1000.0, bad]))
        except ValueError:
            expect(
                buffer.stale_updates == stale,
                f"{where}: stale_updates changed from {stale} to {buffer.stale_updates} in a rejected update",
            )
            expect_batch(buffer, 0.5, known, oldest, f"{where}, after a rejected update")
        else:
            replaced = "" if row else ", which has been replaced"
            raise CheckFailed(
                f"{where}: update_priorities accepted the priority {bad} for row {row}{replaced}; raise "
                "ValueError"
            )


def expect_unknown_rejected(buffer: Any, where: str) -> None:
    """Raise CheckFailed unless indexes of rows that were never added raise IndexError and change nothing."""
    buffer.add(**rows_from(0, 3))
    for unknown in (-1, 3, 1_000):
        where = f"{where}, 3 rows added, update of rows 0 and {unknown}"
        try:
            buffer.update_priorities(np.array([0, unknown]), np.array([9.0, 9.0]))
        except IndexError:
            expect_batch(buffer, 0.5, dict.fromkeys(range(3), 1.0), 0, f"{where}, which was rejected")
        else:
            raise CheckFailed(f"{where}: row {unknown} was never added; raise IndexError and change nothing")


def check_late(dropped: Sequence[Any], priority_of_8: Any) -> None:
    """Check the result of updating rows 3, 8, 12, 7 and 8 in a buffer of capacity 5 after 13 rows."""
    missing = "write the indexes that are dropped, and the priority of row 8 after the update"
    count = len(dropped) if isinstance(dropped, list | tuple | np.ndarray) else 2
    indexes = numbers(dropped, count, missing)
    for index in indexes:
        if index not in (3, 8, 12, 7):
            raise NotYet(f"row {index:g} is not in the update, whose indexes are 3, 8, 12, 7 and 8")
        if index >= 8:
            raise NotYet(f"row {index:g} is still stored: the newest five rows are 8 to 12")
    if lost := {3, 7} - set(indexes):
        raise NotYet(f"row {lost.pop()} has been replaced: the newest five rows are 8 to 12")
    if len(indexes) != 2:
        raise NotYet(f"write each index that is dropped once, not {len(indexes)} numbers")
    if numbers([priority_of_8], 1, missing) != [5.0]:
        raise NotYet(f"row 8 occurs twice in the update, and its last priority counts, not {priority_of_8}")
    print("right: updates of replaced rows are dropped, and the last priority of an index counts")


def check_stratified(stratified: Callable[..., Any]) -> None:
    """Check a function `stratified(totals, count, rng)` that draws stratified queries over several trees.

    Correct draws fail once in 10,000 calls.
    """
    for totals, count in [
        ([8.0], 8),
        ([1.0, 3.0], 1),
        ([3.5, 0.25, 8.0], 32),
        ([0.0, 2.0, 0.0, 5.0, 0.0], 5),
    ]:
        totals = np.array(totals)
        where = f"trees with the totals {totals.tolist()}, {count} segments"
        rng, places = np.random.default_rng(0), np.zeros((800, count))
        for turn in range(len(places)):
            given = call(stratified, totals, count, rng)
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise NotYet(
                    f"my_stratified must return two arrays, the trees and the queries, not {given!r:.40}"
                )
            trees, queries = (array_of(part, (count,), where) for part in given)
            if trees.dtype.kind not in "iu" or not ((trees >= 0) & (trees < len(totals))).all():
                raise NotYet(
                    f"{where}: trees must be integers from 0 to {len(totals) - 1}, not {trees!r:.60}"
                )
            outside = np.flatnonzero(~((queries >= 0) & (queries < totals[trees])))
            for place in outside[:1]:
                raise NotYet(
                    f"{where}: query {place} is {queries[place]:.3f} in tree {trees[place]}, whose total is "
                    f"{totals[trees[place]]:g}. A query is relative to the start of its tree, and below its "
                    "total"
                )
            points = (totals.cumsum() - totals)[trees] + queries  # on the line of all trees, end to end
            places[turn] = points / totals.sum() * count - np.arange(count)
            wrong = np.flatnonzero(~((places[turn] > -1e-9) & (places[turn] < 1 + 1e-9)))
            for place in wrong[:1]:
                first = place * totals.sum() / count
                raise NotYet(
                    f"{where}: on the line of all trees, query {place} is at {points[place]:.3f}, but its "
                    f"segment is {first:.3f} to {first + totals.sum() / count:.3f}"
                )
        for column in places.T:
            text = (
                f"{where}: each query must be uniformly distributed in its segment, from its start to its end"
            )
            expect_draws(np.histogram(column, 10, (0, 1))[0], np.ones(10), text)
        related = np.corrcoef(np.hstack([places[1:], places[:-1]]).T) - np.eye(2 * count)
        if not (np.abs(related) < 0.2).all() or len(np.unique(places)) < places.size:
            raise NotYet(
                f"{where}: some queries have the same offset in their segments: draw a number for each"
            )
    check_ends(stratified)
    first, second = (stratified(np.ones(2), 4, np.random.default_rng(0))[1] for _ in range(2))
    if not np.array_equal(first, second):
        raise NotYet("the same generator gave different queries: draw only with `rng`")
    print("right: one query in each segment of the line of all trees, uniformly distributed")


class Constant(np.random.Generator):
    """A generator whose every draw from [0, 1) is the same number, such as the smallest or the largest."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, size: Any = None, *_: Any, **options: Any) -> Any:
        """Return the number, or an array of it."""
        return self.number if size is None else np.full(size, self.number)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Return the same point of each interval."""
        points = low + np.subtract(high, low) * self.number
        return points if size is None else np.broadcast_to(points, size).copy()


def check_ends(stratified: Callable[..., Any]) -> None:
    """Check the smallest and the largest draws; the largest plus the number of a segment is rounded up."""
    for totals, count in [([1.0, 3.0], 8), ([1.0, 2.0, 0.0], 512), ([0.0, 2.0, 0.0, 6.0, 0.0], 512)]:
        totals = np.array(totals)
        for number in (0.0, float(np.nextafter(1.0, 0.0))):
            where = f"trees with the totals {totals.tolist()}, {count} segments, if rng draws {number!r}"
            try:
                trees, queries = map(np.asarray, call(stratified, totals, count, Constant(number)))
            except IndexError as error:
                raise NotYet(
                    f"{where}: {error}. {count - 1} + {number!r} is rounded to {count}, so the last query is "
                    "the total of all trees: it belongs to the last tree whose total isn't 0"
                ) from error
            ends = totals[trees.clip(max=len(totals) - 1)]
            right = (trees < len(totals)) & (ends > 0) & ((queries < ends) | (number > 0) & (queries == ends))
            for place in np.flatnonzero(~right)[:1]:
                raise NotYet(
                    f"{where}: query {place} is {queries[place]:g} in tree {trees[place]}, whose total is "
                    f"{ends[place]:g}. A point at the end of a tree belongs to the next one whose total "
                    "isn't 0; at the end of the line, where only rounding leads, to the last one"
                )


def check_update(update: Callable[..., Any]) -> None:
    """Check a function `update(tree, indexes, masses, next_index, capacity)` that drops late updates."""
    rng = np.random.default_rng(0)
    for capacity, next_index in [(8, 8), (8, 11), (8, 24), (5, 13), (8, 3)]:
        tree = PlainSumTree(capacity)
        oldest = max(next_index - capacity, 0)
        expected = {index: 1.0 for index in range(oldest, next_index)}
        tree.set([index % capacity for index in expected], list(expected.values()))
        for turn in range(50):
            indexes = rng.integers(max(next_index - 2 * capacity, 0), next_index, turn % 5)
            masses = rng.integers(2, 9, turn % 5).astype(np.float64)
            call(update, tree, indexes, masses, next_index, capacity)
            for index, mass in zip(indexes.tolist(), masses.tolist(), strict=True):
                if index in expected:
                    expected[index] = mass
            where = (
                f"capacity {capacity}, rows {oldest} to {next_index - 1} are stored: after setting "
                f"{indexes.tolist()} to {masses.tolist()}"
            )
            for index, mass in expected.items():
                given = tree.nodes[tree.leaf_count + index % capacity]
                if given != mass:
                    raise NotYet(f"{where}, row {index} has the mass {given:g}, not {mass:g}")
            if tree.total != sum(expected.values()):
                raise NotYet(
                    f"{where}, all rows are right, but the total is {tree.total:g}, not "
                    f"{sum(expected.values()):g}: change masses only with tree.set, and only those of stored "
                    "rows"
                )
    print("right: every stored row is updated, including the oldest, and no other row")
