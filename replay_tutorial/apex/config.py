"""Configuration: all settings of a run, with their defaults and meanings.

`Config` is the only place where settings are declared. The command line turns each field into an option, the
run's folder stores all of them, and every process receives the same object. The defaults suit small
environments with flat observations; `presets` lists the settings that differ for other environments.

Papers: Horgan et al. 2018, appendices C and F; Schaul et al. 2016, section 4.
"""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from replay_tutorial.apex.presets import overrides_for


@dataclass(frozen=True)
class Config:
    """The settings of a run; each field is also an option of `train`."""

    environment: Annotated[str, tyro.conf.Positional] = "CartPole-v1"
    """ID of the gymnasium environment; module:Name-v0 imports the module first."""
    agent: Literal["dqn", "dpg"] | None = None
    """dqn for Discrete actions, dpg for Box actions; None selects it by the action space."""
    actors: int = 2
    """Number of actor processes. 0 runs everything in one process, in a fixed, reproducible order."""
    environments_per_actor: int = 4
    """Number of environments that each actor steps together, with one forward pass for all of them."""
    seed: int = 0
    """Seed of all random numbers of the run."""
    total_steps: int = 400_000
    """Number of environment steps after which the run ends, unless the environment is solved earlier."""
    solved_at: float | None = None
    """Mean return whose lower bound must reach this value to end the run; None uses gymnasium's threshold."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    """Width of each hidden layer of the Q-network or critic; for images, of each head of the Q-network."""
    # `NATURE`, written out: importing it would load torch for the help of a command.
    convolutions: tuple[tuple[int, int, int], ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    """DQN, for images: channels, kernel size and stride of each convolution (Mnih et al. 2015)."""
    policy_hidden_sizes: tuple[int, ...] = (128, 128)
    """DPG: width of each hidden layer of the policy."""
    n_step: int = 3
    """Number of rewards in an n-step return; each update carries a reward back n steps (3 in the paper)."""
    gamma: float = 0.99
    """Discount factor per step; with 0.99, a reward 100 steps ahead is multiplied by 0.37."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """DQN: adam learns faster in short runs; rmsprop (centered) is the paper's optimizer."""
    learning_rate: float = 2e-3
    """Learning rate of the Q-network or critic; high, because runs are short and the best policy is kept."""
    policy_learning_rate: float = 1e-3
    """DPG: learning rate of the policy; lower, because the policy follows the critic."""
    huber_delta: float = 1.0
    """|TD error| up to which the loss is quadratic; beyond it the gradient is constant (Mnih et al. 2015)."""
    gradient_norm: float = 10.0
    """Maximum norm of the gradient; larger gradients are clipped."""
    action_gradient: float = 1.0
    """DPG: the gradient of Q with respect to the action is clipped to ± this value (the paper's)."""
    batch_size: int = 64
    """Number of rows per update; with small networks, larger batches take longer and hardly help."""
    target_interval: int = 50
    """Number of updates between copies of the online network to the target network."""

    capacity: int = 50_000
    """Maximum number of rows in the replay buffer; when it is full, the oldest rows are overwritten."""
    alpha: float = 0.6
    """Exponent of the priorities: 0 samples uniformly, 1 in proportion to priority (0.6 in the paper)."""
    beta: float = 0.4
    """Exponent of the importance weights: 0 corrects no bias, 1 all of it (0.4 in the paper)."""
    replay_start: int = 1_000
    """Number of rows that must be in the replay buffer before the first update."""
    samples_per_insert: float = 4.0
    """Mean number of times a row is sampled; the learner and the actors wait for each other to keep it."""
    slack: int = 500
    """Number of rows that the actors may be ahead of or behind the learner before either side waits."""

    epsilon_base: float = 0.4
    """ε of the most exploratory environment (the paper's value)."""
    epsilon_exponent: float = 7.0
    """The least exploratory environment has ε = epsilon_base ** (1 + epsilon_exponent)."""
    noise: float = 0.3
    """DPG: standard deviation of the noise on actions in [-1, 1] (the paper's value)."""
    send_interval: int = 12
    """Steps of each environment between sends to the replay buffer; with 4, about the paper's 50 rows."""
    publish_interval: int = 25
    """Number of updates after which the learner publishes new parameters to the actors."""

    evaluation_interval: int = 250
    """Number of updates between evaluations of the online network."""
    evaluation_episodes: int = 20
    """Number of greedy episodes per evaluation."""
    confirmation_episodes: int = 100
    """Number of additional greedy episodes for a policy that may be the best so far."""
    final_episodes: int = 100
    """Number of greedy episodes in the final evaluation, with seeds not used for selection."""
    evaluation_environments: int = 8
    """Number of environments that an evaluation steps together."""
    evaluation_step_limit: int = 27_000
    """Maximum number of steps of an evaluated episode, because a policy can get stuck."""
    record_interval: int = 100
    """Number of updates between records in progress.csv and TensorBoard."""
    runs: Path = Path("runs")
    """Folder in which the run's own folder is created."""
    progress: bool = True
    """Show a progress bar."""
    checkpoint_seconds: float = 120.0
    """Seconds between two checkpoints; a crash loses the progress since the last one."""
    checkpoint_replay: bool = True
    """Save the replay buffer in checkpoints; if false, a resumed run first collects replay_start new rows."""
    checkpoint_steps: int = 20_000
    """With 0 actors, environment steps between checkpoints; checkpoint_seconds is ignored."""
    restart_limit: int = 5
    """The run ends when an actor dies this many times in a row, each time within a minute of its start. On a
    cluster, this applies only if no other actor is healthy; the loss of a whole host is never counted.
    """
    slow_step_seconds: float = 60.0
    """Seconds that a step of an environment may take before the run reports it; the run continues to wait."""
    device: str = "cpu"
    """Device on which the learner trains: cpu, cuda, cuda:1, ...; auto uses a GPU if there is one."""
    threads: int = 1
    """Number of PyTorch threads per process; more threads help only with large networks and spare cores."""
    prefetch: int | None = None
    """Number of batches prepared by a thread; None means 4 on a GPU, and 0 on a CPU or with 0 actors."""

    def __post_init__(self) -> None:
        """Raise ValueError if a setting is out of range, before anything is started."""
        object.__setattr__(self, "runs", Path(self.runs))  # a program may pass a string
        for name, minimum in MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not value >= minimum:
                raise ValueError(f"{name} is {value}; it must be at least {minimum}.")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and field.name != "solved_at" and not math.isfinite(value):
                raise ValueError(f"{field.name} is {value}; it must be finite.")
        if self.solved_at is not None and math.isnan(self.solved_at):
            raise ValueError("solved_at is nan; it must be a number, or inf or -inf.")
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
                raise ValueError(f"{name} is {value}; it must contain at least one width, each at least 1.")
        for layer in self.convolutions:
            if len(layer) != 3 or not all(isinstance(number, int) and number >= 1 for number in layer):
                raise ValueError(
                    f"convolutions is {self.convolutions}; each layer must have three integers of at least "
                    "1: filters, kernel size and stride."
                )
        for name, maximum in MAXIMUM.items():
            if (value := getattr(self, name)) > maximum:
                raise ValueError(f"{name} is {value}; it must be at most {maximum:,}.")
        if self.replay_start > self.capacity:
            raise ValueError(
                f"replay_start is {self.replay_start}, but capacity is only {self.capacity} rows, so "
                "learning would never start. Raise capacity, or lower replay_start."
            )

    @property
    def environment_count(self) -> int:
        """Number of environments of all actors together: the N of the ε schedule."""
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
# samples_per_insert × rows must fit into the limiter's counters; no machine has more than 1,024 cores.
MAXIMUM = {"samples_per_insert": 1_000_000, "threads": 1_024}
POSITIVE = (
    *("learning_rate", "policy_learning_rate", "action_gradient", "huber_delta", "gradient_norm"),
    *("samples_per_insert", "checkpoint_seconds", "slow_step_seconds"),
)


def preset(environment: str) -> Config:
    """Return the settings for the gymnasium environment with this ID: its preset, or else the defaults."""
    return replace(Config(environment=environment), **overrides_for(environment))
