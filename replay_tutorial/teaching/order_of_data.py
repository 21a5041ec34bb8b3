"""Why the order of data matters: correlation of consecutive observations, and forgetting.

Forgetting is shown without reinforcement learning: a network learns the points of a sine once in order and
once shuffled. In order, it ends with an accurate fit of the last part only.
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

NAMES = ("cart position", "cart velocity", "pole angle", "pole angular velocity")
POINTS, LEARNING_RATE = 2_000, 3e-3  # for the sine


def play_at_random(steps: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return transitions of CartPole-v1 under uniformly random actions."""
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
    """Return the autocorrelation of a sequence at a lag: 1 if perfectly correlated, 0 if uncorrelated.

    Example:
        >>> round(correlation(np.arange(100.0), lag=1), 6)
        1.0
    """
    return 1.0 if lag == 0 else float(np.corrcoef(values[:-lag], values[lag:])[0, 1])


class SineFit(NamedTuple):
    """A sine as approximated by a network.

    Attributes:
        x: float32[200], from −π to π.
        half: float32[200], outputs at `x` after half of the points.
        y: float32[200], outputs at `x` after all points.
        error: Mean absolute error of `y`.
    """

    x: NDArray[np.float32]
    half: NDArray[np.float32]
    y: NDArray[np.float32]
    error: float


def learn_a_sine(shuffled: bool, seed: int = 0) -> SineFit:
    """Fit a sine with one gradient step for each of 2,000 points.

    Args:
        shuffled: Whether the points come in random order instead of from left to right.
        seed: Seed for initialising the parameters and shuffling the points.
    """
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    points = torch.linspace(-np.pi, np.pi, POINTS)
    order = torch.randperm(POINTS) if shuffled else torch.arange(POINTS)
    x = torch.linspace(-np.pi, np.pi, 200)
    seen: list[torch.Tensor] = []  # outputs after each half of the points
    for half in points[order].chunk(2):
        for point in half:
            loss = (network(point.reshape(1, 1)) - torch.sin(point)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            seen.append(network(x.reshape(-1, 1)).squeeze(1))
    error = (seen[1] - torch.sin(x)).abs().mean()
    return SineFit(x.numpy(), seen[0].numpy(), seen[1].numpy(), float(error))
