"""How alike are neighbours? The observations of an agent in the order in which it meets them.

Left out: learning. The player pushes at random.
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

NAMES = ("cart's place", "cart's speed", "pole's angle", "pole's turning")


def play_at_random(steps: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return the transitions of a player of CartPole-v1 who pushes left or right by a coin."""
    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    transitions: list[dict[str, Any]] = []
    for _ in range(steps):
        act = int(rng.integers(2))
        next_obs, rew, terminated, truncated, _ = env.step(act)
        ends = {"terminated": terminated, "truncated": truncated}
        transitions.append({"obs": obs, "act": act, "rew": float(rew), "next_obs": next_obs, **ends})
        obs = env.reset()[0] if terminated or truncated else next_obs
    return transitions


def correlation(values: NDArray[Any], lag: int) -> float:
    """Return how much a value tells of the one `lag` places later: 1 all, 0 nothing.

    Example:
        >>> round(correlation(np.arange(100.0), lag=1), 6)
        1.0
    """
    return 1.0 if lag == 0 else float(np.corrcoef(values[:-lag], values[lag:])[0, 1])
