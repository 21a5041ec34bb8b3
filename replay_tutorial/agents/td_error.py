"""The TD error and the loss, shared by DQN and DPG.

Both agents learn Q(s, a), the expected return after action a in state s. Its target is the rewards of the
next n steps plus the discounted value of the state that follows. The TD error δ is the target minus the
estimate. The learner minimises it, and prioritized replay samples transitions with large errors more often.
The agents differ only in how they estimate the value of the next state.

Left out: value rescaling, distributional errors.

Papers: Schaul et al. 2016, section 3 (priorities, importance weights); Mnih et al. 2015 (error clipping).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional


class Transitions(NamedTuple):
    """A batch of n-step transitions as tensors; B is the batch size."""

    obs: Tensor  # [B, ...]                       s_t, of the environment's dtype
    act: Tensor  # int64[B] or float32[B, size]   a_t
    rew: Tensor  # float32[B]                     Σ_{i<k} γ^i r_{t+i+1}, of the window's k ≤ n steps
    next_obs: Tensor  # [B, ...]                  s_{t+k}
    discount: Tensor  # float32[B]                γ^k, and 0 where the episode terminated

    @classmethod
    def from_batch(cls, batch: Mapping[str, Any], device: str = "cpu") -> Self:
        """Convert the five fields of a batch to tensors, copying only those on another device."""
        return cls(**{name: torch.as_tensor(batch[name], device=device) for name in cls._fields})


class Update(NamedTuple):
    """The result of one update of an agent."""

    priorities: NDArray[np.float32]  # float32[B], |δ| before the update (Horgan et al. 2018, algorithm 2)
    metrics: dict[str, float]  # to plot: "td_loss", "q_values", and "policy_loss" with DPG


def weighted_loss(errors: Tensor, weights: Tensor, huber_delta: float) -> Tensor:
    """Return the mean of weight · huber(δ), a scalar.

    Prioritized replay samples transitions with large errors more often than they occur; the importance
    weights correct this bias (Schaul et al. 2016, section 3.4). The Huber loss is δ²/2 up to |δ| =
    huber_delta and linear beyond, so that a single extreme target cannot dominate an update.
    """
    zeros = torch.zeros_like(errors)
    losses = functional.huber_loss(errors, zeros, reduction="none", delta=huber_delta)  # float32[B]
    # The weights multiply the loss, because scaling δ would shift the point where the loss turns linear.
    return (weights * losses).mean()


def priorities_of(errors: Tensor) -> NDArray[np.float32]:
    """Return |δ|: float32[B]. The exponent α and the constant ε are applied by the replay buffer."""
    return errors.detach().abs().cpu().numpy()
