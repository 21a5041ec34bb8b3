"""`python -m benchmarks sb3`: learning curves of Stable-Baselines3 (SB3), also with our buffers.

In each environment, three agents are trained with the same seeds and the same settings: SB3 itself, SB3 with
our uniform buffer, and SB3 with our priorities and 3-step returns. Agents, settings and seeds were fixed
before the runs. With fewer steps than in the zoo, `exploration_fraction` is larger, so that exploration ends
at the same step.

Source of the settings: rl-baselines3-zoo, hyperparams/dqn.yml and hyperparams/sac.yml, commit 22e3ff2.
"""

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.comparison import FINAL_EPISODES, Comparison, Run, Task
from replay_tutorial.agents.evaluation import draw_seeds, evaluate
from replay_tutorial.apex.runs.run import torch_threads

PLAIN, UNIFORM, PRIORITIZED = "SB3", "SB3, our buffer", "SB3, our priorities, 3-step returns"
AGENTS = (PLAIN, UNIFORM, PRIORITIZED)
EVALUATION_EPISODES = 20
CARTPOLE = Task(
    "CartPole-v1",
    "DQN",
    steps=25_000,
    interval=2_500,
    settings={
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 8 / 25,  # 8,000 steps, as in the zoo, which trains for 50,000
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
)
PENDULUM = Task("Pendulum-v1", "SAC", steps=3_000, interval=250, settings={"learning_rate": 1e-3})
LUNAR_LANDER = Task(
    "LunarLander-v3",
    "DQN",
    steps=100_000,
    interval=10_000,
    settings={
        "learning_rate": 6.3e-4,
        "batch_size": 128,
        "buffer_size": 50_000,
        "learning_starts": 0,
        "gamma": 0.99,
        "target_update_interval": 250,
        "train_freq": 4,
        "gradient_steps": -1,
        "exploration_fraction": 0.12,
        "exploration_final_eps": 0.1,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
)
COMPARISON = Comparison(
    name="sb3",
    library="Stable-Baselines3",
    agents=AGENTS,
    tasks=(CARTPOLE, PENDULUM, LUNAR_LANDER),
    packages=("torch", "gymnasium", "stable-baselines3"),
    point=f"mean return of {EVALUATION_EPISODES} greedy episodes",
    mean_of_curve=f"mean of all evaluations during training, of {EVALUATION_EPISODES} episodes each",
)


def new_model(task: Task, agent: str, seed: int) -> Any:
    """Create an agent."""
    ours, theirs = "replay_tutorial.agents.sb3", "stable_baselines3"
    settings = {"seed": seed, "device": "cpu", **task.settings}
    module, name = theirs, task.algorithm
    if agent == UNIFORM:
        settings["replay_buffer_class"] = importlib.import_module(ours).ReplayBuffer
    if agent == PRIORITIZED:
        module, name, settings["n_steps"] = ours, f"Prioritized{name}", 3
    algorithm = getattr(importlib.import_module(module), name)
    return algorithm("MlpPolicy", gym.make(task.environment), **settings)


def train_once(
    task: Task,
    agent: str,
    seed: int,
    on_evaluation: Callable[[Any, float, float], None] = lambda policy, mean, seconds: None,
) -> Run:
    """Train an agent, evaluate it during training, and score its last policy.

    `on_evaluation` is called after each evaluation during training, with the policy, the mean return, and the
    seconds since training started, without those of the evaluations.
    """
    seeds = episode_seeds(seed)[:EVALUATION_EPISODES]
    curve: list[float] = []
    started = time.monotonic()

    def evaluate_now(values: dict[str, Any], _: dict[str, Any]) -> bool:
        nonlocal started
        model = values["self"]
        if model.num_timesteps % task.interval == 0 and len(curve) < task.steps // task.interval:
            begin = time.monotonic()
            curve.append(mean_return(model.policy, task.environment, seeds))
            on_evaluation(model.policy, curve[-1], begin - started)
            started += time.monotonic() - begin
        return True

    with torch_threads(1):  # a network this small is faster with one
        model = new_model(task, agent, seed)
        started = time.monotonic()
        model.learn(task.steps, callback=evaluate_now)
        return Run(agent, seed, final_score(model.policy, task.environment, seed), curve)


def final_score(policy: Any, environment: str, seed: int) -> float:
    """Return the mean return in the episodes that are not used during training."""
    return mean_return(policy, environment, episode_seeds(seed)[EVALUATION_EPISODES:])


def episode_seeds(seed: int) -> list[int]:
    """Return the seeds of the evaluation episodes, first those during training."""
    return draw_seeds(np.random.SeedSequence(seed), EVALUATION_EPISODES + FINAL_EPISODES)


def mean_return(policy: Any, environment: str, seeds: list[int]) -> float:
    """Return the mean return of a greedy policy, one episode per seed."""

    def act(observations: NDArray[Any]) -> NDArray[Any]:
        actions = policy.predict(observations, deterministic=True)[0]
        return policy.scale_action(actions) if isinstance(policy.action_space, gym.spaces.Box) else actions

    return evaluate(act, environment, seeds).mean


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return its exit status."""
    return COMPARISON.main(argv, train_once)
