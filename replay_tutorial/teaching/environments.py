"""Two minimal custom environments: a corridor to solve, and one whose observations are counters.

The ID of the first is `replay_tutorial.teaching.environments:Corridor-v0`, so that Gymnasium imports this
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
    """A corridor of eleven positions: start in the middle and reach the exit at the right end."""

    observation_space: ClassVar[Any] = gymnasium.spaces.Box(-5.0, 5.0, (1,), np.float32)
    action_space: ClassVar[Any] = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode in the middle."""
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move one position right (1) or left (0); the reward is -1."""
        self.place = np.clip(self.place + (1 if action == 1 else -1), -5, 5).astype(np.float32)
        return self.place, -1.0, bool(self.place[0] == 5), False, {}


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
