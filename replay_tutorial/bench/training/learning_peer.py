"""The peer of the learning benchmark: Stable-Baselines3's DQN, with its zoo's settings for CartPole.

It is evaluated as often as ours, on the same episodes, by the same function, with its clock stopped
meanwhile. There are two results: the policy that `learn` leaves behind, which is what a user gets, and the
best one of all evaluations, as ours is.

Left out: other algorithms, other environments.

Source of the settings: rl-baselines3-zoo, hyperparams/dqn.yml.
"""

import importlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from replay_tutorial.agents.evaluation import draw_seeds, evaluate
from replay_tutorial.bench.training.scores import Score

MODULE = "stable_baselines3"
LAST, BEST = "stable-baselines3, last policy", "stable-baselines3, best policy"
STEPS = 50_000
EVALUATION_INTERVAL = 1_000  # steps, about as in CartPole's preset
EVALUATION_EPISODES = 20
FINAL_EPISODES = 100
ZOO: dict[str, Any] = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}


def missing() -> str | None:
    """Return why the peer can't be measured; None if it can."""
    try:
        importlib.import_module(MODULE)
    except ImportError as error:
        return f'Stable-Baselines3 ({error}): pip install "replay_tutorial[peers]" brings it'
    return None


class Evaluations:
    """Plays greedy episodes with a model now and then, off the clock, and keeps the best model.

    Args:
        environment: Its name.
        seeds: Of the episodes of each evaluation.
        file: Where the best model is kept.
    """

    def __init__(self, environment: str, seeds: Sequence[int], file: Path) -> None:
        self.environment = environment
        self.seeds = seeds
        self.file = file
        self.started = time.monotonic()
        self.off_the_clock = 0.0
        self.means: list[tuple[float, float]] = []  # seconds on the clock, mean return

    @property
    def seconds(self) -> float:
        """Seconds of learning so far."""
        return time.monotonic() - self.started - self.off_the_clock

    def add(self, model: Any) -> None:
        """Evaluate a model as it is."""
        seconds, begin = self.seconds, time.monotonic()
        mean = evaluate(acting(model), self.environment, self.seeds).mean
        if mean >= max((best for _, best in self.means), default=-np.inf):
            model.save(self.file)
        self.means.append((seconds, mean))
        self.off_the_clock += time.monotonic() - begin


def acting(model: Any) -> Any:
    """Return what chooses the model's greedy actions for a batch of observations."""

    def act(observations: NDArray[Any]) -> NDArray[Any]:
        """Return the actions."""
        return model.predict(observations, deterministic=True)[0]

    return act


def train_once(environment: str, seed: int, target: float, steps: int = STEPS) -> dict[str, Score]:
    """Let it learn, and measure its last policy and its best one.

    Args:
        environment: Its name.
        seed: Of the model; the episodes of evaluations and results come from it, too.
        target: The mean return; the time until it is first reached is measured.
        steps: Environment steps.
    """
    peer: Any = importlib.import_module(MODULE)
    seeds = draw_seeds(np.random.SeedSequence(seed), EVALUATION_EPISODES + FINAL_EPISODES)
    threads = torch.get_num_threads()
    # as in our own learner: so small a network is faster on one
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        best = Path(folder) / "best.zip"
        try:
            model = peer.DQN("MlpPolicy", gym.make(environment), seed=seed, device="cpu", **ZOO)
            evaluations = Evaluations(environment, seeds[:EVALUATION_EPISODES], best)

            def callback(values: dict[str, Any], _: dict[str, Any]) -> bool:
                """Evaluate every EVALUATION_INTERVAL steps."""
                if values["self"].num_timesteps % EVALUATION_INTERVAL == 0:
                    evaluations.add(values["self"])
                return True

            model.learn(steps, callback=callback)
            seconds = evaluations.seconds
            evaluations.add(model)
            finals = {LAST: model, BEST: peer.DQN.load(best, device="cpu")}
            means = {
                name: evaluate(acting(each), environment, seeds[EVALUATION_EPISODES:]).mean
                for name, each in finals.items()
            }
        finally:
            torch.set_num_threads(threads)
    reached = [seconds for seconds, mean in evaluations.means if mean >= target]
    return {
        name: Score(seed, mean, seconds, reached[0] if reached else None, steps, "budget spent")
        for name, mean in means.items()
    }
