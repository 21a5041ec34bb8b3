"""The context of a run on one machine, implemented in shared memory.

Every process receives the same context as an argument. No process can block another: the replay and the
mailbox have no locks, the limiter is polled, and each flag is a single number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_tutorial import Mailbox, MPPrioritizedReplayBuffer, SamplesPerInsert
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import (
    Context,
    InitialCounters,
    Parameters,
    Published,
    Replay,
    RunCounters,
    Sample,
    StopFlag,
)
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.apex.storage import make_replay
from replay_tutorial.shared.memory import SharedArrays

# Positions in int64[16]; the learner's update count has its own cache line.
STOP, LAST_EVALUATION, UPDATES = 0, 1, 8


@dataclass(frozen=True)
class SharedReplay(Replay):
    """A shared buffer, and the limiter that blocks its inserts and samples."""

    buffer: MPPrioritizedReplayBuffer
    limiter: SamplesPerInsert

    @property
    def next_index(self) -> int:
        return self.buffer.next_index

    @property
    def stale_updates(self) -> int:
        return self.buffer.stale_updates

    def insert(self, rows: Mapping[str, Any], priorities: NDArray[np.float32], timeout: float) -> bool:
        if not self.limiter.await_can_insert(len(priorities), timeout):
            return False
        dropped = self.buffer.rows_dropped
        self.buffer.add(**rows, priorities=priorities)
        self.limiter.inserted(len(priorities) - (self.buffer.rows_dropped - dropped))
        return True

    def sample(self, batch_size: int, beta: float, timeout: float) -> Sample | None:
        if not self.limiter.await_can_sample(batch_size, timeout):
            return None
        rows = self.buffer.sample(batch_size, beta)
        self.limiter.sampled(batch_size)
        return Sample(rows, rows["weights"], rows["indexes"])

    def update_priorities(self, indexes: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        self.buffer.update_priorities(indexes, priorities)

    def save(self, path: Path) -> None:
        self.buffer.save(path)

    def load(self, path: Path) -> None:
        self.buffer.load(path)


class SharedParameters(Parameters):
    """A mailbox of one record, the parameters and their update number, which are published atomically."""

    def __init__(self, count: int) -> None:
        self._record = np.dtype([("update", np.int64), ("parameters", np.float32, (count,))])
        self._mailbox = Mailbox(1, self._record)

    def publish(self, parameters: NDArray[np.float32], update: int) -> None:
        record = np.empty(1, self._record)
        record["update"], record["parameters"] = update, parameters
        self._mailbox.publish(record)

    def pull(self, known_version: int = 0) -> Published | None:
        pulled = self._mailbox.pull(known_version)
        if pulled is None:
            return None
        version, record = pulled
        return Published(version, int(record["update"][0]), record["parameters"][0])


@dataclass(frozen=True)
class SharedCounters(RunCounters):
    """The counters of the limiter, and the learner's update count.

    The limiter doesn't count rows that are missing from the checkpoint. `lost_samples`, the samples of these
    rows, count as made, because a run resumed from the next checkpoint would otherwise make up for them.
    """

    limiter: SamplesPerInsert
    flags: SharedArrays
    lost_samples: int

    @property
    def steps(self) -> int:
        return self.limiter.inserts

    @property
    def samples(self) -> int:
        return self.limiter.samples + self.lost_samples

    @property
    def updates(self) -> int:
        return int(self.flags["flags"][UPDATES])

    def count_updates(self, updates: int) -> None:
        self.flags["flags"][UPDATES] = updates

    def is_update_due(self, batch_size: int) -> bool:
        return self.limiter.inserts >= self.limiter.min_size and self.limiter.error >= batch_size


@dataclass(frozen=True)
class SharedStopFlag(StopFlag):
    """Two flags in shared memory; the death of a process doesn't affect them."""

    flags: SharedArrays

    @property
    def requested(self) -> bool:
        return bool(self.flags["flags"][STOP])

    @property
    def last_evaluation(self) -> bool:
        return bool(self.flags["flags"][LAST_EVALUATION])

    def request(self, last_evaluation: bool = False) -> None:
        if last_evaluation:
            self.flags["flags"][LAST_EVALUATION] = 1
        self.flags["flags"][STOP] = 1


def make_shared_context(
    config: Config, spaces: Spaces, parameter_count: int, initial_counters: InitialCounters
) -> Context:
    """Allocate the shared memory of a run; implements `Engine.make_context`."""
    # A send changes the limiter's error by its rows, an update by its batch; the buffer must exceed both.
    rows_of_a_send = (config.send_interval + config.n_step) * config.environments_per_actor
    rows = max(config.slack, rows_of_a_send)
    limiter = SamplesPerInsert(
        config.samples_per_insert,
        min_size=initial_counters.lost_steps + config.replay_start,
        error_buffer=max(1.0, rows * config.samples_per_insert) + config.batch_size,
    )
    limiter.inserted(initial_counters.steps)
    limiter.sampled(initial_counters.samples)
    buffer = make_replay(config, spaces, RunSeeds(config).replay)
    flags = SharedArrays({"flags": ((16,), np.dtype(np.int64))})
    lost_samples = round(initial_counters.lost_steps * config.samples_per_insert)
    counters = SharedCounters(limiter, flags, lost_samples)
    counters.count_updates(initial_counters.update)
    parameters = SharedParameters(parameter_count)
    return Context(config, spaces, SharedReplay(buffer, limiter), parameters, counters, SharedStopFlag(flags))
