"""A network learns a curve, once from left to right and once in random order.

No reinforcement learning: the same points, the same number of updates, the same network. Only the order of
the data differs, and it decides whether the network knows the curve at the end or the last part of it.

Left out: everything that makes it harder for an agent; its targets move, too.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

POINTS, LEARNING_RATE = 2_000, 3e-3


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
