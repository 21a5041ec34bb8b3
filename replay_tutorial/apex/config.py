"""Configuration: everything that can be chosen about a run, with the reasons for what is chosen already.

One typed dataclass is the only place for settings: the command line makes a flag of each field, the run's folder keeps
all of them, and every process receives the same object. The defaults fit small environments with a few numbers for an
observation. What differs from them stands in `presets.py`.

Paper: Horgan et al. 2018, appendices C and F; Schaul et al. 2016, section 4.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from replay_tutorial.apex.presets import changes_for


@dataclass(frozen=True)
class Config:
    """Train Ape-X DQN, then evaluate the policy that was chosen and draw the learning curve."""

    environment: Annotated[str, tyro.conf.Positional] = "CartPole-v1"
    """The gymnasium environment; module:Name-v0 imports the module first."""
    agent: Literal["dqn", "dpg"] | None = None
    """dqn for Discrete actions, dpg for a Box of them; None takes the one that fits the environment."""
    actors: int = 2
    """Processes that act; 0 runs everything in one process, in a fixed order: the same run for the same seed."""
    environments_per_actor: int = 4
    """Environments that one actor steps side by side, with one forward pass for all of them."""
    seed: int = 0
    """All random numbers of the run come from this one."""
    total_steps: int = 400_000
    """The run ends after so many environment steps, if it isn't solved before."""
    solved_at: float | None = None
    """Stop when the evaluation is surely above this mean return; None takes gymnasium's threshold, if it has one."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    """Width of each hidden layer of the network that judges; for pictures, of each of its heads."""
    policy_hidden_sizes: tuple[int, ...] = (128, 128)
    """DPG: width of each hidden layer of the network that acts."""
    n_step: int = 3
    """Rewards in a return: news travels three states with each update (the paper's value)."""
    gamma: float = 0.99
    """Discount of one step: what comes in 100 steps counts a third."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """DQN: adam learns faster in short runs; rmsprop is the paper's, centered."""
    learning_rate: float = 2e-3
    """Step size of the network that judges: great, because the run is short and the best policy is kept anyway."""
    policy_learning_rate: float = 1e-3
    """DPG: step size of the network that acts; smaller, because it follows what the other one says."""
    huber_delta: float = 1.0
    """Greatest |TD error| that counts in full; greater ones pull no harder than this (Mnih et al. 2015)."""
    gradient_norm: float = 10.0
    """Gradients longer than this are shortened to it."""
    action_gradient: float = 1.0
    """DPG: how much Q may seem to change with the action; more is cut off (the paper's value)."""
    batch_size: int = 64
    """Rows in one update: with networks so small, twice the rows take longer and teach hardly more."""
    target_interval: int = 50
    """Updates between copies of the online network into the target network."""

    capacity: int = 50_000
    """Rows that the replay holds; the oldest are replaced."""
    alpha: float = 0.6
    """How much priorities matter: 0 draws uniformly, 1 in proportion (the paper's value)."""
    beta: float = 0.4
    """How much importance weights correct for that: 0 not at all, 1 in full (the paper's value)."""
    replay_start: int = 1_000
    """Rows in the replay before the first update."""
    samples_per_insert: float = 4.0
    """Times that a row is sampled, on average: learner and actors wait for each other to keep it."""
    slack: int = 500
    """Rows by which actors may be ahead of the learner, or behind it, before one side waits."""

    epsilon_base: float = 0.4
    """ε of the most curious environment (the paper's value)."""
    epsilon_exponent: float = 7.0
    """ε of the least curious one is epsilon_base ** (1 + this) (the paper's value)."""
    noise: float = 0.3
    """DPG: standard deviation of the noise on actions, which reach from -1 to 1 (the paper's value)."""
    send_interval: int = 12
    """Steps of each environment between two sends to the replay: 12 steps of 4 are about the paper's 50 rows."""
    publish_interval: int = 25
    """Updates between new weights for the actors."""

    evaluation_interval: int = 250
    """Updates between evaluations of the online network."""
    evaluation_episodes: int = 20
    """Greedy episodes of each evaluation."""
    confirmation_episodes: int = 100
    """More greedy episodes, for a policy that did as well as the best one in its evaluation."""
    final_episodes: int = 100
    """Greedy episodes for the final result, with seeds that were never used to choose."""
    evaluation_step_limit: int = 27_000
    """An evaluated episode is cut after so many steps: a policy can get stuck where there is no time limit."""
    record_interval: int = 100
    """Updates between records in the CSV and TensorBoard."""
    runs: Path = Path("runs")
    """The run's folder is made in this one."""
    progress: bool = True
    """Show a progress bar."""
    checkpoint_seconds: float = 120.0
    """Seconds between checkpoints; more is lost in a crash if it is longer."""
    checkpoint_replay: bool = True
    """Keep the replay in checkpoints; else they are small, and a resumed run first collects replay_start new rows."""
    checkpoint_steps: int = 20_000
    """Environment steps between checkpoints with 0 actors, where nothing may depend on time."""
    restart_limit: int = 5
    """An actor that has been killed so often in a row, each time within a minute, ends the run."""
    device: str = "cpu"
    """Where the learner trains: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""
    threads: int = 1
    """Threads of torch in each process; more only for big networks, where cores are to spare."""
    prefetch: int | None = None
    """Batches that a thread prepares while the learner trains; None: 4 on a GPU, 0 else (and always with 0 actors)."""

    def __post_init__(self) -> None:
        """Refuse what can't work, before anything is started."""
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} is {value}; it must be at least {least}.")
        for name in ("gamma", "alpha", "beta", "epsilon_base"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}; it must be between 0 and 1.")
        for name in (
            "learning_rate",
            "policy_learning_rate",
            "action_gradient",
            "huber_delta",
            "gradient_norm",
            "samples_per_insert",
            "checkpoint_seconds",
        ):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                raise ValueError(f"{name} is {value}; it must be positive and finite.")
        for name in ("hidden_sizes", "policy_hidden_sizes"):
            value = getattr(self, name)
            if not value or min(value) < 1:
                raise ValueError(f"{name} is {value}; it needs at least one width, each at least 1.")
        if self.replay_start > self.capacity:
            raise ValueError(
                f"replay_start is {self.replay_start}, but the replay holds only {self.capacity} rows: "
                "learning would never start. Raise capacity or lower replay_start."
            )

    @property
    def environment_count(self) -> int:
        """Environments of all actors together: the N of the ladder of ε."""
        return max(1, self.actors) * self.environments_per_actor


# The least value of each count.
LEAST = {
    **dict.fromkeys(["environments_per_actor", "total_steps", "n_step", "batch_size", "capacity"], 1),
    **dict.fromkeys(["target_interval", "replay_start", "slack", "send_interval", "publish_interval"], 1),
    **dict.fromkeys(
        ["evaluation_interval", "evaluation_episodes", "evaluation_step_limit", "record_interval"], 1
    ),
    **dict.fromkeys(["checkpoint_steps", "restart_limit", "threads"], 1),
    **dict.fromkeys(["seed", "confirmation_episodes", "actors", "prefetch"], 0),
    "final_episodes": 2,  # one episode has no spread
    **dict.fromkeys(["epsilon_exponent", "noise"], 0.0),
}


def preset(environment: str) -> Config:
    """Return the settings for an environment: its preset where there is one, else the defaults."""
    return replace(Config(environment=environment), **changes_for(environment))
