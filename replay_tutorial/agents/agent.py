"""The two sides of an agent, and what DQN and DPG have in common.

The learner uses `Agent`: networks, optimizers and the update. Actors and the evaluator use `Policy`: a copy
of the networks that selects actions and computes initial priorities. The learner sends its parameters to the
policies as one vector, so actors, learner, checkpoints and evaluation work with both DQN and DPG.

Paper: Horgan et al. 2018, section 3, which uses one architecture for both.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from replay_tutorial.agents.networks import get_parameters, parameter_count, set_parameters
from replay_tutorial.agents.td_error import Update


class Agent(ABC):
    """The learner's side of an agent: networks, target networks, optimizers and the update.

    Args:
        networks: The online networks, on their device; the target networks are initialised as a copy of them.
        optimizers: Name in the learning state → optimizer of the online networks.
        target_interval: Number of updates between copies of the online to the target networks.
        device: Device of the networks.

    Attributes:
        updates: Number of updates so far.
    """

    def __init__(
        self, networks: nn.Module, optimizers: Mapping[str, Optimizer], target_interval: int, device: str
    ) -> None:
        self.online: Any = networks
        self.target: Any = deepcopy(networks).requires_grad_(False)
        self.optimizers = optimizers
        self.target_interval = target_interval
        self.device = device
        self.updates = 0

    @abstractmethod
    def update(self, batch: Mapping[str, Any], weights: NDArray[np.float32]) -> Update:
        """Take one learning step.

        Args:
            batch: The fields of a sampled batch, as arrays or tensors.
            weights: Importance-sampling weights, float32[B].
        """

    def count_update(self) -> None:
        """Count an update, and copy the online networks to the target networks if that is due."""
        self.updates += 1
        if self.updates % self.target_interval == 0:
            self.target.load_state_dict(self.online.state_dict())

    def parameters(self) -> NDArray[np.float32]:
        """Return a copy of all parameters that a policy needs: float32[policy.parameter_count]."""
        return get_parameters(self.online)

    def state_dict(self) -> dict[str, Any]:
        """Return the learning state without copying it: networks, targets, optimizers, update count."""
        return {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            **{name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the learning state that `state_dict` returned."""
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        for name, optimizer in self.optimizers.items():
            # A copy, because an optimizer keeps references to the tensors it loads and modifies them.
            optimizer.load_state_dict(deepcopy(state[name]))
        self.updates = int(state["updates"])


class Policy(ABC):
    """The side of an agent that actors and the evaluator use; always on the CPU.

    Args:
        networks: Networks like the agent's online networks.

    Attributes:
        parameter_count: Length of the parameter vector.
    """

    def __init__(self, networks: nn.Module) -> None:
        self.networks: Any = networks
        self.parameter_count = parameter_count(networks)

    def set_parameters(self, vector: NDArray[np.float32]) -> None:
        """Copy a vector returned by `Agent.parameters` into the networks."""
        set_parameters(self.networks, vector)

    @abstractmethod
    def act(
        self, observations: NDArray[Any], exploration: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[Any]:
        """Return an exploratory action for each observation.

        Args:
            observations: [B, ...].
            exploration: ε (DQN) or σ (DPG) of each observation's environment, float64[B].
            generator: Source of the exploration noise.
        """

    @abstractmethod
    def act_greedily(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the greedy action for each observation [B, ...]."""

    @abstractmethod
    def priorities(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the initial priorities of n-step transitions: |TD error|, float32[B]."""
