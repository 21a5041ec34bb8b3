"""Checks of chapter 01: a uniform replay buffer, slots, adding a batch, and a buffer with a bug.

`check_uniform` adds distinguishable rows and compares the samples with a plain list. It checks the versions
in `steps/uniform/`, the package's buffer and the reader's own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.uniform import RingOfRecords
from replay_tutorial.teaching.chi_square import fairness
from replay_tutorial.teaching.exercises import CheckFailed, Hints, NotYet, expect

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
            rows are not sampled equally often or not independently, or if the buffer shares memory with the
            caller's arrays.
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
            check_batch(buffer.sample(32), max(0, added - capacity) + 1, added, where)
        check_drawn(buffer, added - capacity + 1, added, f"capacity {capacity}, after {added} rows")
    check_copies(kind)
    print(f"right: capacities {', '.join(map(str, CAPACITIES))}, each with 1 to 2 * capacity + 3 rows")


def check_batch(batch: Any, oldest: int, newest: int, where: str) -> None:
    """Raise CheckFailed if a row of the batch is not one of `oldest` to `newest`, or has a wrong value."""
    if not isinstance(batch, Mapping) or not FIELDS.keys() <= batch.keys():
        names = list(batch) if isinstance(batch, Mapping) else batch
        raise CheckFailed(f"{where}: sample() must return a dict with the fields {list(FIELDS)}, not {names}")
    for name, field in FIELDS.items():
        shape = (32, *field.get("shape", ()))
        if batch[name].shape != shape or batch[name].dtype != field["dtype"]:
            raise CheckFailed(
                f"{where}: {name!r} is {batch[name].dtype}{batch[name].shape}, not "
                f"{np.dtype(field['dtype'])}{shape}"
            )
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
    drawn = np.concatenate([buffer.sample(1000)["action"] for _ in range(-(-DRAWS * stored // 1000))])
    counts = np.bincount(drawn - oldest, minlength=stored)
    result = fairness(counts, np.ones(stored))
    if not result.is_fair:
        raise CheckFailed(
            f"{where}: row {oldest + result.worst} was sampled {counts[result.worst]:,} times in "
            f"{counts.sum():,} draws, but {counts.sum() / stored:,.0f} times are expected "
            f"(χ² = {result.chi_square:,.0f} with {result.freedom} degrees of freedom)"
        )
    # If the rows are drawn independently, all distances between consecutive ones are equally likely.
    distances = np.bincount(np.diff(drawn) % stored, minlength=stored)
    if stored > 1 and not fairness([distances[0], distances[1:].sum()], [1, stored - 1]).is_fair:
        raise CheckFailed(
            f"{where}: the same row was drawn twice running {distances[0]:,} times in {len(drawn):,} draws, "
            f"but {len(drawn) / stored:,.0f} times are expected; sample each row independently, with "
            "replacement"
        )
    result = fairness(distances, np.ones(stored))
    if not result.is_fair:
        raise CheckFailed(
            f"{where}: row i was followed by row i + {result.worst} {distances[result.worst]:,} times in "
            f"{len(drawn):,} draws, but {len(drawn) / stored:,.0f} times are expected; sample each row "
            "independently of the others"
        )


def check_copies(kind: Callable[..., Any]) -> None:
    """Raise CheckFailed if the buffer shares memory with an added array or a returned batch."""
    buffer, given = kind(4, FIELDS, seed=0), row(7)
    buffer.add(**given)
    given["obs"][:] = -1.0
    if buffer.sample(1)["obs"][0, 0] != 7.0:
        raise CheckFailed("a stored row changed when the caller wrote to the array that was added")
    buffer.sample(1)["obs"][:] = -1.0
    if buffer.sample(1)["obs"][0, 0] != 7.0:
        raise CheckFailed("a stored row changed when the caller wrote to a batch")


def check_rows(rows: Sequence[Any]) -> None:
    """Check the rows in the slots of a ring of capacity 5 after 13 rows."""
    expected = [10, 11, 12, 8, 9]
    if len(rows) != 5 or ... in rows:
        raise NotYet("write a row number for each of the five slots; rows are numbered from 0")
    for slot, given in enumerate(rows):
        if given % 5 != slot:
            raise NotYet(f"row {given} is not in slot {slot} but in slot {given % 5}, which is {given} % 5")
        if not 0 <= given < 13:
            raise NotYet(f"row {given} was never added: the 13 rows have the numbers 0 to 12")
        if given != expected[slot]:
            raise NotYet(f"row {given} was in slot {slot} earlier; which is the newest row in this slot?")
    print("right: the newest row, 12, is in slot 2, and the oldest, 8, will be overwritten next")


def check_add_many(add_many: Callable[..., Any]) -> None:
    """Check a function that adds a batch of rows to a ring of records."""
    for capacity, before, count in [(8, 0, 3), (8, 6, 5), (8, 3, 8), (5, 4, 1), (8, 5, 20)]:
        ring, oracle = RingOfRecords(capacity, FIELDS), RingOfRecords(capacity, FIELDS)
        for number in range(before):
            ring.add(**row(number))
        for number in range(before + count):
            oracle.add(**row(number))
        rows = [row(number) for number in range(before, before + count)]
        columns = {name: np.array([values[name] for values in rows]) for name in FIELDS}
        add_many(ring, **columns)
        where = f"capacity {capacity}, {before} rows, then a batch of {count}"
        if ring.added != oracle.added:
            raise NotYet(f"{where}: `added` is {ring.added}, not {oracle.added}")
        if (wrong := np.flatnonzero(ring.rows != oracle.rows)).size:
            slot = int(wrong[0])
            raise NotYet(
                f"{where}: slot {slot} holds row {ring.rows['action'][slot]}, but should hold row "
                f"{oracle.rows['action'][slot]}. `slots = np.arange(first, end) % capacity` may help"
            )
    print("right: also across the wrap-around, and with more rows than slots")


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
    except (TypeError, KeyError, AttributeError) as error:
        raise NotYet(f"my_sample must return a batch: {error}") from None
