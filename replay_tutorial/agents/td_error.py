"""The TD error and the loss, shared by DQN and DPG.

Both agents learn Q(s, a), the expected return after action a in state s. Its target is the rewards of the
next n steps plus the discounted value of the state that follows. The TD error δ is the target minus the
estimate. The learner minimises it, and prioritized replay samples transitions with large errors more often.
The agents differ only in how they estimate the value of the next state.

`rescale` and `unscale` are for agents such as R2D2 that don't clip rewards; DQN and DPG don't use them.

Left out: distributional errors.

Papers: Schaul et al. 2016, section 3 (priorities, importance weights); Mnih et al. 2015 (error clipping);
Kapturowski et al. 2019, section 2.3 (rescaling).
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
    action: Tensor  # int64[B] or float32[B, size]   a_t
    reward: Tensor  # float32[B]                     Σ_{i<k} γ^i r_{t+i+1}, of the window's k ≤ n steps
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
    return errors.detach().abs().float().cpu().numpy()


def rescale(values: Tensor, eps: float = 1e-3) -> Tensor:
    """Compress values: h(x) = sign(x) · (√(|x| + 1) - 1) + eps · x, elementwise.

    A network that learns h(Q) needs no reward clipping. Its n-step target is
    `rescale(n_step_return + discount * unscale(q))`, with the values q = h(Q) of the target network.

    Args:
        values: x, of any shape and float dtype.
        eps: Slope for large values, so that the inverse is Lipschitz continuous; above 0.
    """
    return values.sign() * ((values.abs() + 1.0).sqrt() - 1.0) + eps * values


def unscale(values: Tensor, eps: float = 1e-3) -> Tensor:
    """Return the inverse of `rescale`, elementwise: h⁻¹(y) = sign(y) · (z² - 1), where

        z = (√(1 + 4 eps c) - 1) / (2 eps) = 2 c / (√(1 + 4 eps c) + 1)    with c = |y| + 1 + eps

    The second form doesn't subtract nearly equal numbers, which would cost float32 half of its digits.

    Args:
        values: y, of any shape and float dtype.
        eps: As for `rescale`.
    """
    shifted = values.abs() + 1.0 + eps
    z = 2.0 * shifted / ((1.0 + 4.0 * eps * shifted).sqrt() + 1.0)
    return values.sign() * (z - 1.0) * (z + 1.0)
