"""Checks of chapter 06: a shared replay buffer, a reader of rows, stamps, a dead writer, and two bugs.

In `check_shared`, two processes write rows in which every value is the row's number, while this process
samples. No row may be torn or invented. No row may be lost while there is room for it, and the oldest rows
must be replaced first. It checks the versions in `replay_course/steps/shared/`, the package's buffer and the
reader's own.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_course.answers import array_of, expect_independent
from replay_course.exercises import CheckFailed, Hints, NotYet
from replay_course.steps.shared.stamped_rows import StampedRows
from replay_course.writers import SAMPLE, Writers, fields_of, numbers_of
from replay_tutorial.shared.protocol import abandoned, held_stamp, owner_of, published_stamp

CAPACITY = 32
WIDTH = 4095  # values per row besides its number: 32 KiB, so that writing a row takes a while
WRITERS = 2
SECONDS = 0.5  # for which both write at the same time, as fast as they can
PATIENCE = 10.0  # seconds
STAMPS = (10, 4, 15, 0)
SLOT = 2  # that the check of a reader reads

read_hints = Hints(
    "Before the copy, the stamp says whether there is a complete row at all: 0 and odd stamps mean no.",
    "A complete row can become incomplete during the copy. The stamp would then be different.",
    "rows[slot] is not a copy but a view of the shared memory: later writes change it.",
    "Keep the first stamp in a variable, copy the row, and compare the variable with stamps[slot].",
)


class Torn(CheckFailed):
    """A row that no writer added: its values come from two rows, or from none.

    Attributes:
        values: The row, float64[WIDTH + 1], its number first.
    """

    def __init__(self, values: npt.NDArray[np.float64]) -> None:
        self.values = values
        numbers, starts = np.unique(values, return_index=True)
        parts = ", ".join(
            f"{np.sum(values == number):,} of row {number:.0f}"
            for number in numbers[np.argsort(starts)].tolist()
        )
        super().__init__(f"a torn row: its {len(values):,} values consist of {parts}")


def check_shared(kind: Callable[..., Any], seconds: float = SECONDS, patience: float = PATIENCE) -> None:
    """Check a shared replay buffer, and print the number of rows checked.

    Args:
        kind: Class of the buffer: `kind(capacity, fields)` with the methods `add(**rows)` for a batch,
            `sample(batch_size)` and `close()`. Buffers are passed to processes that start by spawn.
        seconds: Seconds for which the writers write at the same time.
        patience: Seconds after which added rows must be in the buffer; in a queue they arrive late.

    Raises:
        Torn: If a sampled row was not added by a writer.
        CheckFailed: If rows are lost, or kept too long.
    """
    buffer = kind(CAPACITY, fields_of(WIDTH))
    with closing(buffer), Writers(buffer, WRITERS, WIDTH) as writers:
        check_first(buffer, writers, patience)
        written, drawn = check_storm(buffer, writers, seconds)
        check_room(buffer, writers, patience)
        check_order(buffer, writers, patience)
    print(f"right: {written:,} rows added by {WRITERS} writers, {drawn:,} sampled; none torn, none lost")


def check_first(buffer: Any, writers: Writers, patience: float) -> None:
    """Let one writer add one row, and check that only this row is drawn."""
    try:
        buffer.sample(SAMPLE)
        raise CheckFailed("`sample` returned rows from an empty buffer; it should raise ValueError")
    except ValueError:
        writers.start(0, rows=1)
        writers.wait(0)
    wait_for_rows(buffer, numbers_of(0, 1, 1), "one row was added", patience)


def check_storm(buffer: Any, writers: Writers, seconds: float) -> tuple[int, int]:
    """Let the writers write at the same time; return the numbers of rows added and drawn."""
    for writer in range(WRITERS):
        writers.start(writer, seconds=seconds)
    drawn = sample_until_done(buffer, writers, range(WRITERS))
    return sum(writers.wait(writer) for writer in range(WRITERS)), drawn


def check_room(buffer: Any, writers: Writers, patience: float) -> None:
    """Let both writers add half a buffer at the same time, and check that no row is missing."""
    share = CAPACITY // WRITERS
    for writer in range(WRITERS):
        writers.start(writer, rows=share)
    sample_until_done(buffer, writers, range(WRITERS))
    ends = [writers.wait(writer) for writer in range(WRITERS)]
    newest = [numbers_of(writer, end - share + 1, share) for writer, end in enumerate(ends)]
    wait_for_rows(buffer, np.concatenate(newest), f"{WRITERS} writers added {share} rows each", patience)


def check_order(buffer: Any, writers: Writers, patience: float) -> None:
    """Let one writer add five laps of rows, and check that the buffer contains the newest ones."""
    writers.start(0, rows=5 * CAPACITY)
    sample_until_done(buffer, writers, [0])
    newest = numbers_of(0, writers.wait(0) - CAPACITY + 1, CAPACITY)
    wait_for_rows(buffer, newest, f"one writer added {5 * CAPACITY} rows", patience)


def sample_until_done(buffer: Any, writers: Writers, which: Sequence[int]) -> int:
    """Draw and check rows until the given writers are done; return the number of rows drawn.

    Only the sampler empties a queue, and a full queue blocks its writers.
    """
    drawn = 0
    while not all(writers.is_done(writer) for writer in which):
        numbers_in(buffer.sample(SAMPLE))
        drawn += SAMPLE
    return drawn


def wait_for_rows(buffer: Any, numbers: npt.NDArray[np.float64], where: str, patience: float) -> None:
    """Draw until the buffer contains exactly these rows; raise CheckFailed after `patience` seconds."""
    wanted, end = set(numbers.tolist()), time.monotonic() + patience
    while (drawn := draw_all(buffer)) != wanted:
        if time.monotonic() > end:
            raise CheckFailed(
                f"{where} last, and the capacity is {CAPACITY}; missing rows: {named(wanted - drawn)}, "
                f"unexpected rows: {named(drawn - wanted)}"
            )


def draw_all(buffer: Any) -> set[float]:
    """Return the numbers of the rows in the buffer.

    It draws so many rows that it misses a given one only once in ten million calls.
    """
    draws = -(-CAPACITY * 20 // SAMPLE)
    try:
        return {number for _ in range(draws) for number in numbers_in(buffer.sample(SAMPLE)).tolist()}
    except ValueError:  # the buffer is empty
        return set()


def numbers_in(batch: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Return the numbers of the rows; raise Torn if a row contains two numbers, or was never written."""
    numbers = batch["number"]
    torn = (batch["values"] != numbers[:, np.newaxis]).any(axis=1) | (numbers == 0)
    if torn.any():
        place = int(np.argmax(torn))
        raise Torn(np.concatenate([numbers[place : place + 1], batch["values"][place]]))
    return numbers


def named(numbers: set[float]) -> str:
    """Format a set of row numbers: their count, and the first few."""
    names = [f"{number:.0f}" for number in sorted(numbers)]
    return f"{len(names)}" + (f" ({', '.join(names[:3])}{', ...' if names[3:] else ''})" if names else "")


def check_rows(rows: Sequence[Any]) -> None:
    """Check the indexes of the rows in the slots with `STAMPS`; None for a slot without a complete row."""
    if not isinstance(rows, list | tuple) or len(rows) != len(STAMPS) or ... in rows:
        raise NotYet("replace each ... with an index, or with None for a slot without a complete row")
    for slot, (given, stamp) in enumerate(zip(rows, STAMPS, strict=True)):
        right = None if stamp == 0 or stamp % 2 else stamp // 2 - 1
        if given == right:
            continue
        if right is None:
            reason = (
                "means never written" if stamp == 0 else "is odd, so a writer holds the slot or died there"
            )
            raise NotYet(f"slot {slot}: the stamp {stamp} {reason}; expected None, not {given}")
        raise NotYet(f"slot {slot}: the stamp {stamp} is 2 * (index + 1), so the index is not {given}")
    print("right: rows 4 and 1, and no row from the other two slots")


class WatchedSlot:
    """A slot whose stamp and row change while they are read, as if another process wrote.

    Attributes:
        states: Pairs (stamp, values of the row), in order.
        changes: Numbers of reads after which the slot enters the next state.
        reads: The stamp, each time it was read, and "row" for each read of the row.
        seen: Values of the row during each read.
    """

    MAX_READS = 1000

    def __init__(self, states: Sequence[tuple[int, Sequence[float]]], changes: Sequence[int]) -> None:
        self.states, self.changes = states, changes
        self.seen: list[Sequence[float]] = []
        self.reads: list[int | str] = []
        self.row = np.zeros(3).view(WatchedRow)
        self.row.slot = self

    def read(self, what: str) -> int:
        """Return the current stamp, after setting the row to its current values."""
        stamp, values = self.states[sum(len(self.reads) >= change for change in self.changes)]
        self.row[:] = values
        self.seen.append(values)
        self.reads.append(stamp if what == "stamp" else what)
        if len(self.reads) > self.MAX_READS:
            raise NotYet(f"after {self.MAX_READS:,} reads, nothing is returned: don't wait, return None")
        return stamp


class WatchedRow(np.ndarray):
    """The row of a `WatchedSlot`; copying it counts as a read."""

    slot: Any = None

    def copy(self, order: Any = "C") -> npt.NDArray[Any]:
        """Return a copy of the current values."""
        if self.slot is not None:
            self.slot.read("row")
        return np.array(self)


class WatchedPart:
    """The stamps or the rows of a ring of four slots, of which only slot `SLOT` is read."""

    def __init__(self, what: str, slot: WatchedSlot) -> None:
        self.what, self.slot = what, slot
        array = np.zeros(4, np.int64) if what == "stamp" else np.zeros((4, len(slot.row)))
        self.shape, self.size, self.dtype = array.shape, array.size, array.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> Any:
        number, *rest = place if isinstance(place, tuple) else (place,)
        if not isinstance(number, int | np.integer) or number != SLOT:
            raise NotYet(f"read stamps[slot] and rows[slot]: the slot is {SLOT}, not {number}")
        stamp = np.int64(self.slot.read(self.what))
        if self.what == "stamp":
            return stamp
        return self.slot.row if rest in ([], [slice(None)], [...]) else self.slot.row[tuple(rest)]

    def copy(self) -> Any:
        """Refuse to copy all slots."""
        raise NotYet(f"copy only one slot of the {self.what}s: rows[slot].copy()")

    def item(self, *place: int) -> int | float:
        """Return one number, as `item` of an array does."""
        return self[place].item()

    def take(self, number: int, axis: int | None = None, **_: Any) -> Any:
        """Return a stamp, or a copy of a row, as `take` of an array does."""
        if axis != 0 and self.what == "row":
            raise NotYet("rows.take(slot) takes a single number of all rows: pass axis=0")
        return self[number].copy()


NEVER, OLD, HELD, NEW = (0, (0.0,) * 3), (8, (7.0,) * 3), (25, (8.0, 8.0, 7.0)), (24, (8.0,) * 3)
# Two rows are written one after the other. Both are (1, 6, 6) while half-written, which is no row.
FIRST, HALF, SECOND = (8, (1.0, 5.0, 5.0)), (25, (1.0, 6.0, 6.0)), (24, (2.0, 6.0, 6.0))
TWICE = FIRST, HALF, SECOND, (33, (1.0, 6.0, 6.0)), (32, (1.0, 7.0, 7.0))


def check_read(read: Callable[..., Any]) -> None:
    """Check a function `read(stamps, rows, slot)` that returns a copy of a complete row, or None.

    A writer takes the slot and finishes its row after each possible number of reads; so do two, one after
    the other.
    """
    for states in ((NEVER, HELD, NEW), (OLD, HELD, NEW), TWICE):
        halves = {values for stamp, values in states if stamp % 2}
        for changes in itertools.combinations_with_replacement((*range(7), 10**6), len(states) - 1):
            slot = WatchedSlot(states, changes)
            got = read(WatchedPart("stamp", slot), WatchedPart("row", slot), SLOT)
            where = "your reads found " + ", ".join(
                f"the stamp {each}" if isinstance(each, int) else "the row" for each in slot.reads
            )
            if got is None:
                if states[0] is not NEVER and changes[0] >= len(slot.reads):
                    raise NotYet(f"{where}; the row is complete, but None was returned")
                continue
            values = array_of(got, (3,), where).tolist()
            if states[0] is NEVER and values == [0.0] * 3:
                raise NotYet(f"{where}; the zeros of a slot that was never written were returned, not None")
            if tuple(values) in halves or tuple(values) not in slot.seen:
                raise NotYet(
                    f"{where}; {values} was returned, which is torn or was never added. A writer held the "
                    "slot in between, and its stamp was odd, or is another one now: keep the first stamp in "
                    "a variable"
                )
            slot.row[:] = 9.0
            if np.asarray(got).tolist() != values:
                raise NotYet(
                    "a writer changed the slot afterwards, and the returned row changed with it: copy it"
                )
    print("right: a copy of the row, and only if both checks return the same even stamp")


class RowsReadBy(StampedRows):
    """A stamped ring that this process samples with a given function; other processes only add rows."""

    def __init__(self, read: Callable[..., Any], capacity: int, fields: Mapping[str, Any]) -> None:
        super().__init__(capacity, fields)
        self.read_row = read

    def __getstate__(self) -> dict[str, Any]:
        """Return what a writer process needs, without the function, which a notebook may have defined."""
        return {name: value for name, value in vars(self).items() if name != "read_row"}

    def sample(self, batch_size: int) -> dict[str, npt.NDArray[Any]]:
        """Draw rows uniformly; if the function returns None for a row, draw another one instead."""
        next_index, stamps, rows = self.arrays
        stored = min(int(next_index[0]), self.capacity)
        if stored == 0:
            raise ValueError(f"sample({batch_size}) needs at least 1 row; the buffer is empty.")
        drawn: list[Any] = []
        while len(drawn) < batch_size:
            row = self.read_row(stamps, rows, int(self.rng.integers(stored)))
            if row is not None:
                drawn.append(row)
        batch = np.array(drawn).view(self.record)
        return {name: batch[name][:, 0] for name in self.record.names or ()}


def check_reader(read: Callable[..., Any]) -> None:
    """Check a function `read(stamps, rows, slot)` against simulated writers, then against two processes."""
    check_read(read)
    check_shared(partial(RowsReadBy, read))


def check_release(release: Callable[..., Any]) -> None:
    """Check a function that releases the slot of a dead writer, and no other."""
    published, alive, dead = published_stamp(11), held_stamp(11, owner=27), held_stamp(11, owner=25)
    released, later = abandoned(dead), published_stamp(19)
    for stamp, then, free, left, case in (
        (0, 0, True, 0, "means that the slot was never written: no writer holds it"),
        (published, published, True, published, "is even: no writer holds the slot"),
        (released, released, True, released, "is odd, and its owner is 0: it has been released already"),
        (alive, alive, False, alive, "is odd, and its owner is alive"),
        (dead, dead, True, released, "is odd, and its owner is dead"),
        (dead, alive, None, alive, "has a dead owner; meanwhile, a living writer got the slot"),
        (dead, later, None, later, "has a dead owner; meanwhile, another writer published a row"),
    ):
        stamps, others = [alive, dead, stamp, dead], [alive, dead, dead]
        found = f"the stamp {stamp} {case}"

        def is_alive(owner: int, stamps: list[int] = stamps, then: int = then, found: str = found) -> bool:
            if owner not in (25, 27):
                raise NotYet(
                    f"{found}; is_alive was asked about {owner}, which is no process: pass owner_of(stamp)"
                )
            stamps[SLOT] = then  # what other writers do while the system answers
            return owner == 27

        given = release(stamps, SLOT, owner_of, is_alive, abandoned, compare_and_swap)
        if [stamps[0], stamps[1], stamps[3]] != others:
            raise NotYet(f"{found}; the stamp of another slot than {SLOT} has changed")
        if stamps[SLOT] != left:
            raise NotYet(f"{found}; it should be {left} afterwards, not {stamps[SLOT]}")
        if not isinstance(given, bool | int | np.bool_) or (free is not None and bool(given) != free):
            raise NotYet(
                f"{found}; the result should be {'True or False' if free is None else free}, not {given}"
            )
    print("right: only the slot of a dead writer is released, even if others continue in the meantime")


def compare_and_swap(stamps: list[int], slot: int, old: int, new: int) -> bool:
    """Set a stamp if it is still `old`; return whether it was."""
    if stamps[slot] != old:
        return False
    stamps[slot] = new
    return True


class ScriptedStamps:
    """Stamps of a complete row, a slot never written, a dead writer, a row that changes, and another row."""

    MAX_READS = 100_000

    def __init__(self, count: int) -> None:
        self.values, self.reads = [8, 0, 27, 12, 18][:count], 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, slot: int) -> int:
        self.reads += 1
        if self.reads > self.MAX_READS:
            raise NotYet(
                f"after {self.MAX_READS:,} reads of stamps, the batch is still incomplete; what does the "
                "sampler wait for?"
            )
        return self.values[slot]


class ScriptedRows:
    """The rows of `ScriptedStamps`. While row 5 is copied from slot 3, a writer replaces it with row 13."""

    def __init__(self, stamps: ScriptedStamps) -> None:
        self.stamps, self.rows = stamps, [np.full(4, float(row)) for row in (3, 0, 12, 5, 8)[: len(stamps)]]

    def __getitem__(self, place: Any) -> Any:
        slot, *rest = place if isinstance(place, tuple) else (place,)
        if rest:
            return self[slot][tuple(rest)]
        if slot == 3 and self.stamps.values[3] == 12:
            self.stamps.values[3] = 2 * (13 + 1)
            self.rows[3] = np.full(4, 13.0)
            return np.array([5.0, 5.0, 13.0, 13.0])
        return self.rows[slot]


def check_sampler(sample: Callable[..., Any]) -> None:
    """Check a function `sample(stamps, rows, rng, batch_size)` that draws complete rows uniformly.

    Correct draws fail once in 100,000 calls.
    """
    size, drawn = 400, list[list[float]]()
    for seed, count in ((0, 4), (0, 4), (1, 4), (0, 5)):
        stamps = ScriptedStamps(count)
        rows, stored = ScriptedRows(stamps), np.array([3, 8, 13] if count == 5 else [3, 13])
        returned = sample(stamps, rows, np.random.default_rng(seed), size)
        batch = array_of(returned, (size, 4), f"a batch of {size} rows of 4 values")
        if (batch != batch[:, :1]).any():
            raise NotYet(
                "a torn row: a writer changed it during the copy, so the stamp must be checked again"
            )
        drawn.append(batch[:, 0].tolist())
        for row, reason in {
            0: "the zeros of slot 1, which was never written",
            12: "the half-written row 12",
            **{row: f"row {row:g}, which isn't stored" for row in {*drawn[-1]} - {3, 8, 13, 0, 12}},
        }.items():
            if row in drawn[-1]:
                raise NotYet(f"the batch contains {reason}. What is the stamp of that slot?")
        batch = np.array(returned)
        for row in rows.rows:
            row[:] = 99.0
        if not np.array_equal(np.array(returned), batch):
            raise NotYet("a writer changed a slot afterwards, and a sampled row changed with it: copy it")
        where = f"{count} slots with the complete rows {stored.tolist()}"
        expect_independent(np.searchsorted(stored, drawn[-1]), len(stored), where)
    if drawn[0] != drawn[1] or drawn[0] == drawn[2]:
        raise NotYet(
            "the same generator must draw the same rows, and another one other rows: draw with `rng`"
        )
    print("right: complete rows only, drawn equally often, and a dead writer blocks no sampler")
