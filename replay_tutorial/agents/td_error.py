"""The TD error: what DQN and DPG have in common.

Both learn Q(s, a), the return to expect after action a in state s. Its target is the rewards of the next n
steps plus the discounted value of the state that follows; the TD error δ is the target minus the estimate.
The learner reduces it, and replay samples transitions with a large one more often. The agents differ
only in how they estimate the value of the next state.

Left out: value rescaling, distributional errors.

Papers: Schaul et al. 2016, section 3 (priorities, importance weights); Mnih et al. 2015 (the clipped error).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional


class Transitions(NamedTuple):
    """A batch of n-step transitions as tensors; `B` is the batch size."""

    obs: Tensor  # [B, ...]                       s_t, of the environment's dtype
    act: Tensor  # int64[B] or float32[B, size]   a_t
    rew: Tensor  # float32[B]                     Σ_{i<k} γ^i r_{t+i+1}, of the window's k ≤ n steps
    next_obs: Tensor  # [B, ...]                  s_{t+k}
    discount: Tensor  # float32[B]                γ^k, and 0 where the episode terminated

    @classmethod
    def from_batch(cls, batch: Mapping[str, Any], device: str = "cpu") -> Self:
        """Take the five fields of a batch of arrays or tensors; copy only what isn't on the device."""
        return cls(**{name: torch.as_tensor(batch[name], device=device) for name in cls._fields})


class Update(NamedTuple):
    """The result of one update of an agent."""

    priorities: NDArray[np.float32]  # float32[B], |δ| from before the step (Horgan et al. 2018, algorithm 2)
    metrics: dict[str, float]  # for the curves: "td_loss", "q_values", and "policy_loss" with DPG


def weighted_loss(errors: Tensor, weights: Tensor, huber_delta: float) -> Tensor:
    """Return the mean of weight · huber(δ), one number.

    Replay samples transitions with large errors more often than they occur; the importance weights correct
    for that (Schaul et al. 2016, section 3.4). Huber's loss is δ²/2 up to |δ| = huber_delta and linear
    beyond, so that a single extreme target can't dominate a step.
    """
    zeros = torch.zeros_like(errors)
    losses = functional.huber_loss(errors, zeros, reduction="none", delta=huber_delta)  # float32[B]
    # The weights multiply the loss, not δ: inside the loss they would move the point where it turns linear.
    return (weights * losses).mean()


def priorities_of(errors: Tensor) -> NDArray[np.float32]:
    """Return |δ|: float32[B]; the exponent α and the small constant ε belong to the replay."""
    return errors.detach().abs().cpu().numpy()
