"""Checks of chapter 01: a uniform replay buffer, slots, adding a batch, and a buffer with a bug.

`check_uniform` adds distinguishable rows and compares the samples with a plain list. It checks the versions
in `replay_course/steps/uniform/`, the package's buffer and the reader's own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from replay_course.answers import Watched, call, expect_independent, lines_run, numbers
from replay_course.chi_square import fairness
from replay_course.exercises import CheckFailed, Hints, NotYet, expect
from replay_course.steps.uniform import RingOfRecords

FIELDS: dict[str, Any] = {
    "obs": {"shape": (2,), "dtype": np.float32},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float32},
    "next_obs": {"shape": (2,), "dtype": np.float32},
    "terminated": {"dtype": np.bool_},
}
CAPACITIES = (1, 2, 3, 7, 8, 1000)
DRAWS = 200  # expected draws of each row in the test for uniform sampling

ring_hints = Hints(
    "Nothing is ever moved or removed. `self.added` alone determines where the next row goes, and how many "
    "rows are stored.",
    "Before the ring is full, it stores `added` rows; afterwards, always `capacity`: the smaller of the two.",
    "In `add`: the slot is the remainder of `self.added` divided by `self.capacity`. Write the value of each "
    "field to this slot of its array, then increase `self.added`.",
    "In `sample`: draw all slots in one call, `self.rng.integers(limit, size=batch_size)`, which excludes "
    "`limit`. How many slots contain a row? Use the same slots for all fields, or rows get mixed up.",
    "An array indexed by an array of slots returns a copy of all those rows: `column[slots]`.",
)


def row(number: int) -> dict[str, Any]:
    """Return the row with this number, from which all its values are computed."""
    obs = np.array([number, -number], np.float32)
    values = {"obs": obs, "action": number, "reward": number / 2, "next_obs": obs + 1}
    return values | {"terminated": number % 5 == 0}


def check_uniform(kind: Callable[..., Any]) -> None:
    """Check a uniform replay buffer and print what was checked.

    Args:
        kind: Class of the buffer. It is called as `kind(capacity, fields, seed=0)`, and its instances have
            `add(**transition)`, `sample(batch_size)` and `len()`.

    Raises:
        CheckFailed: If a sampled row is not one of the newest `capacity` rows or has a wrong value, if the
            rows are not sampled equally often or not independently, if the seed doesn't determine the draws,
            or if the buffer shares memory with the caller's arrays. Correct draws fail less than once in
            20,000 calls: they exceed each of 45 limits once in a million times.
    """
    for capacity in CAPACITIES:
        buffer, added = kind(capacity, FIELDS, seed=0), 0
        for wanted in (1, capacity - 1, capacity, capacity + 1, 2 * capacity + 3):
            while added < wanted:
                added += 1
                buffer.add(**row(added))  # starts at row 1, because an empty slot looks like row 0
            where = f"capacity {capacity}, after {added} row{'s' * (added > 1)}"
            stored = min(added, capacity)
            expect(len(buffer) == stored, f"{where}: len() is {len(buffer)}, not {stored}")
            oldest = added - stored + 1
            check_batch(buffer.sample(32), oldest, added, where)
            if added in (capacity - 1, 2 * capacity + 3):  # while the ring fills up, and when it is full
                check_drawn(buffer, oldest, added, where)
    check_seeds(kind)
    check_copies(kind)
    print(f"right: capacities {', '.join(map(str, CAPACITIES))}, each with 1 to 2 * capacity + 3 rows")


def check_batch(batch: Any, oldest: int, newest: int, where: str) -> None:
    """Raise CheckFailed if a row of the batch is not one of `oldest` to `newest`, or has a wrong value."""
    if not isinstance(batch, Mapping) or not FIELDS.keys() <= batch.keys():
        names = list(batch) if isinstance(batch, Mapping) else batch
        raise CheckFailed(f"{where}: sample() must return a dict with the fields {list(FIELDS)}, not {names}")
    for name, field in FIELDS.items():
        shape, given = (32, *field.get("shape", ())), batch[name]
        if not isinstance(given, np.ndarray) or given.shape != shape or given.dtype != field["dtype"]:
            found = f"{given.dtype}{given.shape}" if isinstance(given, np.ndarray) else f"{given!r:.40}"
            raise CheckFailed(f"{where}: {name!r} is {found}, not {np.dtype(field['dtype'])}{shape}")
    for place, number in enumerate(batch["action"].tolist()):
        if number == 0:
            raise CheckFailed(
                f"{where}: sampled a row of zeros, although no such row was added: is its slot still empty?"
            )
        if not oldest <= number <= newest:
            raise CheckFailed(f"{where}: row {number} was sampled; the stored rows are {oldest} to {newest}")
        for name, value in row(number).items():
            if not np.array_equal(batch[name][place], np.asarray(value, FIELDS[name]["dtype"])):
                raise CheckFailed(
                    f"{where}: a sampled row has the 'action' of row {number}, but its {name!r} is "
                    f"{batch[name][place]}, not {value}. Do all fields come from the same slot?"
                )


def check_drawn(buffer: Any, oldest: int, newest: int, where: str) -> None:
    """Raise CheckFailed if the rows are not sampled equally often, or not independently of each other."""
    stored = newest - oldest + 1
    drawn = np.concatenate([buffer.sample(1000)["action"].copy() for _ in range(-(-DRAWS * stored // 1000))])
    counts = np.bincount(drawn - oldest, minlength=stored)
    result = fairness(counts, np.ones(stored))
    if not result.is_fair:
        raise CheckFailed(
            f"{where}: row {oldest + result.worst} was sampled {counts[result.worst]:,} times in "
            f"{counts.sum():,} draws, but {counts.sum() / stored:,.0f} times are expected "
            f"(χ² = {result.chi_square:,.0f} with {result.degrees})"
        )
    expect_independent(drawn - oldest, stored, where, error=CheckFailed)


def check_copies(kind: Callable[..., Any]) -> None:
    """Raise CheckFailed if the buffer shares memory with an added array or a returned batch."""
    buffer, given = kind(4, FIELDS, seed=0), row(7)
    call(buffer.add, **given)
    given["obs"][:] = -1.0
    if buffer.sample(1)["obs"][0, 0] != 7.0:
        raise CheckFailed("a stored row changed when the caller wrote to the array that was added")
    buffer.sample(1)["obs"][:] = -1.0
    if buffer.sample(1)["obs"][0, 0] != 7.0:
        raise CheckFailed("a stored row changed when the caller wrote to a batch")


def check_seeds(kind: Callable[..., Any]) -> None:
    """Raise CheckFailed unless the seed, and nothing else, determines which rows are sampled."""
    drawn: list[list[int]] = []
    for seed in (0, 0, 1):
        buffer = kind(100, FIELDS, seed=seed)
        for number in range(1, 101):
            buffer.add(**row(number))
        before = buffer.sample(32)
        drawn += [before["action"].tolist(), buffer.sample(32)["action"].tolist()]
        expect(
            before["action"].tolist() == drawn[-2],
            "a batch changed when the next one was sampled: return copies",
        )
    first, second, same, _, other, _ = drawn
    expect(
        first != second, f"two batches in a row contain the same rows, {first[:4]}, ...: draw anew each time"
    )
    expect(first == same, "two rings with the same seed sample different rows: draw with self.rng")
    expect(first != other, "rings with different seeds sample the same rows: draw with self.rng")


def check_ring(kind: Callable[..., Any]) -> None:
    """Check a buffer like `check_uniform`, and that the cost of `add` doesn't grow with the capacity."""
    check_uniform(kind)
    costs: list[int] = []
    for capacity in (10, 1000):
        ring = kind(capacity, FIELDS, seed=0)
        for number in range(1, capacity + 4):
            ring.add(**row(number))
        costs.append(Watched(ring).cost_of(lambda ring=ring: ring.add(**row(0))))
    expect(
        costs[1] <= costs[0] + 10,
        f"the rows are right, but a full ring of capacity 10 reads or writes {costs[0]} values to add a row, "
        f"and one of capacity 1,000 {costs[1]:,}. Don't move any row: overwrite the oldest in its slot, "
        "added % capacity",
    )


def check_rows(rows: Sequence[Any]) -> None:
    """Check the rows in the slots of a ring of capacity 5 after 13 rows."""
    given = numbers(rows, 5, "write a row number for each of the five slots; rows are numbered from 0")
    for slot, (number, right) in enumerate(zip(given, [10, 11, 12, 8, 9], strict=True)):
        if number % 5 != slot:
            raise NotYet(
                f"row {number:g} is not in slot {slot} but in slot {number % 5:g}, which is {number:g} % 5"
            )
        if not 0 <= number < 13:
            raise NotYet(f"row {number:g} was never added: the 13 rows have the numbers 0 to 12")
        if number != right:
            raise NotYet(f"row {number:g} was in slot {slot} earlier; which is the newest row in this slot?")
    print("right: the newest row, 12, is in slot 2, and the oldest, 8, will be overwritten next")


def columns_of(first: int, count: int) -> dict[str, Any]:
    """Return `count` rows from a number on, as an array for each field."""
    rows = [row(number) for number in range(first, first + count)]
    return {
        name: np.array([values[name] for values in rows], field["dtype"]) for name, field in FIELDS.items()
    }


def check_add_many(add_many: Callable[..., Any]) -> None:
    """Check a function that adds a batch of rows to a ring of records, without a loop over the rows."""
    for capacity, before, count in [
        (8, 0, 3),
        (8, 6, 5),
        (8, 3, 8),
        (5, 4, 1),
        (8, 5, 20),
        (7, 20, 16),
        (1, 0, 3),
    ]:
        ring, oracle = RingOfRecords(capacity, FIELDS), RingOfRecords(capacity, FIELDS)
        for number in range(1, before + 1):
            ring.add(**row(number))
        for number in range(1, before + count + 1):
            oracle.add(**row(number))
        columns = columns_of(before + 1, count)
        kept = {name: values.copy() for name, values in columns.items()}
        add_many(ring, **columns)
        where = f"capacity {capacity}, {before} rows, then a batch of {count}"
        if any(not np.array_equal(columns[name], values) for name, values in kept.items()):
            raise NotYet(f"{where}: the caller's arrays have changed: only read from `columns`")
        for values in columns.values():  # the caller uses its arrays again
            values[:] = 0
        if ring.added != oracle.added:
            raise NotYet(f"{where}: `added` is {ring.added}, not {oracle.added}")
        if (
            not isinstance(ring.rows, np.ndarray)
            or ring.rows.dtype != oracle.rows.dtype
            or len(ring.rows) != capacity
        ):
            raise NotYet(f"{where}: ring.rows must remain the same array: write to its slots")
        if (wrong := np.flatnonzero(ring.rows != oracle.rows)).size:
            slot = int(wrong[0])
            raise NotYet(
                f"{where}: slot {slot} holds {ring.rows[slot]}, but should hold row "
                f"{oracle.rows['action'][slot]}, {oracle.rows[slot]}. `slots = np.arange(first, end) % "
                "capacity` may help"
            )
    costs = [
        lines_run(lambda n=n: add_many(RingOfRecords(64, FIELDS), **columns_of(1, n)))
        - lines_run(lambda n=n: columns_of(1, n))
        for n in (10, 300)
    ]
    if costs[1] > costs[0] + 50:
        raise NotYet(
            f"the rows are right, but a batch of 10 takes {costs[0]} lines of Python and one of 300 "
            f"{costs[1]}. Compute all slots at once, and assign a whole column: ring.rows[name][slots] = "
            "values"
        )
    print("right: also across the wrap-around, with more rows than slots, and without a loop over the rows")


class OtherRing(RingOfRecords):
    """A ring of records whose `sample` has one bug."""

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample transitions uniformly."""
        last = max(len(self) - 1, 1)
        batch = self.rows.take(self.rng.integers(0, last, size=batch_size))
        return {name: batch[name] for name in self.names}


def check_mended(sample: Callable[..., Any]) -> None:
    """Check a corrected `sample(ring, batch_size)`."""

    class Mended(OtherRing):
        def sample(self, batch_size: int) -> dict[str, np.ndarray]:
            return sample(self, batch_size)

    try:
        check_uniform(Mended)
    except CheckFailed as wrong:
        hint = ". Is it the oldest row or the newest?" if "times" in str(wrong) else ""
        raise NotYet(f"{wrong}{hint}") from None
    except IndexError as error:
        raise NotYet(f"a slot was sampled that does not exist: {error}") from None
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise NotYet(f"my_sample must return a batch: {type(error).__name__}: {error}") from None
