"""The ladder of the shared replay buffer: how much writers and sampler get done while they share it.

Some writers add batches of 100 rows and this process samples batches of 64, all as fast as they can, for a
second. The ceiling is a buffer that nobody shares: what one process adds alone, and what it samples alone.

Left out: short turns. Each rung has the machine to itself for its second, so a busy machine shows.
"""

import contextlib
import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers import ReplayBuffer
from replay_tutorial.measuring.timing import Spread
from replay_tutorial.shared import MPReplayBuffer
from replay_tutorial.steps.shared import FineLocks, ManagerReplay, NoLock, OneLock, QueueReplay, StampedRows
from replay_tutorial.teaching.ladder import Ladder, Rung, microseconds
from replay_tutorial.teaching.writers import START_SECONDS, add_and_count, running, spawn

RUNGS = (
    Rung(QueueReplay, "–"),
    Rung(ManagerReplay, "a separate process stores the rows; a killed writer doesn't block it"),
    Rung(OneLock, "shared memory: rows are not sent"),
    Rung(FineLocks, "locks single rows, not whole calls"),
    Rung(NoLock, "no process waits; **wrong**: torn rows"),
    Rung(StampedRows, "no torn rows, and no process waits"),
    Rung(MPReplayBuffer, "frees the slots of dead writers; whole batches in compiled code"),
)
CAPACITY, CHUNK, BATCH = 10_000, 100, 64
SECONDS = 1.0
ADDED, DRAWN = "rows added", "batches drawn"
FIELDS: dict[str, Any] = {
    name: {"shape": shape, "dtype": np.float64}
    for name, shape in {"obs": (4,), "act": (1,), "rew": (1,), "next_obs": (4,), "done": (1,)}.items()
}
ROWS = {name: np.ones((CHUNK, *field["shape"])) for name, field in FIELDS.items()}


class Race(NamedTuple):
    """The rows added and the batches drawn per second by all processes."""

    rows_added: float
    batches_drawn: float


def race(kind: Callable[..., Any], writers: int = 2, seconds: float = SECONDS) -> Race:
    """Let writers add and this process sample, all as fast as they can.

    Args:
        kind: Makes a shared replay buffer, as for `check_shared`.
        writers: How many processes add.
        seconds: How long it is measured, once all of them are there.
    """
    buffer = kind(CAPACITY, FIELDS)
    added = spawn.RawArray(ctypes.c_int64, writers)
    processes = [
        spawn.Process(target=add_and_count, args=(buffer, ROWS, added, writer), daemon=True)
        for writer in range(writers)
    ]
    with contextlib.closing(buffer), running(*processes):
        sample_for(buffer, START_SECONDS, until=lambda: all(added))
        before = sum(added)
        batches, taken = sample_for(buffer, seconds)
        return Race((sum(added) - before) / taken, batches / taken)


def sample_for(buffer: Any, seconds: float, until: Callable[[], bool] = lambda: False) -> tuple[int, float]:
    """Sample for so many seconds, or until something is true; return how often, and how long it took."""
    start, batches = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < seconds and not until():
        with contextlib.suppress(ValueError):  # nothing has come yet
            buffer.sample(BATCH)
        batches += 1
    return batches, taken


def ceiling() -> Race:
    """Measure a buffer that nobody shares: what it takes in alone, and what it gives out alone."""
    buffer = ReplayBuffer(CAPACITY, FIELDS, seed=0)
    add = microseconds(lambda: buffer.add(**ROWS))
    return Race(CHUNK / add * 1e6, 1e6 / microseconds(lambda: buffer.sample(BATCH)))


def ladder_of(races: Mapping[str, Sequence[Race]]) -> Ladder:
    """Return the table of what was measured: the races of each rung by its name, and of the ceiling by ""."""
    return Ladder(
        RUNGS,
        {
            (name, done): Spread.of(np.array(figures))
            for name, those in races.items()
            for done, figures in zip((ADDED, DRAWN), zip(*those, strict=True), strict=True)
        },
        "per second",
    )


def shared_ladder(writers: int = 2, rounds: int = 1) -> Ladder:
    """Measure all rungs, one after the other, and that so many times."""
    races: dict[str, list[Race]] = {"": [], **{rung.kind.__name__: [] for rung in RUNGS}}
    for _ in range(rounds):
        races[""].append(ceiling())
        for rung in RUNGS:
            races[rung.kind.__name__].append(race(rung.kind, writers))
    return ladder_of(races)
