"""An environment that counts: its observations say which episode and which step they belong to.

Nothing happens in it, so that whatever comes out of a buffer can be traced back to where it came from. It
never terminates; whoever wants episodes wraps it in gymnasium's `TimeLimit`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit


class Counting(gymnasium.Env[Any, int]):
    """Observations [episode, step], a reward of 1 for each step, and no end."""

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
