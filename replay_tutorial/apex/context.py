"""What a role of Ape-X is given: its side of everything through which the roles meet.

    actors ───── rows, priorities ────▶ replay ───── batches ─────▶ learner
       ▲                                  ▲ ◀───── priorities ───────┘ │
       └──────────── parameters ◀─────────┼────────────────────────────┤
                         └──▶ evaluator   └── pace: samples per insert │
    all of them ───── messages ─────▶ parent ◀───── messages ──────────┘

Actor, learner and evaluator know these protocols and nothing else of the others, nor of the place where they
run. An engine implements them, as `local` does in the shared memory of one machine. Inserting and sampling
are one call each, and wait no longer than they are told to: the other side may be another machine.
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

POLL_SECONDS = 0.1  # that a waiting role lets pass before it looks at the stop flag again

SendMessage = Callable[[Message], None]


class Sample(NamedTuple):
    """A batch for the agent."""

    # field → NumPy array, or tensor on the agent's device, [B, ...]
    rows: Mapping[str, Any]
    weights: NDArray[np.float32]  # float32[B]
    indexes: NDArray[np.int64]  # int64[B], for the new priorities


class Published(NamedTuple):
    """Parameters that the learner has published."""

    version: int  # counted from 1 in each run
    update: int  # that made them
    parameters: NDArray[np.float32]  # float32[parameter_count of the policy]


class InitialCounters(NamedTuple):
    """How far a run is when it begins: zeros, or those of the checkpoint that it goes on from."""

    update: int = 0  # of the learner
    steps: int = 0  # of all environments
    samples: int = 0  # rows sampled
    lost_steps: int = 0  # of the steps, those whose rows the checkpoint has not kept


class Replay(Protocol):
    """The rows, and the limiter that keeps the ratio of samples to inserts."""

    @property
    def next_index(self) -> int:
        """The index that the next row will get."""
        ...

    @property
    def stale_updates(self) -> int:
        """Priorities dropped because their row had been replaced."""
        ...

    def insert(self, rows: Mapping[str, Any], priorities: NDArray[np.float32], timeout: float) -> bool:
        """Insert n-step rows when the ratio allows; return False if it doesn't within `timeout` seconds."""
        ...

    def sample(
        self, batch_size: int, beta: float, timeout: float, out: Mapping[str, NDArray[Any]] | None = None
    ) -> Sample | None:
        """Sample a batch when the ratio allows, fields named in `out` into the arrays there.

        Returns:
            The batch; None if it can't be had within `timeout` seconds.
        """
        ...

    def update_priorities(self, indexes: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        """Give sampled rows new priorities."""
        ...

    def save(self, path: Path) -> None:
        """Write all rows into a file."""
        ...

    def load(self, path: Path) -> None:
        """Read the rows of a file into a new replay."""
        ...


class Parameters(Protocol):
    """The newest parameters of the policy, for actors and evaluator."""

    def publish(self, parameters: NDArray[np.float32], update: int) -> None:
        """Publish parameters, and the number of the update that made them."""
        ...

    def pull(self, known_version: int = 0) -> Published | None:
        """Return the newest; None if there are none, or the caller knows them."""
        ...


class RunCounters(Protocol):
    """How far the roles are: three counters, and the ratio between them."""

    @property
    def steps(self) -> int:
        """Environment steps of all actors, counted as rows when they enter the replay."""
        ...

    @property
    def samples(self) -> int:
        """Rows sampled."""
        ...

    @property
    def updates(self) -> int:
        """Updates of the learner."""
        ...

    def count_updates(self, updates: int) -> None:
        """Let all know how many updates the learner has made."""
        ...

    def is_update_due(self, batch_size: int) -> bool:
        """Return whether so many rows have been inserted that the ratio asks for another batch."""
        ...


class StopFlag(Protocol):
    """The flag that ends a run."""

    @property
    def requested(self) -> bool:
        """Whether all roles are asked to end."""
        ...

    @property
    def last_evaluation(self) -> bool:
        """Whether the evaluator is to evaluate the newest policy before it ends."""
        ...

    def request(self, last_evaluation: bool = False) -> None:
        """Ask all roles to end, the evaluator perhaps only after a last evaluation."""
        ...


def discard_message(_: Message) -> None:
    """Drop a message: until a role has its own way for messages, nobody listens."""


@dataclass(frozen=True)
class Context:
    """What every role of a run is given."""

    config: Config
    spaces: Spaces
    replay: Replay
    parameters: Parameters
    counters: RunCounters
    stop: StopFlag
    send_message: SendMessage = discard_message  # how a message gets to the parent


# Settings, spaces, length of the parameters, counters to begin with → context
MakeContext = Callable[[Config, Spaces, int, InitialCounters], Context]
