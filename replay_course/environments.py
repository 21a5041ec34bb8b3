"""Two minimal custom environments: a corridor to solve, and one whose observations are counters.

The ID of the first is `replay_course.environments:Corridor-v0`, so that Gymnasium imports this
module in any process that creates it. The observations of the second are [episode, step], so every row that a
buffer returns can be traced back to its origin.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray


class Corridor(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Eleven positions from -5 to 5: start at 0 and reach the exit at 5. Each step costs 1."""

    observation_space: ClassVar[Any] = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)  # position / 5
    action_space: ClassVar[Any] = gymnasium.spaces.Discrete(2)  # 0: left, 1: right

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode at 0."""
        super().reset(seed=seed)
        self.position = 0
        return self.observe(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move by one position; at -5, a move to the left changes nothing."""
        self.position = max(-5, self.position + (1 if action == 1 else -1))
        return self.observe(), -1.0, self.position == 5, False, {}

    def observe(self) -> NDArray[np.float32]:
        """Return the scaled position, a new array."""
        return np.array([self.position / 5], np.float32)


gymnasium.register("Corridor-v0", f"{__name__}:Corridor", max_episode_steps=50)


class Counting(gymnasium.Env[Any, int]):
    """Observations [episode, step], reward 1 for each step, never terminated: wrap it in `TimeLimit`."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (2,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        """Initialise the counters; `reset` starts episode 0."""
        self.episode, self.steps = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start the next episode."""
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self.observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count a step."""
        self.steps += 1
        return self.observation(), 1.0, False, False, {}

    def observation(self) -> Any:
        """Return [episode, step], float32[2]."""
        return np.array([self.episode, self.steps], np.float32)


def counting(steps: int) -> gymnasium.Env[Any, Any]:
    """Return an environment whose episodes are truncated after `steps` steps."""
    return TimeLimit(Counting(), steps)


def counting_vector(count: int, steps: int) -> SyncVectorEnv:
    """Return a vector environment that resets in the step after the end, Gymnasium's default."""
    return SyncVectorEnv([lambda: counting(steps)] * count, autoreset_mode=AutoresetMode.NEXT_STEP)


def stacks_of(frames: Any) -> Any:
    """Return all stacks of four consecutive frames: [n, h, w] to [n - 3, 4, h, w]."""
    return np.lib.stride_tricks.sliding_window_view(frames, 4, axis=0).transpose(0, 3, 1, 2)
