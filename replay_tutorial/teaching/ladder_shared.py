"""The ladder of the shared replay buffer: how much writers and sampler get done while they share it.

Some writers add batches of 100 rows and this process samples batches of 64, all as fast as they can, for a
second. The ceiling is a buffer that nobody shares: what one process adds alone, and what it samples alone.

Left out: rungs that take turns. Each has the machine to itself for its second, so a busy machine shows.
"""

import contextlib
import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.bench.method.markdown import table
from replay_tutorial.buffers import ReplayBuffer
from replay_tutorial.shared import MPReplayBuffer
from replay_tutorial.steps.shared import FineLocks, ManagerReplay, NoLock, OneLock, QueueReplay, StampedRows
from replay_tutorial.teaching.ladder import Rung
from replay_tutorial.teaching.stopwatch import microseconds
from replay_tutorial.teaching.writers import START_SECONDS, add_and_count, spawn

RUNGS = (
    Rung(QueueReplay, "–"),
    Rung(ManagerReplay, "the sampler takes nothing in; a killed writer is not waited for"),
    Rung(OneLock, "nothing is sent"),
    Rung(FineLocks, "they wait for one row, not for a call"),
    Rung(NoLock, "nobody waits; **wrong**: torn rows"),
    Rung(StampedRows, "no torn rows, and still nobody waits"),
    Rung(MPReplayBuffer, "slots of dead writers are freed; whole batches in compiled code"),
)
CAPACITY, CHUNK, BATCH = 10_000, 100, 64
SECONDS = 1.0
FIELDS: dict[str, Any] = {
    name: {"shape": shape, "dtype": np.float64}
    for name, shape in {"obs": (4,), "act": (1,), "rew": (1,), "next_obs": (4,), "done": (1,)}.items()
}
ROWS = {name: np.ones((CHUNK, *field["shape"])) for name, field in FIELDS.items()}


class Race(NamedTuple):
    """What was done in a second, all together."""

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
    try:
        for process in processes:
            process.start()
        sample_for(buffer, START_SECONDS, until=lambda: all(added))
        before = sum(added)
        batches, taken = sample_for(buffer, seconds)
        return Race((sum(added) - before) / taken, batches / taken)
    finally:
        for process in processes:
            process.kill()
            process.join()
        buffer.close()


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


class SharedLadder:
    """A measured ladder, which a notebook shows as a table.

    Attributes:
        races: Rung's name → what it got done.
        ceiling: The same of a buffer that nobody shares.
    """

    def __init__(self, rungs: Sequence[Rung], races: Mapping[str, Race], ceiling: Race) -> None:
        """Take what was measured."""
        self.rungs, self.races, self.ceiling = rungs, races, ceiling

    def __repr__(self) -> str:
        return self._repr_markdown_()

    def _repr_markdown_(self) -> str:
        heads = ["rung", "what it fixes", "lines"]
        for head in ("rows added in a second", "batches drawn in a second"):
            heads += [head, "of the ceiling"]
        rows: list[list[str]] = []
        for rung in self.rungs:
            row = [f"`{rung.kind.__name__}`", rung.fixes, str(rung.lines)]
            for figure, top in zip(self.races[rung.kind.__name__], self.ceiling, strict=True):
                row += [
                    f"{figure:,.0f}",
                    f"{figure / top:.1%}" if figure < 0.1 * top else f"{figure / top:.0%}",
                ]
            rows.append(row)
        last = ["*ceiling*", "", "", f"{self.ceiling[0]:,.0f}", "", f"{self.ceiling[1]:,.0f}", ""]
        return "\n".join(table(heads, [*rows, last], words=2))


def shared_ladder(writers: int = 2) -> SharedLadder:
    """Measure all rungs, one after the other."""
    races = {rung.kind.__name__: race(rung.kind, writers) for rung in RUNGS}
    return SharedLadder(RUNGS, races, ceiling())
