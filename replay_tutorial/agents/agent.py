"""The interface between an agent and the rest of a run.

An agent has two sides. The learner uses `Agent`: networks, optimizers and the update. Actors and the
evaluator use `Policy`: a copy of the networks that selects actions and computes initial priorities. The
learner sends its parameters to the policies as one vector, so actors, learner, checkpoints and evaluation
work with both DQN and DPG.

Paper: Horgan et al. 2018, section 3, which uses one architecture for both.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.td_error import Update


class Agent(Protocol):
    """The learner's side of an agent: networks, optimizers and the update."""

    updates: int  # number of updates so far

    def update(self, batch: Mapping[str, Any], weights: NDArray[np.float32]) -> Update:
        """Take one learning step.

        Args:
            batch: The fields of a sampled batch, as arrays or tensors.
            weights: Importance-sampling weights, float32[B].
        """
        ...

    def parameters(self) -> NDArray[np.float32]:
        """Return a copy of all parameters that a policy needs: float32[policy.parameter_count]."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the learning state without copying it: networks, targets, optimizers, update count."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the learning state that `state_dict` returned."""
        ...


class Policy(Protocol):
    """The side of an agent that actors and the evaluator use; always on the CPU."""

    parameter_count: int  # length of the parameter vector

    def set_parameters(self, vector: NDArray[np.float32]) -> None:
        """Copy a vector returned by `Agent.parameters` into the networks."""
        ...

    def act(
        self, observations: NDArray[Any], exploration: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[Any]:
        """Return an exploratory action for each observation.

        Args:
            observations: [B, ...].
            exploration: ε (DQN) or σ (DPG) of each observation's environment, float64[B].
            generator: Source of the exploration noise.
        """
        ...

    def act_greedily(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the greedy action for each observation [B, ...]."""
        ...

    def priorities(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the initial priorities of n-step transitions: |TD error|, float32[B]."""
        ...
