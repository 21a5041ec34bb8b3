"""Double DQN: what the actors and the learner mean by an error.

Q(s, a) should equal the rewards of the next n steps plus the discounted worth of the state that follows. The difference
is the TD error: the learner makes it smaller, and replay gives rows with a great one more attention. One function,
`td_errors`, computes it for both sides, so that an actor's first priority and the learner's later ones are the same
quantity.

Left out: distributional and noisy variants, value rescaling, reward clipping.

Papers: Mnih et al. 2015 (target network), van Hasselt et al. 2016 (double Q-learning), Schaul et al. 2016 (importance
weights), Horgan et al. 2018 (n-step targets with prioritized replay: Ape-X).
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

from copy import deepcopy
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from replay_tutorial.apex.networks import DuelingNetwork


class Batch(NamedTuple):
    """Rows as the n-step window made them; `B` is the batch size."""

    obs: Tensor  # float32[B, observation_size]   s_t
    act: Tensor  # int64[B]                       a_t
    rew: Tensor  # float32[B]                     Σ_{i<k} γ^i r_{t+i+1}, the k ≤ n rewards that were there
    next_obs: Tensor  # float32[B, observation_size]   s_{t+k}
    discount: Tensor  # float32[B]                γ^k, and 0 where the episode terminated

    @classmethod
    def from_rows(cls, rows: dict[str, NDArray[np.generic]]) -> Self:
        """Take the five fields out of sampled rows, without a copy."""
        fields = {name: torch.from_numpy(rows[name]) for name in cls._fields}
        return cls(**fields)


def targets(online: nn.Module, target: nn.Module, batch: Batch) -> Tensor:
    """Return what Q(s_t, a_t) should be: float32[B], without gradient.

    The online network chooses the next action and the target network values it: a network that does both prefers the
    actions that it overestimates by accident. `discount` already knows how the window ended: it is 0 after `terminated`
    and γ^k after `truncated`, so there is nothing to decide here.
    """
    with torch.no_grad():
        next_act: Tensor = online(batch.next_obs).argmax(dim=1, keepdim=True)  # int64[B, 1]
        next_value: Tensor = target(batch.next_obs).gather(1, next_act).squeeze(1)  # float32[B]
        # y = R + γ^k q(s', argmax_a q(s', a; θ); θ⁻)   (Horgan et al. 2018, section 3.1)
        return batch.rew + batch.discount * next_value


def td_errors(online: nn.Module, target: nn.Module, batch: Batch) -> Tensor:
    """Return δ = target - Q(s_t, a_t): float32[B], with the gradient of the second term.

    The learner passes its two networks. An actor, which has only a copy of the online one, passes that twice.
    """
    q_values: Tensor = online(batch.obs).gather(1, batch.act.unsqueeze(1)).squeeze(1)  # float32[B]
    return targets(online, target, batch) - q_values


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
    return errors.detach().abs().numpy()


class DoubleDQN:
    """The learner's two networks and its optimizer.

    Args:
        network: The online network; the target network starts as a copy of it.
        learning_rate: Adam's step size.
        huber_delta: Where Huber's loss turns from a square into a straight line.
        gradient_norm: Gradients longer than this are shortened to it.
        target_interval: Updates between copies of the online weights into the target network.
    """

    def __init__(
        self,
        network: DuelingNetwork,
        *,
        learning_rate: float,
        huber_delta: float,
        gradient_norm: float,
        target_interval: int,
    ) -> None:
        self.online = network
        self.target = deepcopy(network).requires_grad_(False)
        # fused: one call instead of several for each tensor, a fifth of the whole update at this size.
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, eps=1e-5, fused=True)
        self.huber_delta = huber_delta
        self.gradient_norm = gradient_norm
        self.target_interval = target_interval
        self.updates = 0

    def update(self, batch: Batch, weights: Tensor) -> tuple[NDArray[np.float32], float]:
        """Take one step of gradient descent.

        Args:
            batch: Sampled rows.
            weights: Their importance weights, float32[B].

        Returns:
            The rows' new priorities, float32[B], from before the step (Horgan et al. 2018, algorithm 2), and the loss.
        """
        errors = td_errors(self.online, self.target, batch)
        loss = weighted_loss(errors, weights, self.huber_delta)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), self.gradient_norm)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.target_interval == 0:
            self.target.load_state_dict(self.online.state_dict())
        return priorities_of(errors), loss.item()

    def mean_q(self, batch: Batch) -> float:
        """Return the mean of Q(s, a) over a batch, for the curves: it should settle near the returns."""
        with torch.inference_mode():
            return self.online(batch.obs).gather(1, batch.act.unsqueeze(1)).mean().item()
