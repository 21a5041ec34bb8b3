"""The interfaces between the roles of Ape-X: replay, parameters, counters, stop flag and messages.

    actors ───── rows, priorities ────▶ replay ───── batches ─────▶ learner
       ▲                                  ▲ ◀───── priorities ───────┘ │
       └──────────── parameters ◀─────────┼────────────────────────────┤
                         └──▶ evaluator   └── rate: samples per insert │
    all of them ───── messages ─────▶ parent ◀───── messages ──────────┘

Actor, learner and evaluator depend only on these protocols, neither on each other nor on where they run. An
engine implements the protocols: `local` does so in the shared memory of one machine. Inserting and sampling
are one call each and take a timeout, because the replay may be on another machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.messages import Message

POLL_SECONDS = 0.1  # between two checks of the stop flag while a role waits

SendMessage = Callable[[Message], None]


class Sample(NamedTuple):
    """A batch for the agent."""

    # field → NumPy array, or tensor on the agent's device: [B, ...]
    rows: Mapping[str, Any]
    weights: NDArray[np.float32]  # float32[B]
    indexes: NDArray[np.int64]  # int64[B], for `update_priorities`


class Published(NamedTuple):
    """Parameters that the learner has published."""

    version: int  # from 1 in each run
    update: int  # the update that produced them
    parameters: NDArray[np.float32]  # float32[parameter_count of the policy]


class InitialCounters(NamedTuple):
    """The counters at the start of a run: zeros, or those of the checkpoint that is resumed."""

    update: int = 0  # updates of the learner
    steps: int = 0  # environment steps
    samples: int = 0  # rows sampled
    lost_steps: int = 0  # those steps whose rows are not in the checkpoint


class Replay(Protocol):
    """The replay, with a rate limiter that keeps the ratio of samples to inserts."""

    @property
    def next_index(self) -> int:
        """The index of the next row to be inserted."""
        ...

    @property
    def stale_updates(self) -> int:
        """Number of priorities dropped because their rows had been overwritten."""
        ...

    def insert(self, rows: Mapping[str, Any], priorities: NDArray[np.float32], timeout: float) -> bool:
        """Insert n-step rows, field → [rows, ...], with initial priorities, float32[rows].

        Wait up to `timeout` seconds until the limiter allows it; return whether the rows were inserted.
        """
        ...

    def sample(self, batch_size: int, beta: float, timeout: float) -> Sample | None:
        """Sample a batch, with importance weights of the exponent `beta`.

        Wait up to `timeout` seconds until the limiter allows it; return None if it doesn't.
        """
        ...

    def update_priorities(self, indexes: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        """Set new priorities of sampled rows: int64[B], float32[B]."""
        ...

    def save(self, path: Path) -> None:
        """Write all rows to a file."""
        ...

    def load(self, path: Path) -> None:
        """Read the rows of a file into an empty replay."""
        ...


class Parameters(Protocol):
    """The newest parameters of the policy, for the actors and the evaluator."""

    def publish(self, parameters: NDArray[np.float32], update: int) -> None:
        """Publish parameters together with the number of the update that produced them."""
        ...

    def pull(self, known_version: int = 0) -> Published | None:
        """Return the newest parameters, or None if there are none newer than `known_version`."""
        ...


class RunCounters(Protocol):
    """The progress of the run: steps, samples and updates."""

    @property
    def steps(self) -> int:
        """Environment steps of all actors, counted as rows inserted into the replay."""
        ...

    @property
    def samples(self) -> int:
        """Rows sampled; rows missing from the checkpoint that was resumed count as sampled, too."""
        ...

    @property
    def updates(self) -> int:
        """Updates of the learner."""
        ...

    def count_updates(self, updates: int) -> None:
        """Set the number of updates that the learner has made."""
        ...

    def is_update_due(self, batch_size: int) -> bool:
        """Return whether enough rows have been inserted for another batch."""
        ...


class StopFlag(Protocol):
    """The flag that ends a run."""

    @property
    def requested(self) -> bool:
        """Whether all roles should stop."""
        ...

    @property
    def last_evaluation(self) -> bool:
        """Whether the evaluator should evaluate the newest policy before it stops."""
        ...

    def request(self, last_evaluation: bool = False) -> None:
        """Request all roles to stop, the evaluator possibly after a last evaluation."""
        ...


def discard_message(_: Message) -> None:
    """Drop a message; the default until an engine provides a channel to the parent."""


@dataclass(frozen=True)
class Context:
    """The objects that all roles of a run share."""

    config: Config
    spaces: Spaces
    replay: Replay
    parameters: Parameters
    counters: RunCounters
    stop: StopFlag
    send_message: SendMessage = discard_message  # sends a message to the parent


# Settings, spaces, number of parameters, initial counters → context
MakeContext = Callable[[Config, Spaces, int, InitialCounters], Context]
