"""An environment of one's own: what gymnasium asks for, and no more.

A run names it `replay_tutorial.teaching.corridor:Corridor-v0`: whoever makes it imports this module first,
also in another process.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
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
