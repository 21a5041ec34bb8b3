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
from replay_tutorial.measuring.markdown import table
from replay_tutorial.measuring.timing import Spread
from replay_tutorial.shared import MPReplayBuffer
from replay_tutorial.steps.shared import FineLocks, ManagerReplay, NoLock, OneLock, QueueReplay, StampedRows
from replay_tutorial.teaching.ladder import HEADS, Rung, cell_of, share_text
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
        races: Rung's name → what it got done, the median of its races.
        spreads: Rung's name → the same with its quartiles: rows added, batches drawn.
        ceiling: The same of a buffer that nobody shares.
    """

    def __init__(
        self, rungs: Sequence[Rung], races: Mapping[str, Sequence[Race]], ceiling: Sequence[Race]
    ) -> None:
        """Take what was measured: the races of each rung."""
        self.rungs, self.ceiling = rungs, spreads_of(ceiling)
        self.spreads = {name: spreads_of(those) for name, those in races.items()}
        self.races = {
            name: Race(*(spread.median for spread in spreads)) for name, spreads in self.spreads.items()
        }

    def __repr__(self) -> str:
        return self._repr_markdown_()

    def _repr_markdown_(self) -> str:
        return "\n".join(self.table())

    def table(self, source: str = "") -> list[str]:
        """Return the lines of the table, as the other ladders do."""
        names = [*HEADS]
        for head in ("rows added in a second", "batches drawn in a second"):
            names += [head, "of the ceiling"]
        rows: list[list[str]] = []
        for rung in self.rungs:
            rows.append(rung.cells(source))
            for spread, top in zip(self.spreads[rung.kind.__name__], self.ceiling, strict=True):
                rows[-1] += [cell_of(spread, source), share_text(spread.median / top.median)]
        bare = [cell for spread in self.ceiling for cell in (cell_of(spread, source), "")]
        rows.append(["*ceiling*", "", "", *bare])
        return table(names, rows, words=2)


def spreads_of(races: Sequence[Race]) -> list[Spread]:
    """Return the spread of the rows added, and that of the batches drawn."""
    return [Spread.of(np.array(figures)) for figures in zip(*races, strict=True)]


def shared_ladder(writers: int = 2, rounds: int = 1) -> SharedLadder:
    """Measure all rungs, one after the other, and that so many times."""
    races: dict[str, list[Race]] = {rung.kind.__name__: [] for rung in RUNGS}
    alone: list[Race] = []
    for _ in range(rounds):
        alone.append(ceiling())
        for rung in RUNGS:
            races[rung.kind.__name__].append(race(rung.kind, writers))
    return SharedLadder(RUNGS, races, alone)
