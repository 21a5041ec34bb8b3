"""Flip bits until they equal a goal, and store each step with the goal that it pursued.

The state and the goal are n random bits, and an action flips one bit. The reward is 0 in the step that
reaches the goal, which terminates the episode, and -1 in every other step. After n flips, which are enough
for any goal, the episode is cut off.

Remaining problem: only one of 2^n states is the goal. With 15 bits, hardly any stored step reaches it.

Paper: Andrychowicz et al. 2017, section 3.1.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]  # int8[n]


class GoalStep(NamedTuple):
    """One step of an episode, and the goal of the episode."""

    obs: Bits  # s_t
    action: int  # the bit to flip
    reward: float  # for this goal
    next_obs: Bits  # s_t+1, the goal achieved after the action
    terminated: bool  # for this goal
    goal: Bits


def reached(achieved: Any, goals: Any, rows: Any = None) -> Any:
    """Return whether goals are reached; arrays [..., n] become bool[...]. `rows` is ignored."""
    return (achieved == goals).all(-1)


def reward(achieved: Any, goals: Any, rows: Any = None) -> Any:
    """Return 0 where a goal is reached, and otherwise -1; arrays [..., n] become float[...]."""
    return reached(achieved, goals) - 1.0


def random_bits(bits: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Return the first state of an episode and its goal."""
    obs, goal = rng.integers(2, size=(2, bits), dtype=np.int8)
    return obs, goal


def play(obs: Bits, goal: Bits, policy: Callable[[Bits, Bits], int]) -> list[GoalStep]:
    """Play one episode from the state `obs`; `policy` maps a state and the goal to the bit to flip."""
    episode: list[GoalStep] = []
    while len(episode) < len(obs):
        action = policy(obs, goal)
        next_obs = obs.copy()
        next_obs[action] ^= 1
        terminated = bool(reached(next_obs, goal))
        episode.append(GoalStep(obs, action, float(reward(next_obs, goal)), next_obs, terminated, goal))
        if terminated:
            break
        obs = next_obs
    return episode


def flips_until_goal(bits: int, rng: np.random.Generator) -> int:
    """Flip random bits until they equal a random goal, without a time limit; return the number of flips."""
    flips, difference = 0, int(rng.integers(2**bits))  # a 1 wherever state and goal differ
    while True:
        walk = np.bitwise_xor.accumulate(1 << rng.integers(bits, size=2**bits)) ^ difference
        if (walk == 0).any():
            return flips + int((walk == 0).argmax()) + 1
        flips, difference = flips + len(walk), int(walk[-1])


class OneGoal:
    """A list of steps, each with the goal of its episode."""

    def __init__(self, seed: int = 0) -> None:
        """Create an empty list."""
        self.steps: list[GoalStep] = []
        self.rng = np.random.default_rng(seed)

    def add_episode(self, episode: Sequence[GoalStep]) -> None:
        """Store the steps of an episode."""
        self.steps += episode

    def sample(self, batch_size: int) -> dict[str, NDArray[Any]]:
        """Sample steps uniformly."""
        drawn = self.rng.integers(len(self.steps), size=batch_size)
        return batch_of([self.steps[i] for i in drawn])


def batch_of(steps: Sequence[GoalStep]) -> dict[str, NDArray[Any]]:
    """Return the fields of steps as arrays [len(steps), ...]."""
    columns = zip(*steps, strict=True)
    return {name: np.stack(column) for name, column in zip(GoalStep._fields, columns, strict=True)}
