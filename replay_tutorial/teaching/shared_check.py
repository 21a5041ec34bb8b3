"""One check for every replay buffer that processes share: those of `steps`, and the package's.

Two processes write rows in which every value is the row's number, and this one samples: no row may be torn,
nor made up, nor lost while there is room for it, and the oldest go first. It shares no code with what it
checks.

Left out: what happens when a writer is killed (`killed_writer`), and speed (`ladder_shared`).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.teaching.exercises import OneLine
from replay_tutorial.teaching.writers import SAMPLE, Writers, fields_of, numbers_of

CAPACITY = 32
WIDTH = 4095  # values of a row beside its number: 32 kB, so that it takes a while to write one
WRITERS = 2
SECONDS = 0.5  # that both write at the same time, as fast as they can
PATIENCE = 10.0


class WrongShared(OneLine):
    """What is wrong with a shared replay buffer, in one line."""


class Torn(WrongShared):
    """A row that nobody added: its values are of two rows, or of none.

    Attributes:
        values: The row, float64[WIDTH + 1], its number first.
    """

    def __init__(self, values: npt.NDArray[np.float64]) -> None:
        """Say which rows it is made of."""
        self.values = values
        numbers, starts = np.unique(values, return_index=True)
        parts = ", ".join(
            f"{np.sum(values == number):,} of row {number:.0f}"
            for number in numbers[np.argsort(starts)].tolist()
        )
        super().__init__(f"a torn row: of its {len(values):,} values there are {parts}")


def check_shared(kind: Callable[..., Any], seconds: float = SECONDS, patience: float = PATIENCE) -> None:
    """Check a shared replay buffer, and print what was checked.

    Args:
        kind: Makes one: `kind(capacity, fields)`, with `add(**rows)` for a batch, `sample(batch_size)`, and
            `close()`. It is passed to processes that start by spawn.
        seconds: How long the writers write at the same time.
        patience: Seconds until rows that were added must be there: some of them travel.

    Raises:
        Torn: If a row was drawn that nobody added.
        WrongShared: If rows are lost, or kept too long.
    """
    buffer = kind(CAPACITY, fields_of(WIDTH))
    with closing(buffer), Writers(buffer, WRITERS, WIDTH) as writers:
        check_first(buffer, writers, patience)
        written, drawn = check_storm(buffer, writers, seconds)
        check_room(buffer, writers, patience)
        check_order(buffer, writers, patience)
    print(
        f"right: {written:,} rows added by {WRITERS} writers, {drawn:,} drawn meanwhile: none torn, none lost"
    )


def check_first(buffer: Any, writers: Writers, patience: float) -> None:
    """Let one writer add one row: it must be drawn, and nothing else."""
    try:
        buffer.sample(SAMPLE)
        raise WrongShared("nothing has been added, and `sample` returned rows; it should raise ValueError")
    except ValueError:
        writers.start(0, rows=1)
        writers.wait(0)
    wait_for_rows(buffer, numbers_of(0, 1, 1), "one row was added", patience)


def check_storm(buffer: Any, writers: Writers, seconds: float) -> tuple[int, int]:
    """Let the writers write at the same time, as fast as they can; return the rows added, and drawn."""
    for writer in range(WRITERS):
        writers.start(writer, seconds=seconds)
    drawn = sample_until_done(buffer, writers, range(WRITERS))
    return sum(writers.wait(writer) for writer in range(WRITERS)), drawn


def check_room(buffer: Any, writers: Writers, patience: float) -> None:
    """Let both writers add half a buffer at the same time: all of these rows must be there."""
    share = CAPACITY // WRITERS
    for writer in range(WRITERS):
        writers.start(writer, rows=share)
    sample_until_done(buffer, writers, range(WRITERS))
    ends = [writers.wait(writer) for writer in range(WRITERS)]
    newest = [numbers_of(writer, end - share + 1, share) for writer, end in enumerate(ends)]
    wait_for_rows(buffer, np.concatenate(newest), f"{WRITERS} writers added {share} rows each", patience)


def check_order(buffer: Any, writers: Writers, patience: float) -> None:
    """Let one writer go round alone, five times: the newest rows must be there."""
    writers.start(0, rows=5 * CAPACITY)
    sample_until_done(buffer, writers, [0])
    newest = numbers_of(0, writers.wait(0) - CAPACITY + 1, CAPACITY)
    wait_for_rows(buffer, newest, f"one writer added {5 * CAPACITY} rows", patience)


def sample_until_done(buffer: Any, writers: Writers, which: Sequence[int]) -> int:
    """Draw, and refuse what is torn, until these writers are done; return how many rows were drawn.

    A queue is emptied only by the sampler, and a full one makes writers wait.
    """
    drawn = 0
    while not all(writers.is_done(writer) for writer in which):
        check_rows(buffer.sample(SAMPLE))
        drawn += SAMPLE
    return drawn


def wait_for_rows(buffer: Any, numbers: npt.NDArray[np.float64], where: str, patience: float) -> None:
    """Draw until all of these rows have been drawn, and no others, or patience ends."""
    wanted, end = set(numbers.tolist()), time.monotonic() + patience
    while (drawn := draw_all(buffer)) != wanted:
        if time.monotonic() > end:
            raise WrongShared(
                f"{where} last, and {CAPACITY} have room: {named(wanted - drawn)} of these are lost, "
                f"{named(drawn - wanted)} others are there"
            )


def draw_all(buffer: Any) -> set[float]:
    """Draw so often that a row which is there is missed once in ten million times; return the numbers."""
    draws = -(-CAPACITY * 20 // SAMPLE)
    try:
        return {number for _ in range(draws) for number in check_rows(buffer.sample(SAMPLE)).tolist()}
    except ValueError:  # nothing has come yet
        return set()


def check_rows(batch: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Refuse rows that are not of one number, or of none; return the numbers."""
    numbers = batch["number"]
    torn = (batch["values"] != numbers[:, np.newaxis]).any(axis=1) | (numbers == 0)
    if torn.any():
        place = int(np.argmax(torn))
        raise Torn(np.concatenate([numbers[place : place + 1], batch["values"][place]]))
    return numbers


def named(numbers: set[float]) -> str:
    """Count rows, and name the first few."""
    names = [f"{number:.0f}" for number in sorted(numbers)]
    return f"{len(names)}" + (f" ({', '.join(names[:3])}{', ...' if names[3:] else ''})" if names else "")
