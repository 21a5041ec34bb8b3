"""The networks: what sees, what judges, and what acts.

In most states it hardly matters which action is taken, yet a plain Q-network must learn the worth of such a state once
for every action. The dueling network splits the question: one head says what the state is worth, the other how much
better each action is than the average. Their sum is Q, and whatever is learned about a state serves all its actions.
Where actions are numbers there are two networks instead: a policy that names one action, and a critic that judges it.

Left out: noisy layers, distributional heads, recurrence, normalisation.

Papers: Wang et al. 2016, section 3 (dueling); Mnih et al. 2015, methods (pictures); Horgan et al. 2018, appendix D (DPG).
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Torso(nn.Module):
    """The first part of every network: from observations to features, numbers around 0.

    A flat observation is only converted. A picture goes through the three convolutions that have been usual since
    Mnih et al. 2015, after its bytes have been scaled to the range from 0 to 1.

    Args:
        observation_shape: `(size,)`, or a picture's `(channels, height, width)`, each side at least 36.
    """

    def __init__(self, observation_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.is_image = len(observation_shape) == 3
        self.layers = nn.Sequential()
        if self.is_image:
            self.layers = nn.Sequential(
                *(nn.Conv2d(observation_shape[0], 32, kernel_size=8, stride=4), nn.ReLU()),
                *(nn.Conv2d(32, 64, kernel_size=4, stride=2), nn.ReLU()),
                *(nn.Conv2d(64, 64, kernel_size=3, stride=1), nn.ReLU()),
                nn.Flatten(),
            )
        with torch.no_grad():
            self.feature_count = int(self.layers(torch.zeros(1, *observation_shape)).shape[1])

    def forward(self, observations: Tensor) -> Tensor:
        """Return features float32[batch, feature_count] of observations [batch, ...]; bytes count from 0 to 1."""
        numbers = observations.float()
        return self.layers(numbers.div_(255.0) if observations.dtype == torch.uint8 else numbers)


def hidden_layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return fully connected layers, each with its ReLU; `sizes` begins with the input's."""
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise(sizes):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return nn.Sequential(*layers)


class DuelingNetwork(nn.Module):
    """A network with a value head and an advantage head.

    The heads share the hidden layers where observations are flat; each has its own behind the convolutions for
    pictures, as in the paper.

    Args:
        observation_shape: See `Torso`.
        action_count: Number of discrete actions.
        hidden_sizes: Width of each hidden layer, at least one.

    Example:
        >>> network = DuelingNetwork(observation_shape=(4,), action_count=2, hidden_sizes=(64, 64))
        >>> network(torch.zeros(32, 4)).shape
        torch.Size([32, 2])
    """

    def __init__(
        self, observation_shape: tuple[int, ...], action_count: int, hidden_sizes: Sequence[int]
    ) -> None:
        super().__init__()
        torso = Torso(observation_shape)
        sizes = [torso.feature_count, *hidden_sizes]
        shared, own = (sizes[:1], sizes) if torso.is_image else (sizes, sizes[-1:])
        self.trunk = nn.Sequential(torso, hidden_layers(shared))
        self.value_head = nn.Sequential(hidden_layers(own), nn.Linear(own[-1], 1))
        self.advantage_head = nn.Sequential(hidden_layers(own), nn.Linear(own[-1], action_count))

    def forward(self, observations: Tensor) -> Tensor:
        """Return Q(s, a) of every action: float32[batch, actions], for observations of any dtype [batch, ...]."""
        features = self.trunk(observations)  # float32[batch, features]
        value = self.value_head(features)  # float32[batch, 1]
        advantage = self.advantage_head(features)  # float32[batch, actions]
        # Without the mean, a constant could wander from one head to the other and neither would mean anything.
        # Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a')   (Wang et al. 2016, eq. 9)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class PolicyNetwork(nn.Module):
    """π(s): one action, numbers from -1 to 1.

    Args:
        observation_shape: See `Torso`.
        action_size: Numbers in one action.
        hidden_sizes: Width of each hidden layer, at least one.
    """

    def __init__(
        self, observation_shape: tuple[int, ...], action_size: int, hidden_sizes: Sequence[int]
    ) -> None:
        super().__init__()
        torso = Torso(observation_shape)
        self.layers = nn.Sequential(
            torso,
            hidden_layers([torso.feature_count, *hidden_sizes]),
            nn.Linear(hidden_sizes[-1], action_size),
            nn.Tanh(),
        )

    def forward(self, observations: Tensor) -> Tensor:
        """Return the actions for observations [batch, ...]: float32[batch, action_size]."""
        return self.layers(observations)


class CriticNetwork(nn.Module):
    """Q(s, a) of one action, which is an input beside the observation's features.

    Args:
        observation_shape: See `Torso`.
        action_size: Numbers in one action.
        hidden_sizes: Width of each hidden layer, at least one.
    """

    def __init__(
        self, observation_shape: tuple[int, ...], action_size: int, hidden_sizes: Sequence[int]
    ) -> None:
        super().__init__()
        self.torso = Torso(observation_shape)
        self.layers = nn.Sequential(
            hidden_layers([self.torso.feature_count + action_size, *hidden_sizes]),
            nn.Linear(hidden_sizes[-1], 1),
        )

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return Q(s, a) for observations [batch, ...] and actions [batch, action_size]: float32[batch]."""
        return self.layers(torch.cat([self.torso(observations), actions], dim=1)).squeeze(1)


def greedy_actions(network: nn.Module, observations: NDArray[Any]) -> NDArray[np.int64]:
    """Return the best action for each of a batch of observations: int64[batch]."""
    with torch.inference_mode():
        q_values: Tensor = network(torch.from_numpy(observations))
        return q_values.argmax(dim=1).numpy()


def parameter_count(network: nn.Module) -> int:
    """Return how many numbers the network's weights are."""
    return sum(weights.numel() for weights in network.parameters())


def get_parameters(network: nn.Module) -> NDArray[np.float32]:
    """Return a copy of all weights, one after the other: float32[parameter_count]."""
    # A copy: the vector may be read by another process while this network goes on learning.
    return np.concatenate([weights.detach().cpu().numpy().ravel() for weights in network.parameters()])


def set_parameters(network: nn.Module, vector: NDArray[np.float32]) -> None:
    """Copy a vector made by `get_parameters` into a network of the same shape.

    Raises:
        ValueError: If the vector's length isn't the network's `parameter_count`; nothing is changed.
    """
    if vector.shape != (parameter_count(network),):
        raise ValueError(
            f"set_parameters got shape {vector.shape}, the network has ({parameter_count(network)},). "
            "Both sides must build it with the same hidden sizes and spaces."
        )
    start = 0
    with torch.no_grad():
        for weights in network.parameters():
            part = vector[start : start + weights.numel()]
            weights.copy_(torch.from_numpy(part.reshape(weights.shape)))
            start += weights.numel()
