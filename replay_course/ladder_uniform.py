"""The ladder of uniform replay buffers, from a list of tuples to the package's buffer."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replay_course.ladder import ROUNDS, Ladder, Rung, measure_ladder
from replay_course.steps.uniform import DequeOfTuples, ListOfTuples, RingOfArrays, RingOfRecords
from replay_course.timing import Workload
from replay_tutorial import ReplayBuffer

RUNGS = (
    Rung(ListOfTuples, "–"),
    Rung(DequeOfTuples, "drops the oldest row in O(1)"),
    Rung(RingOfArrays, "gathers a column of a batch in one call"),
    Rung(RingOfRecords, "stores each row contiguously"),
    Rung(ReplayBuffer, "checks its input; draws and copies in compiled code"),
)
ADD, SAMPLE, BATCH = "add", "sample(256)", 256
FIELDS: dict[str, Any] = {
    "obs": {"shape": (15,), "dtype": np.float32},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float32},
    "next_obs": {"shape": (15,), "dtype": np.float32},
    "terminated": {"dtype": np.bool_},
}
TRANSITION: dict[str, Any] = {
    "obs": np.ones(15, np.float32),
    "action": 1,
    "reward": 1.0,
    "next_obs": np.ones(15, np.float32),
    "terminated": False,
}


def filled(kind: Any, capacity: int) -> Any:
    """Return a full buffer of a class."""
    buffer = kind(capacity, FIELDS, seed=0)
    for _ in range(capacity):
        buffer.add(**TRANSITION)
    return buffer


def take_columns(columns: Sequence[Any], slots: Any) -> list[Any]:
    """Return the rows at `slots` of each array."""
    return [column.take(slots, axis=0) for column in columns]


def uniform_ladder(capacity: int = 100_000, rounds: int = ROUNDS, rungs: Sequence[Rung] = RUNGS) -> Ladder:
    """Measure adding one transition to full buffers, and sampling 256."""

    def workloads_of(kind: Any) -> Mapping[str, Workload]:
        buffer = filled(kind, capacity)
        return {ADD: lambda: buffer.add(**TRANSITION), SAMPLE: lambda: buffer.sample(BATCH)}

    rows: Any = RingOfRecords(capacity, FIELDS).rows
    record = tuple(TRANSITION.values())
    rows[:] = record  # pages that were never written would all be one page of zeros, which stays in the cache
    batches = itertools.cycle(list(np.random.default_rng(0).integers(capacity, size=(64, BATCH))))

    def write_one() -> None:
        rows[0] = record

    bare = {ADD: write_one, SAMPLE: lambda: rows.take(next(batches))}
    return measure_ladder(rungs, workloads_of, bare, rounds)
