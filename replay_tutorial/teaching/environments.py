"""Environments of one's own, with what gymnasium asks for and no more: one to be solved, one that counts.

A run names the first `replay_tutorial.teaching.environments:Corridor-v0`: whoever makes it imports this
module first, also in another process. In the second nothing happens, so that whatever comes out of a buffer
can be traced back to its episode and step.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray


class Corridor(gymnasium.Env[NDArray[np.float32], np.int64]):
    """A corridor of eleven places: begin in the middle, and find the exit at the right end."""

    observation_space: ClassVar[Any] = gymnasium.spaces.Box(-5.0, 5.0, (1,), np.float32)
    action_space: ClassVar[Any] = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode in the middle."""
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Go one place to the right (1) or to the left (0); each step costs 1."""
        self.place = np.clip(self.place + (1 if action == 1 else -1), -5, 5).astype(np.float32)
        return self.place, -1.0, bool(self.place[0] == 5), False, {}


gymnasium.register("Corridor-v0", f"{__name__}:Corridor", max_episode_steps=50)


class Counting(gymnasium.Env[Any, int]):
    """Observations [episode, step], a reward of 1 for each step, and no end: wrap it in `TimeLimit`."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (2,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        """Begin before the first episode."""
        self.episode, self.steps = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode."""
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self.observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count one step."""
        self.steps += 1
        return self.observation(), 1.0, False, False, {}

    def observation(self) -> Any:
        """Return float32[2]: the episode and the step."""
        return np.array([self.episode, self.steps], np.float32)


def counting(steps: int) -> gymnasium.Env[Any, Any]:
    """Return one whose episodes are truncated after so many steps."""
    return TimeLimit(Counting(), steps)


def counting_vector(count: int, steps: int) -> SyncVectorEnv:
    """Return several at once, which begin the next episode in the way that is gymnasium's default."""
    return SyncVectorEnv([lambda: counting(steps)] * count, autoreset_mode=AutoresetMode.NEXT_STEP)


def stacks_of(frames: Any) -> Any:
    """Return every four frames that follow each other, [n, h, w], as one stack, [n - 3, 4, h, w]."""
    return np.lib.stride_tricks.sliding_window_view(frames, 4, axis=0).transpose(0, 3, 1, 2)
