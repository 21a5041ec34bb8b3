"""The TD error: what DQN and DPG have in common.

Both learn a Q(s, a) that should equal the rewards of the next n steps plus the discounted worth of the state that
follows. The difference is the TD error: the learner makes it smaller, and replay gives rows with a great one more
attention. So both read the same rows, weigh the same loss, and hand back the same kind of priorities; only the question
what the following state is worth is answered by each in its own way.

Left out: value rescaling, distributional errors.

Papers: Schaul et al. 2016, section 3 (priorities, importance weights); Mnih et al. 2015 (the clipped error).
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Rows = Mapping[str, Any]  # field → NumPy array or tensor [B, ...]: n-step rows as the replay gives them


class Batch(NamedTuple):
    """Rows as tensors; `B` is the batch size."""

    obs: Tensor  # [B, ...]                       s_t, of the environment's dtype
    act: Tensor  # int64[B] or float32[B, size]   a_t
    rew: Tensor  # float32[B]                     Σ_{i<k} γ^i r_{t+i+1}, the k ≤ n rewards that were there
    next_obs: Tensor  # [B, ...]                  s_{t+k}
    discount: Tensor  # float32[B]                γ^k, and 0 where the episode terminated

    @classmethod
    def from_rows(cls, rows: Rows, device: str = "cpu") -> Self:
        """Take the five fields out of sampled rows, without a copy where they are on the device already."""
        return cls(**{name: torch.as_tensor(rows[name], device=device) for name in cls._fields})


class Update(NamedTuple):
    """What one update of an agent came to."""

    priorities: NDArray[np.float32]  # float32[B], |δ| from before the step (Horgan et al. 2018, algorithm 2)
    metrics: dict[str, float]  # for the curves: "td_loss", "q_values", and others that only one agent has


def weighted_loss(errors: Tensor, weights: Tensor, huber_delta: float) -> Tensor:
    """Return the mean of weight · huber(δ), one number.

    Replay draws surprising rows too often; the importance weight takes that back (Schaul et al. 2016, section 3.4).
    Huber's loss is δ²/2 up to |δ| = huber_delta and straight beyond, so that one wild target can't throw the network.
    """
    zeros = torch.zeros_like(errors)
    losses = functional.huber_loss(errors, zeros, reduction="none", delta=huber_delta)  # float32[B]
    return (weights * losses).mean()


def priorities_of(errors: Tensor) -> NDArray[np.float32]:
    """Return |δ|: float32[B]. The exponent α and the small constant ε belong to the replay, not here."""
    return errors.detach().abs().cpu().numpy()
