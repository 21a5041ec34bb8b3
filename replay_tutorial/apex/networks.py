"""The network: one value for the state, one advantage for each action.

In most states it hardly matters which action is taken, yet a plain Q-network must learn the worth of such a state once
for every action. The dueling network splits the question: one head says what the state is worth, the other how much
better each action is than the average. Their sum is Q, and whatever is learned about a state serves all its actions.

Left out: convolutions for pictures, noisy layers, distributional heads.

Paper: Wang et al. 2016, "Dueling Network Architectures for Deep Reinforcement Learning", section 3.
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class DuelingNetwork(nn.Module):
    """A multilayer perceptron with a value head and an advantage head.

    Args:
        observation_size: Numbers in one observation.
        action_count: Number of discrete actions.
        hidden_sizes: Width of each hidden layer, at least one.

    Example:
        >>> network = DuelingNetwork(observation_size=4, action_count=2, hidden_sizes=(64, 64))
        >>> network(torch.zeros(32, 4)).shape
        torch.Size([32, 2])
    """

    def __init__(self, observation_size: int, action_count: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size_in, size_out in pairwise([observation_size, *hidden_sizes]):
            layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.value_head = nn.Linear(hidden_sizes[-1], 1)
        self.advantage_head = nn.Linear(hidden_sizes[-1], action_count)

    def forward(self, observations: Tensor) -> Tensor:
        """Return Q(s, a) of every action: float32[batch, actions], for observations of any dtype [batch, size]."""
        features = self.trunk(observations.float())  # float32[batch, hidden]
        value = self.value_head(features)  # float32[batch, 1]
        advantage = self.advantage_head(features)  # float32[batch, actions]
        # Without the mean, a constant could wander from one head to the other and neither would mean anything.
        # Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a')   (Wang et al. 2016, eq. 9)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


def greedy_actions(network: nn.Module, observations: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return the best action for each of a batch of observations: int64[batch]."""
    with torch.inference_mode():
        q_values: Tensor = network(torch.from_numpy(observations))
        return q_values.argmax(dim=1).numpy()


def weight_count(network: nn.Module) -> int:
    """Return how many numbers the network's weights are."""
    return sum(weights.numel() for weights in network.parameters())


def get_weights(network: nn.Module) -> NDArray[np.float32]:
    """Return a copy of all weights, one after the other: float32[weight_count]."""
    # A copy: the vector may be read by another process while this network goes on learning.
    return np.concatenate([weights.detach().cpu().numpy().ravel() for weights in network.parameters()])


def set_weights(network: nn.Module, vector: NDArray[np.float32]) -> None:
    """Copy a vector made by `get_weights` into a network of the same shape.

    Raises:
        ValueError: If the vector's length isn't the network's `weight_count`; nothing is changed.
    """
    if vector.shape != (weight_count(network),):
        raise ValueError(
            f"set_weights got shape {vector.shape}, the network has ({weight_count(network)},). "
            "Both sides must build it with the same hidden sizes and spaces."
        )
    start = 0
    with torch.no_grad():
        for weights in network.parameters():
            part = vector[start : start + weights.numel()]
            weights.copy_(torch.from_numpy(part.reshape(weights.shape)))
            start += weights.numel()
