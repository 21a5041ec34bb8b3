"""Chapter 01: hints for writing a ring, and the exercises: slots, adding a batch, and a buffer with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.uniform import RingOfRecords
from replay_tutorial.teaching.exercises import CheckFailed, Hints, NotYet
from replay_tutorial.teaching.uniform_check import FIELDS, check_uniform, row

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
                f"{where}: slot {slot} holds row {ring.rows['act'][slot]}, but should hold row "
                f"{oracle.rows['act'][slot]}. `slots = np.arange(first, end) % capacity` may help"
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
