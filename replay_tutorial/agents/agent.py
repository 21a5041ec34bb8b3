"""What the rest of a run knows of an agent, whichever it is.

An agent has two sides. The learner's side, `Agent`, has the networks, their optimizers and the update. The
actors' and the evaluator's side, `Policy`, has a copy of the networks to choose actions and compute first
priorities with. One vector of parameters passes between them, so that actors, learner, checkpoints and
evaluation are written once for DQN and DPG.

Paper: Horgan et al. 2018, section 3: the architecture is the same for both.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.td_error import Update


class Agent(Protocol):
    """The learner's side: networks, optimizers, and how they change."""

    updates: int  # made so far

    def update(self, batch: Mapping[str, Any], weights: NDArray[np.float32]) -> Update:
        """Learn from a sampled batch of arrays or tensors, and its importance weights float32[B]."""
        ...

    def parameters(self) -> NDArray[np.float32]:
        """Return a copy of all parameters that a policy needs: float32[parameter_count of the policy]."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that learning continues from: networks, targets, optimizers, updates; not copies."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        ...


class Policy(Protocol):
    """The actors' and the evaluator's side, always on the CPU: a copy of the networks."""

    parameter_count: int  # the length of the vector of parameters

    def set_parameters(self, vector: NDArray[np.float32]) -> None:
        """Take over what `Agent.parameters` returned."""
        ...

    def act(
        self, observations: NDArray[Any], exploration: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[Any]:
        """Return an exploratory action for each observation [B, ...]; `exploration`: float64[B], ε or σ."""
        ...

    def act_greedily(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the best known action for each observation [B, ...]."""
        ...

    def priorities(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the first priorities of n-step transitions: |TD error|, float32[B]."""
        ...
