"""Why the order of data matters: correlation of consecutive observations, and forgetting.

Forgetting is shown without reinforcement learning: a network learns the points of a sine, first those of the
left half, then those of the right half. It ends with an accurate fit of the right half only.
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
        action = int(rng.integers(2))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        transitions.append(
            {"obs": obs, "action": action, "reward": float(reward), "next_obs": next_obs, **ends}
        )
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
        halfway: float32[200], outputs at `x` after half of the points.
        y: float32[200], outputs at `x` after all points.
    """

    x: NDArray[np.float32]
    halfway: NDArray[np.float32]
    y: NDArray[np.float32]

    @property
    def left_error_halfway(self) -> float:
        """Mean absolute error of `halfway` where x < 0."""
        return float(np.abs(self.halfway - np.sin(self.x))[self.x < 0].mean())

    @property
    def left_error(self) -> float:
        """Mean absolute error of `y` where x < 0."""
        return float(np.abs(self.y - np.sin(self.x))[self.x < 0].mean())


def learn_a_sine(by_halves: bool, seed: int = 0) -> SineFit:
    """Fit a sine with one gradient step for each of 2,000 points.

    Args:
        by_halves: Whether the points of the left half come first; the order within each half is random. If
            false, the order of all points is random.
        seed: Seed for initialising the parameters and shuffling the points.
    """
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    points = torch.linspace(-np.pi, np.pi, POINTS)
    middle = POINTS // 2
    if by_halves:
        order = torch.cat([torch.randperm(middle), middle + torch.randperm(middle)])
    else:
        order = torch.randperm(POINTS)
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
    return SineFit(x.numpy(), seen[0].numpy(), seen[1].numpy())
