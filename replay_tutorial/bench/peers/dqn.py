"""Stable-Baselines3's DQN with the hyperparameters of RL Baselines3 Zoo for CartPole, as a peer of `train`.

It is evaluated as often as ours, by the same function; its clock is stopped during evaluations. Two
policies are scored: the last one, which `learn` returns to a user, and the best one of all evaluations, which
corresponds to ours.

Source of the settings: rl-baselines3-zoo, hyperparams/dqn.yml.
"""

import importlib
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.evaluation import draw_seeds, evaluate
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.bench.scores import Score

MODULE = "stable_baselines3"
LAST, BEST = "stable-baselines3, last policy", "stable-baselines3, best policy"
STEPS = 50_000
EVALUATION_INTERVAL = 1_000  # steps, close to CartPole's preset
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
    """Return the reason why the peer can't be measured, or None."""
    try:
        importlib.import_module(MODULE)
    except ImportError as error:
        return f'Stable-Baselines3 ({error}): pip install "replay_tutorial[peers]"'
    return None


def train_once(environment: str, seed: int, target: float, steps: int = STEPS) -> dict[str, Score]:
    """Train the peer, and score its last and its best policy.

    Args:
        environment: Gymnasium ID.
        seed: Seed of the model and of the evaluation episodes.
        target: Mean return for the time to the target.
        steps: Environment steps.
    """
    peer: Any = importlib.import_module(MODULE)
    seeds = draw_seeds(np.random.SeedSequence(seed), EVALUATION_EPISODES + FINAL_EPISODES)
    means: list[tuple[float, float]] = []  # training seconds, mean return
    off_the_clock = 0.0
    started = time.monotonic()

    def mean_of(model: Any, episodes: Any) -> float:
        def act(observations: NDArray[Any]) -> NDArray[Any]:
            return model.predict(observations, deterministic=True)[0]

        return evaluate(act, environment, episodes).mean

    def note(model: Any) -> None:
        """Evaluate the model, and save it if it is the best so far."""
        nonlocal off_the_clock
        begin = time.monotonic()
        mean = mean_of(model, seeds[:EVALUATION_EPISODES])
        if mean >= max((best for _, best in means), default=-np.inf):
            model.save(file)
        means.append((begin - started - off_the_clock, mean))
        off_the_clock += time.monotonic() - begin

    def callback(values: dict[str, Any], _: dict[str, Any]) -> bool:
        if values["self"].num_timesteps % EVALUATION_INTERVAL == 0:
            note(values["self"])
        return True

    # One thread, as in our learner: a network this small is faster with one.
    with tempfile.TemporaryDirectory() as folder, torch_threads(1):
        file = Path(folder) / "best.zip"
        model = peer.DQN("MlpPolicy", gym.make(environment), seed=seed, device="cpu", **ZOO)
        started = time.monotonic()
        model.learn(steps, callback=callback)
        note(model)
        finals = {LAST: model, BEST: peer.DQN.load(file, device="cpu")}
        results = {name: mean_of(each, seeds[EVALUATION_EPISODES:]) for name, each in finals.items()}
    seconds, reached = means[-1][0], [seconds for seconds, mean in means if mean >= target]
    return {
        name: Score(seed, mean, seconds, reached[0] if reached else None, steps, "budget spent")
        for name, mean in results.items()
    }
