"""The ladder of the shared replay buffers: rows added and batches sampled while processes share a buffer.

Some writers add batches of 100 rows while this process samples batches of 64, all as fast as they can, for
one second. The ceiling is the throughput of an unshared buffer to which one process only adds, or from which
it only samples. The rungs are measured one after the other, so other programs on a busy machine distort the
comparison.
"""

import contextlib
import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from replay_course.ladder import Ladder, Rung, microseconds
from replay_course.steps.shared import FineLocks, ManagerReplay, NoLock, OneLock, QueueReplay, StampedRows
from replay_course.timing import Spread
from replay_course.writers import START_SECONDS, add_and_count, running, spawn
from replay_tutorial import MPReplayBuffer, ReplayBuffer

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
    for name, shape in {"obs": (4,), "action": (), "reward": (), "next_obs": (4,), "done": ()}.items()
}
ROWS = {name: np.ones((CHUNK, *field["shape"])) for name, field in FIELDS.items()}


class Race(NamedTuple):
    """The rows added and the batches drawn per second by all processes."""

    rows_added: float
    batches_drawn: float


def race(kind: Callable[..., Any], writers: int = 2, seconds: float = SECONDS) -> Race:
    """Measure writers that add while this process samples, all as fast as they can.

    Args:
        kind: Class of a shared replay buffer, as in `check_shared`.
        writers: Number of processes that add.
        seconds: Length of the measurement, which starts when every writer has added rows.
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
    """Sample for some seconds or until a condition holds; return the number of batches and the seconds."""
    start, batches = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < seconds and not until():
        with contextlib.suppress(ValueError):  # the buffer is still empty
            buffer.sample(BATCH)
        batches += 1
    return batches, taken


def ceiling() -> Race:
    """Measure an unshared buffer that only adds, and one that only samples."""
    buffer = ReplayBuffer(CAPACITY, FIELDS, seed=0)
    add = microseconds(lambda: buffer.add(**ROWS))
    return Race(CHUNK / add * 1e6, 1e6 / microseconds(lambda: buffer.sample(BATCH)))


def ladder_of(races: Mapping[str, Sequence[Race]]) -> Ladder:
    """Return the ladder of measured races: rung's name → its races; the ceiling has the name ""."""
    figures = {
        name: {done: Spread.of(each) for done, each in zip((ADDED, DRAWN), np.array(those).T, strict=True)}
        for name, those in races.items()
    }
    ceilings = figures.pop("")
    return Ladder(RUNGS, figures, ceilings, "per second")


def shared_ladder(writers: int = 2, rounds: int = 1) -> Ladder:
    """Measure all rungs, one after the other, `rounds` times."""
    races: dict[str, list[Race]] = {"": [], **{rung.kind.__name__: [] for rung in RUNGS}}
    for _ in range(rounds):
        races[""].append(ceiling())
        for rung in RUNGS:
            races[rung.kind.__name__].append(race(rung.kind, writers))
    return ladder_of(races)
