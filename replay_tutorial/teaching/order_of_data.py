"""The order of data: how alike neighbours are in a game, and what a network forgets that learns them in turn.

The second needs no reinforcement learning: the same points, the same number of updates, the same network.
Only the order differs, and it decides whether the network knows the curve at the end or the last part of it.
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

NAMES = ("cart's place", "cart's speed", "pole's angle", "pole's turning")
POINTS, LEARNING_RATE = 2_000, 3e-3  # of the sine


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


class Learned(NamedTuple):
    """What a network has made of a sine.

    Attributes:
        x: float32[200], from −π to π.
        half: float32[200], the network's values there when half of the points have been seen.
        y: float32[200], its values at the end.
        error: The mean distance from the sine.
    """

    x: NDArray[np.float32]
    half: NDArray[np.float32]
    y: NDArray[np.float32]
    error: float


def learn_a_sine(shuffled: bool, seed: int = 0) -> Learned:
    """Take one step of gradient descent for each of 2,000 points of a sine.

    Args:
        shuffled: Take the points in random order, and not from left to right.
        seed: Of the parameters and the order.
    """
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    points = torch.linspace(-np.pi, np.pi, POINTS)
    order = torch.randperm(POINTS) if shuffled else torch.arange(POINTS)
    x = torch.linspace(-np.pi, np.pi, 200)
    seen: list[torch.Tensor] = []  # the network's values after each half
    for half in points[order].chunk(2):
        for point in half:
            loss = (network(point.reshape(1, 1)) - torch.sin(point)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            seen.append(network(x.reshape(-1, 1)).squeeze(1))
    error = (seen[1] - torch.sin(x)).abs().mean()
    return Learned(x.numpy(), seen[0].numpy(), seen[1].numpy(), float(error))
