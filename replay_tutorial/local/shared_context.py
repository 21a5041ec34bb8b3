"""What all processes of a run have in common: settings, seeds, and the shared memory through which they meet.

    actors ──── rows, priorities ───▶ replay ──── samples ────▶ learner
       ▲                                ▲ ◀──── priorities ──────┘  │
       └──────────────── mailbox ◀─────────────── weights ──────────┤
                            └───────────▶ evaluator                 │
    all of them ──── messages ───▶ parent ◀──── messages ───────────┘

Each process gets the same object with the arguments it is started with. Nobody here can make another wait: replay and
mailbox have no locks, the limiter is asked again and again, and the flags are one number each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from replay_tutorial import Mailbox, MPPrioritizedReplayBuffer, NStep, SamplesPerInsert, fields_from_spaces
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.agents.evaluation import draw_seeds
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.messages import Message
from replay_tutorial.shared.memory import SharedArrays

POLL_SECONDS = 0.1  # seconds that a process waits for another at most, before it looks at the stop flag again
STOP, LAST, UPDATES = (
    0,
    1,
    8,
)  # where the flags stand in int64[16]: the learner's count on a cache line of its own

Tell = Callable[[Message], None]  # how a message gets to the parent


class RunSeeds:
    """All random numbers of a run, grown from one seed so that no two parts share a stream."""

    def __init__(self, config: Config) -> None:
        self.entropy = config.seed
        network, replay, episodes = np.random.SeedSequence(config.seed).spawn(3)
        self.network = int(network.generate_state(1)[0])
        self.replay = replay
        # All different: the final episodes played no part in choosing.
        counts = (config.evaluation_episodes, config.confirmation_episodes, config.final_episodes)
        seeds = draw_seeds(episodes, sum(counts))
        self.evaluation = seeds[: counts[0]]
        self.confirmation = seeds[counts[0] : counts[0] + counts[1]]
        self.final = seeds[counts[0] + counts[1] :]

    def actor(self, number: int, first_update: int, life: int) -> np.random.SeedSequence:
        """Return the seed of an actor: another one for each number, after each resumption, and for each life."""
        return np.random.SeedSequence(self.entropy, spawn_key=(3, number, first_update, life))


@dataclass(frozen=True)
class SharedContext:
    """What every process of a run is given."""

    config: Config
    spaces: Spaces
    replay: MPPrioritizedReplayBuffer
    limiter: SamplesPerInsert
    mailbox: Mailbox
    flags: SharedArrays  # "flags": int64[16]
    first_update: int  # updates that had been made when this run was begun, or resumed

    @property
    def steps(self) -> int:
        """Environment steps of all actors, counted as rows when they enter the replay."""
        return self.limiter.inserts

    @property
    def stopped(self) -> bool:
        """Whether the parent has asked all processes to end."""
        return bool(self.flags["flags"][STOP])

    @property
    def last_look(self) -> bool:
        """Whether the evaluator is to look at the newest policy once more before it ends."""
        return bool(self.flags["flags"][LAST])

    def ask_to_stop(self) -> None:
        """Ask all processes to end."""
        self.flags["flags"][STOP] = 1

    def ask_for_last_look(self) -> None:
        """Ask the evaluator for a last look; only before `ask_to_stop`."""
        self.flags["flags"][LAST] = 1

    @property
    def updates(self) -> int:
        """Updates that the learner has made."""
        return int(self.flags["flags"][UPDATES])

    def count_updates(self, updates: int) -> None:
        """Tell all how many updates the learner has made."""
        self.flags["flags"][UPDATES] = updates

    def update_of(self, version: int) -> int:
        """Tell which update made the weights that the mailbox holds under a version."""
        # The learner publishes when its count is a multiple of the interval, and once when it begins.
        interval = self.config.publish_interval
        return (self.first_update // interval + version - 1) * interval


def n_step_windows(config: Config, spaces: Spaces) -> NStep:
    """Return one empty window for each environment of an actor; its `env_dict` is that of the replay."""
    return NStep(
        fields_from_spaces(spaces.observation, spaces.action),
        {"size": config.n_step, "gamma": config.gamma, "rew": "rew", "next": "next_obs"},
        environments=config.environments_per_actor,
    )


def make_replay(config: Config, spaces: Spaces, seed: np.random.SeedSequence) -> MPPrioritizedReplayBuffer:
    """Reserve the replay; pictures are stored as frames, each of them once.

    Raises:
        MemoryError: If there is less room than it may come to need.
    """
    fields = dict(n_step_windows(config, spaces).env_dict)
    frames: dict[str, Any] = {}
    if len(spaces.observation_shape) == 3:
        # The observation n steps later is that of another row.
        del fields["next_obs"]
        frames = {"next_of": "obs"}
        if spaces.stacked:
            # A stack has most of its pictures from the one before. Colours taken apart would be three new frames a
            # step, where there is room for one and a quarter.
            frames["stack_compress"] = {"obs": 0}
    return MPPrioritizedReplayBuffer(config.capacity, fields, alpha=config.alpha, seed=seed, **frames)


def make_shared_context(
    config: Config,
    spaces: Spaces,
    seeds: RunSeeds,
    parameter_count: int,
    first_update: int = 0,
    first_step: int = 0,
) -> SharedContext:
    """Reserve the shared memory of a run.

    Args:
        config: The settings.
        spaces: Of the environment.
        seeds: Of the run.
        parameter_count: The length of the vector that the mailbox holds.
        first_update: Updates made before.
        first_step: Steps made before whose rows are gone.

    Raises:
        MemoryError: If there is less room than the replay may come to need.
    """
    # One send moves the error by its rows, one update by its batch: the band must be wider than both.
    rows_of_a_send = (config.send_interval + config.n_step) * config.environments_per_actor
    rows = max(config.slack, rows_of_a_send)
    common = SharedContext(
        config=config,
        spaces=spaces,
        replay=make_replay(config, spaces, seeds.replay),
        limiter=SamplesPerInsert(
            config.samples_per_insert,
            min_size=first_step + config.replay_start,
            error_buffer=max(1.0, rows * config.samples_per_insert) + config.batch_size,
        ),
        mailbox=Mailbox(parameter_count),
        flags=SharedArrays({"flags": ((16,), np.dtype(np.int64))}),
        first_update=first_update,
    )
    common.count_updates(first_update)
    return common
