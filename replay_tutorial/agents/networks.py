"""The networks: a torso for observations, and behind it a dueling Q-network, a policy, or a critic.

In most states it hardly matters which action is taken, yet a plain Q-network must learn the value of such a
state once per action. The dueling network has two heads instead: one estimates the value of the state, the
other the advantage of each action over the average. Their sum is Q, so what is learned about a state serves
all its actions. For continuous actions there are two networks: a policy that names one action, and a critic
that estimates its value.

Left out: noisy layers, distributional heads, recurrence, normalisation.

Papers: Wang et al. 2016, section 3 (dueling); Mnih et al. 2015, methods (images); Horgan et al. 2018,
appendix D (DPG).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Shape = tuple[int, ...]  # of an observation: (size,), or an image's (channels, height, width)


class Torso(nn.Module):
    """The first part of every network: from observations to features.

    Flat observations are only converted to float32. Images pass through the three convolutions of Mnih et al.
    2015, after their bytes have been scaled to [0, 1].

    Args:
        observation_shape: The height and width of an image are at least 36.
    """

    def __init__(self, observation_shape: Shape) -> None:
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
        """Return the features of observations [B, ...]: float32[B, feature_count]."""
        numbers = observations.float()
        return self.layers(numbers.div_(255.0) if observations.dtype == torch.uint8 else numbers)


def hidden_layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return fully connected layers, each with a ReLU; `sizes` begins with the input's."""
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise(sizes):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return nn.Sequential(*layers)


class DuelingNetwork(nn.Module):
    """A network with a value head and an advantage head.

    For flat observations the heads share the hidden layers. For images each has its own behind the
    convolutions, as in the paper.

    Args:
        observation_shape: As for `Torso`.
        action_count: Number of discrete actions.
        hidden_sizes: Width of each hidden layer, at least one.

    Example:
        >>> network = DuelingNetwork(observation_shape=(4,), action_count=2, hidden_sizes=(64, 64))
        >>> network(torch.zeros(32, 4)).shape
        torch.Size([32, 2])
    """

    def __init__(self, observation_shape: Shape, action_count: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        torso = Torso(observation_shape)
        sizes = [torso.feature_count, *hidden_sizes]
        shared, own = (sizes[:1], sizes) if torso.is_image else (sizes, sizes[-1:])
        self.trunk = nn.Sequential(torso, hidden_layers(shared))
        self.value_head = nn.Sequential(hidden_layers(own), nn.Linear(own[-1], 1))
        self.advantage_head = nn.Sequential(hidden_layers(own), nn.Linear(own[-1], action_count))

    def forward(self, observations: Tensor) -> Tensor:
        """Return Q(s, a) of every action: float32[B, actions], for observations of any dtype [B, ...]."""
        features = self.trunk(observations)  # float32[B, features]
        value = self.value_head(features)  # float32[B, 1]
        advantage = self.advantage_head(features)  # float32[B, actions]
        # Without the mean, a constant could move from one head to the other, and neither would be defined.
        # Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a')   (Wang et al. 2016, eq. 9)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class PolicyNetwork(nn.Module):
    """π(s): one action, `action_size` numbers in [-1, 1]; the other arguments are `DuelingNetwork`'s."""

    def __init__(self, observation_shape: Shape, action_size: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        torso = Torso(observation_shape)
        self.layers = nn.Sequential(
            torso,
            hidden_layers([torso.feature_count, *hidden_sizes]),
            nn.Linear(hidden_sizes[-1], action_size),
            nn.Tanh(),
        )

    def forward(self, observations: Tensor) -> Tensor:
        """Return the actions for observations [B, ...]: float32[B, action_size]."""
        return self.layers(observations)


class CriticNetwork(nn.Module):
    """Q(s, a) of one action, which is concatenated to the observation's features; arguments as for π."""

    def __init__(self, observation_shape: Shape, action_size: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.torso = Torso(observation_shape)
        self.layers = nn.Sequential(
            hidden_layers([self.torso.feature_count + action_size, *hidden_sizes]),
            nn.Linear(hidden_sizes[-1], 1),
        )

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return Q(s, a) for observations [B, ...] and actions [B, action_size]: float32[B]."""
        return self.layers(torch.cat([self.torso(observations), actions], dim=1)).squeeze(1)


def parameter_count(network: nn.Module) -> int:
    """Return the number of a network's parameters."""
    return sum(tensor.numel() for tensor in network.parameters())


def get_parameters(network: nn.Module) -> NDArray[np.float32]:
    """Return a copy of all parameters as one vector: float32[parameter_count]."""
    # A copy: another process may read the vector while this network goes on learning.
    return np.concatenate([tensor.detach().cpu().numpy().ravel() for tensor in network.parameters()])


def set_parameters(network: nn.Module, vector: NDArray[np.float32]) -> None:
    """Copy a vector made by `get_parameters` into a network of the same shape.

    Raises:
        ValueError: If the vector's length isn't the network's `parameter_count`; nothing is changed.
    """
    if vector.shape != (parameter_count(network),):
        raise ValueError(
            f"set_parameters got shape {vector.shape}, the network has ({parameter_count(network)},). "
            "Both networks need the same hidden sizes and spaces."
        )
    start = 0
    with torch.no_grad():
        for tensor in network.parameters():
            part = vector[start : start + tensor.numel()]
            tensor.copy_(torch.from_numpy(part.reshape(tensor.shape)))
            start += tensor.numel()
