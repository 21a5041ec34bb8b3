"""One check for every shared replay buffer: those of `steps`, and the package's.

Two processes write rows in which every value is the row's number, while this process samples. No row may be
torn or invented. No row may be lost while there is room for it, and the oldest rows must be replaced first.
The check shares no code with the buffers.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.teaching.exercises import CheckFailed
from replay_tutorial.teaching.writers import SAMPLE, Writers, fields_of, numbers_of

CAPACITY = 32
WIDTH = 4095  # values per row besides its number: 32 KiB, so that writing a row takes a while
WRITERS = 2
SECONDS = 0.5  # for which both write at the same time, as fast as they can
PATIENCE = 10.0  # seconds


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
        check_rows(buffer.sample(SAMPLE))
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
        return {number for _ in range(draws) for number in check_rows(buffer.sample(SAMPLE)).tolist()}
    except ValueError:  # the buffer is empty
        return set()


def check_rows(batch: dict[str, Any]) -> npt.NDArray[np.float64]:
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
