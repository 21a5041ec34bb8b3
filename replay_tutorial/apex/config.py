"""Configuration: every setting of a run, with its default and what it does.

One typed dataclass is the only place for settings: the command line makes a flag of each field, the run's
folder keeps all of them, and every process receives the same object. The defaults fit small environments with
flat observations. What differs from them for other environments is in `presets.py`.

Paper: Horgan et al. 2018, appendices C and F; Schaul et al. 2016, section 4.
"""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from replay_tutorial.apex.presets import overrides_for


@dataclass(frozen=True)
class Config:
    """The settings of a run; each is a flag of `train`."""

    environment: Annotated[str, tyro.conf.Positional] = "CartPole-v1"
    """The gymnasium environment; module:Name-v0 imports the module first."""
    agent: Literal["dqn", "dpg"] | None = None
    """dqn for Discrete actions, dpg for a Box of them; None takes the one that fits the environment."""
    actors: int = 2
    """Actor processes; 0 runs everything in one process, in a fixed order: the same run for the same seed."""
    environments_per_actor: int = 4
    """Environments that one actor steps together, with one forward pass for all of them."""
    seed: int = 0
    """All random numbers of the run derive from this one."""
    total_steps: int = 400_000
    """The run ends after this many environment steps, unless it is solved before."""
    solved_at: float | None = None
    """Stop when the lower bound of the mean return reaches this; None takes gymnasium's threshold, if any."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    """Width of each hidden layer of the Q-network or critic; for images, of each head of the Q-network."""
    policy_hidden_sizes: tuple[int, ...] = (128, 128)
    """DPG: width of each hidden layer of the policy."""
    n_step: int = 3
    """Rewards in an n-step return; 3 carries a reward back three states per update (the paper's value)."""
    gamma: float = 0.99
    """Discount per step: at 0.99, a reward in 100 steps counts about a third."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """DQN: adam learns faster in short runs; rmsprop is the paper's, centered."""
    learning_rate: float = 2e-3
    """Of the Q-network or critic: high, because runs are short and the best policy is kept anyway."""
    policy_learning_rate: float = 1e-3
    """DPG: of the policy; lower, because it follows the critic."""
    huber_delta: float = 1.0
    """|TD error| up to which the loss is quadratic; beyond it the gradient is constant (Mnih et al. 2015)."""
    gradient_norm: float = 10.0
    """The gradient is clipped to this norm."""
    action_gradient: float = 1.0
    """DPG: the gradient of Q with respect to the action is clipped to ± this (the paper's value)."""
    batch_size: int = 64
    """Rows per update: with networks this small, twice as many take longer and hardly help."""
    target_interval: int = 50
    """Updates between copies of the online network into the target network."""

    capacity: int = 50_000
    """Rows that the replay holds; the oldest are replaced."""
    alpha: float = 0.6
    """Exponent of the priorities: 0 samples uniformly, 1 in proportion to them (the paper's value)."""
    beta: float = 0.4
    """Exponent of the importance weights: 0 corrects none of that bias, 1 all of it (the paper's value)."""
    replay_start: int = 1_000
    """Rows in the replay before the first update."""
    samples_per_insert: float = 4.0
    """How often a row is sampled, on average: learner and actors wait for each other to keep this ratio."""
    slack: int = 500
    """Rows that actors may be ahead of the learner, or behind it, before one side waits."""

    epsilon_base: float = 0.4
    """ε of the most exploratory environment (the paper's value)."""
    epsilon_exponent: float = 7.0
    """ε of the least exploratory one is epsilon_base ** (1 + this) (the paper's value)."""
    noise: float = 0.3
    """DPG: standard deviation of the noise on actions in [-1, 1] (the paper's value)."""
    send_interval: int = 12
    """Steps per environment between two sends to the replay: 12 steps of 4 are about the paper's 50 rows."""
    publish_interval: int = 25
    """Updates between new parameters for the actors."""

    evaluation_interval: int = 250
    """Updates between evaluations of the online network."""
    evaluation_episodes: int = 20
    """Greedy episodes per evaluation."""
    confirmation_episodes: int = 100
    """Further greedy episodes for a policy that may be the best one so far."""
    final_episodes: int = 100
    """Greedy episodes for the final result, with seeds that played no part in the selection."""
    evaluation_environments: int = 8
    """Environments that an evaluation steps together; each plays one episode after another."""
    evaluation_step_limit: int = 27_000
    """Evaluated episodes are cut after this many steps: without a time limit a policy can get stuck."""
    record_interval: int = 100
    """Updates between records in the CSV and TensorBoard."""
    runs: Path = Path("runs")
    """The folder that holds the run's own folder."""
    progress: bool = True
    """Show a progress bar."""
    checkpoint_seconds: float = 120.0
    """Seconds between checkpoints; a crash loses what came after the last one."""
    checkpoint_replay: bool = True
    """Save the replay in checkpoints; without it a resumed run first collects replay_start new rows."""
    checkpoint_steps: int = 20_000
    """With 0 actors: environment steps between checkpoints, because nothing may depend on time."""
    restart_limit: int = 5
    """The run ends when an actor is killed this many times in a row, each within a minute of its start. On a
    cluster that counts only while no other actor does well, and not if its host died."""
    device: str = "cpu"
    """Where the learner trains: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""
    threads: int = 1
    """Torch's threads per process; more only for large networks, with cores to spare."""
    prefetch: int | None = None
    """Batches that a thread prepares while the learner trains; None: 4 on a GPU, else 0 (0 with 0 actors)."""

    def __post_init__(self) -> None:
        """Refuse settings that can't work, before anything is started."""
        for name, minimum in MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not value >= minimum:
                raise ValueError(f"{name} is {value}; it must be at least {minimum}.")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and field.name != "solved_at" and not math.isfinite(value):
                raise ValueError(f"{field.name} is {value}; it must be finite.")
        if self.solved_at is not None and math.isnan(self.solved_at):
            raise ValueError("solved_at is nan; it must be a number that a mean return can be above.")
        for name in ("gamma", "alpha", "beta", "epsilon_base"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}; it must be between 0 and 1.")
        for name in POSITIVE:
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                raise ValueError(f"{name} is {value}; it must be positive and finite.")
        for name in ("hidden_sizes", "policy_hidden_sizes"):
            value = getattr(self, name)
            if not value or min(value) < 1:
                raise ValueError(f"{name} is {value}; it needs at least one width, each at least 1.")
        for name, maximum in MAXIMUM.items():
            if (value := getattr(self, name)) > maximum:
                raise ValueError(f"{name} is {value}; it must be at most {maximum:,}.")
        if self.replay_start > self.capacity:
            raise ValueError(
                f"replay_start is {self.replay_start}, but the replay holds only {self.capacity} rows: "
                "learning would never start. Raise capacity or lower replay_start."
            )

    @property
    def environment_count(self) -> int:
        """Environments of all actors together: the N of the ε schedule."""
        return max(1, self.actors) * self.environments_per_actor


MINIMUM = {
    **dict.fromkeys(["environments_per_actor", "total_steps", "n_step", "batch_size", "capacity"], 1),
    **dict.fromkeys(["target_interval", "replay_start", "slack", "send_interval", "publish_interval"], 1),
    **dict.fromkeys(["evaluation_interval", "evaluation_episodes", "evaluation_step_limit"], 1),
    "evaluation_environments": 1,
    **dict.fromkeys(["record_interval", "checkpoint_steps", "restart_limit", "threads"], 1),
    **dict.fromkeys(["seed", "confirmation_episodes", "actors", "prefetch"], 0),
    "final_episodes": 2,  # one episode has no standard error
    **dict.fromkeys(["epsilon_exponent", "noise"], 0.0),
}
# What is owed for all rows must stay a number that can be counted; no machine has more cores.
MAXIMUM = {"samples_per_insert": 1_000_000, "threads": 1_024}
POSITIVE = (
    *("learning_rate", "policy_learning_rate", "action_gradient", "huber_delta", "gradient_norm"),
    *("samples_per_insert", "checkpoint_seconds"),
)


def preset(environment: str) -> Config:
    """Return the settings for an environment: its preset where there is one, else the defaults."""
    return replace(Config(environment=environment), **overrides_for(environment))
