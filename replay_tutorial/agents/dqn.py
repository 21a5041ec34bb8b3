"""Double DQN: the agent for environments with a few discrete actions.

A network estimates Q(s, a), the expected return after action a in state s; the greedy policy selects the
action with the highest estimate. Each update moves the estimates towards their targets: the rewards of the
next n steps plus the discounted value of the state that follows. A target network, which is updated only at
intervals, computes that value so that the targets stay fixed in between. Actors and learner compute TD errors
with the same function, `td_errors`, so that initial and updated priorities are comparable.

Left out: distributional and noisy variants, value rescaling.

Papers: Mnih et al. 2015 (target network), van Hasselt et al. 2016 (double Q-learning), Schaul et al. 2016
(importance weights), Horgan et al. 2018 (n-step targets with prioritized replay: Ape-X).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from replay_tutorial.agents.agent import Agent, Policy
from replay_tutorial.agents.td_error import Transitions, Update, priorities_of, weighted_loss


def targets(online: nn.Module, target: nn.Module, transitions: Transitions) -> Tensor:
    """Return the targets of Q(s_t, a_t): float32[B], without gradient.

    The online network selects the next action and the target network evaluates it. A network that did both
    would favour the actions whose value it overestimates. `discount` is already 0 after `terminated` and γ^k
    after `truncated`, so the two cases need no distinction here.
    """
    with torch.no_grad():
        selector: Tensor = online(transitions.next_obs)  # float32[B, actions]
        values: Tensor = selector if target is online else target(transitions.next_obs)
        next_action = selector.argmax(dim=1, keepdim=True)  # int64[B, 1]
        next_value = values.gather(1, next_action).squeeze(1)  # float32[B]
        # y = R + γ^k q(s', argmax_a q(s', a; θ); θ⁻)   (Horgan et al. 2018, section 3.1)
        return transitions.reward + transitions.discount * next_value


def td_errors(online: nn.Module, target: nn.Module, transitions: Transitions) -> tuple[Tensor, Tensor]:
    """Return δ = target - Q(s_t, a_t) and Q(s_t, a_t): float32[B] each; gradients flow through Q(s_t, a_t).

    The learner passes its two networks. An actor has a single network and passes it as both arguments.
    """
    q_values: Tensor = online(transitions.obs)  # float32[B, actions]
    predicted = q_values.gather(1, transitions.action.unsqueeze(1)).squeeze(1)  # float32[B]
    return targets(online, target, transitions) - predicted, predicted


def epsilon_schedule(count: int, base: float = 0.4, exponent: float = 7.0) -> NDArray[np.float64]:
    """Return ε for each of `count` environments, in descending order: float64[count].

    A single environment gets `base`.

    Example:
        >>> epsilon_schedule(3).round(4).tolist()
        [0.4, 0.0162, 0.0007]
    """
    fractions = np.arange(count) / max(1, count - 1)  # i / (N - 1), and 0 for N = 1
    # ε_i = ε^(1 + i/(N-1) · α)   with ε = 0.4, α = 7   (Horgan et al. 2018, section 4.1)
    return base ** (1.0 + fractions * exponent)


class DQNPolicy(Policy):
    """Policy for actors and the evaluator: a copy of the agent's online network."""

    def act(
        self, observations: NDArray[Any], exploration: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return one action per observation, random with probability `exploration` (ε): int64[B]."""
        q_values: NDArray[np.float32] = self.q_values(observations).numpy()
        explores = generator.random(len(q_values)) < exploration
        random_actions = generator.integers(q_values.shape[1], size=len(q_values))
        return np.where(explores, random_actions, q_values.argmax(axis=1))

    def act_greedily(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        return self.q_values(observations).argmax(dim=1).numpy()  # int64[B]

    def q_values(self, observations: NDArray[Any]) -> Tensor:
        """Return Q(s, a) for all actions: float32[B, actions], without gradient."""
        with torch.inference_mode():
            return self.networks(torch.from_numpy(observations))

    def priorities(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return |TD error| of n-step transitions, float32[B], without a separate target network.

        (Horgan et al. 2018, algorithm 1, line 10: an actor has only one network.)
        """
        with torch.no_grad():
            errors, _ = td_errors(self.networks, self.networks, Transitions.from_batch(batch))
            return priorities_of(errors)


class DQNAgent(Agent):
    """The learner's side: online network, target network and optimizer.

    Args:
        network: Online network, on its device; the target network is initialised as a copy of it.
        optimizer: Optimizer of the online network's parameters.
        huber_delta: |TD error| up to which the Huber loss is quadratic; it is linear beyond.
        gradient_norm: Maximum norm of the gradient; larger gradients are clipped.
        target_interval: Number of updates between copies of the online network to the target network.
        device: Device of the network.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        huber_delta: float,
        gradient_norm: float,
        target_interval: int,
        device: str = "cpu",
    ) -> None:
        super().__init__(network, {"optimizer": optimizer}, target_interval, device)
        self.optimizer = optimizer
        self.huber_delta = huber_delta
        self.gradient_norm = gradient_norm

    def update(self, batch: Mapping[str, Any], weights: NDArray[np.float32]) -> Update:
        """Take one gradient step."""
        errors, predicted = td_errors(self.online, self.target, Transitions.from_batch(batch, self.device))
        loss = weighted_loss(errors, torch.as_tensor(weights, device=self.device), self.huber_delta)

        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), self.gradient_norm)
        self.optimizer.step()

        self.count_update()
        # The mean of Q should approach the observed returns.
        metrics = {"td_loss": loss.item(), "q_values": predicted.detach().mean().item()}
        return Update(priorities_of(errors), metrics)
