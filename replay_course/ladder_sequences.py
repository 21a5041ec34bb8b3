"""The ladder of sequence buffers, from windows of rows to the package's buffer."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from replay_course.ladder import ROUNDS, Ladder, Rung, measure_ladder
from replay_course.steps.sequences import WindowsOfEpisodes, WindowsOfRows, WindowsWithState
from replay_course.timing import Workload
from replay_tutorial import SequenceReplayBuffer

RUNGS = (
    Rung(WindowsOfRows, "–"),
    Rung(WindowsOfEpisodes, "ends each window with its episode"),
    Rung(WindowsWithState, "provides the state before each window"),
    Rung(SequenceReplayBuffer, "several environments; priorities; compiled code"),
)
SAMPLE, WINDOWS, LENGTH, BURN_IN, STEPS = "sample(32)", 32, 80, 40, 200
FIELDS: dict[str, Any] = {
    "obs": {"shape": (15,), "dtype": np.float32},
    "state": {"shape": (16,), "dtype": np.float32},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float32},
}
STEP: dict[str, Any] = {
    "obs": np.ones(15, np.float32),
    "state": np.ones(16, np.float32),
    "action": 1,
    "reward": 1.0,
}
NEXT = {"next_obs": {"shape": (15,), "dtype": np.float32}, "terminated": {"dtype": np.bool_}}


def filled(kind: Any, capacity: int) -> Any:
    """Return a full buffer of a class, with episodes of 200 steps; all windows have 120 entries."""
    if kind is SequenceReplayBuffer:
        buffer = kind(capacity, FIELDS | NEXT, length=LENGTH, burn_in=BURN_IN, period=1, first_of="state")
        episode = {name: np.stack([value] * STEPS) for name, value in STEP.items()}
        ends = np.arange(STEPS) == STEPS - 1
        for _ in range(capacity // STEPS + 1):
            buffer.add(**episode, next_obs=episode["obs"], terminated=ends)
        return buffer
    lengths = (LENGTH, BURN_IN) if kind is WindowsWithState else (BURN_IN + LENGTH,)
    buffer = kind(capacity, FIELDS, *lengths)
    for step in range(capacity):
        buffer.add(**STEP, ends=step % STEPS == STEPS - 1)
    return buffer


def sequence_ladder(capacity: int = 40_000, rounds: int = ROUNDS) -> Ladder:
    """Measure sampling 32 windows of 120 entries from full buffers.

    The ceiling copies the other fields of all entries, and the state of the first entry of each window.
    """

    def workloads_of(kind: Any) -> Mapping[str, Workload]:
        buffer = filled(kind, capacity)
        return {SAMPLE: lambda: buffer.sample(WINDOWS)}

    state = FIELDS["state"]
    record = [(name, spec["dtype"], spec.get("shape", ())) for name, spec in FIELDS.items() if spec != state]
    rows, states = np.ones(capacity, record), np.ones((capacity, *state["shape"]), np.float32)
    starts = np.random.default_rng(0).integers(capacity - LENGTH - BURN_IN, size=(64, WINDOWS, 1))
    batches = itertools.cycle(list(starts + np.arange(LENGTH + BURN_IN)))

    def copy_windows() -> tuple[Any, Any]:
        indexes = next(batches)
        return rows.take(indexes), states.take(indexes[:, 0], axis=0)

    return measure_ladder(RUNGS, workloads_of, {SAMPLE: copy_windows}, rounds)
