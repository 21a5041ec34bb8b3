"""Networks: a torso for observations, followed by a dueling Q-network, a policy or a critic.

In many states the choice of action hardly matters, but a plain Q-network must learn the value of such a state
once per action. A dueling network has two heads: one estimates the value of the state, the other the
advantage of each action over the average. Their sum is Q, so everything learned about a state applies to all
its actions. For continuous actions there are two networks: a policy that outputs one action, and a critic
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
Convolutions = tuple[tuple[int, int, int], ...]  # of each layer: channels, side of the kernel, stride

NATURE: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015


class Torso(nn.Module):
    """The first layers of every network, from observations to features.

    Flat observations are converted to float32. Images are scaled from bytes to [0, 1] and pass through
    convolutions; bool images are converted to 0 and 1.

    Args:
        observation_shape: Shape of one observation; for `NATURE`, images must be at least 36 pixels high and
            wide.
        convolutions: Channels, kernel size and stride of each convolution; unused for flat observations.
    """

    def __init__(self, observation_shape: Shape, convolutions: Convolutions = NATURE) -> None:
        super().__init__()
        self.is_image = len(observation_shape) == 3
        layers: list[nn.Module] = []
        if self.is_image:
            channels_in = observation_shape[0]
            for channels, kernel_size, stride in convolutions:
                layers += [nn.Conv2d(channels_in, channels, kernel_size, stride), nn.ReLU()]
                channels_in = channels
            layers.append(nn.Flatten())
        self.layers = nn.Sequential(*layers)
        with torch.no_grad():
            self.feature_count = int(self.layers(torch.zeros(1, *observation_shape)).shape[1])

    def forward(self, observations: Tensor) -> Tensor:
        """Return the features of observations [B, ...]: float32[B, feature_count]."""
        numbers = observations.float()
        return self.layers(numbers.div_(255.0) if observations.dtype == torch.uint8 else numbers)


def hidden_layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return fully connected layers, each followed by a ReLU; `sizes` starts with the input size."""
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise(sizes):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return nn.Sequential(*layers)


class DuelingNetwork(nn.Module):
    """A network with a value head and an advantage head.

    For flat observations the heads share the hidden layers. For images each head has its own hidden layers
    after the convolutions, as in the paper.

    Args:
        observation_shape: See `Torso`.
        action_count: Number of discrete actions.
        hidden_sizes: Width of each hidden layer; at least one.
        convolutions: See `Torso`.

    Example:
        >>> network = DuelingNetwork(observation_shape=(4,), action_count=2, hidden_sizes=(64, 64))
        >>> network(torch.zeros(32, 4)).shape
        torch.Size([32, 2])
    """

    def __init__(
        self,
        observation_shape: Shape,
        action_count: int,
        hidden_sizes: Sequence[int],
        convolutions: Convolutions = NATURE,
    ) -> None:
        super().__init__()
        torso = Torso(observation_shape, convolutions)
        sizes = [torso.feature_count, *hidden_sizes]
        shared, own = (sizes[:1], sizes) if torso.is_image else (sizes, sizes[-1:])
        self.trunk = nn.Sequential(torso, hidden_layers(shared))
        self.value_head = nn.Sequential(hidden_layers(own), nn.Linear(own[-1], 1))
        self.advantage_head = nn.Sequential(hidden_layers(own), nn.Linear(own[-1], action_count))

    def forward(self, observations: Tensor) -> Tensor:
        """Return Q(s, a) for all actions, float32[B, actions]; observations [B, ...] can have any dtype."""
        features = self.trunk(observations)  # float32[B, features]
        value = self.value_head(features)  # float32[B, 1]
        advantage = self.advantage_head(features)  # float32[B, actions]
        # Subtracting the mean makes V and A identifiable: otherwise a constant could move between the heads.
        # Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a')   (Wang et al. 2016, eq. 9)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class PolicyNetwork(nn.Module):
    """π(s): a network that outputs one action, float32[B, action_size] in [-1, 1]; see `DuelingNetwork`."""

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
    """Q(s, a): a network that takes the observation's features and one action; see `PolicyNetwork`."""

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
    """Return the number of parameters of a network."""
    return sum(tensor.numel() for tensor in network.parameters())


def get_parameters(network: nn.Module) -> NDArray[np.float32]:
    """Return a copy of all parameters as one vector: float32[parameter_count]."""
    # A copy, because other processes read the vector while this network continues to learn.
    return np.concatenate([tensor.detach().cpu().numpy().ravel() for tensor in network.parameters()])


def set_parameters(network: nn.Module, vector: NDArray[np.float32]) -> None:
    """Copy a vector from `get_parameters` into a network of the same architecture.

    Raises:
        ValueError: If the length of the vector is not the network's `parameter_count`; nothing is changed.
    """
    if vector.shape != (parameter_count(network),):
        raise ValueError(
            f"vector must have shape ({parameter_count(network)},), not {vector.shape}. Both networks must "
            "have the same hidden sizes and spaces."
        )
    start = 0
    with torch.no_grad():
        for tensor in network.parameters():
            part = vector[start : start + tensor.numel()]
            tensor.copy_(torch.from_numpy(part.reshape(tensor.shape)))
            start += tensor.numel()
