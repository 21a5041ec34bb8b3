"""DPG: the agent for continuous actions.

The maximum of Q(s, a) over continuous actions cannot be found by evaluating all of them. DPG therefore trains
a second network, the policy π, to output the best action. The critic's gradient ∂Q/∂a points towards better
actions, and the policy is updated in that direction. The critic is trained as in DQN, with π's action instead
of the maximizing action.

Left out: twin critics and noise on the target action (TD3), and distributional critics (D4PG).

Papers: Silver et al. 2014 (deterministic policy gradient), Lillicrap et al. 2016 (target networks for both),
Horgan et al. 2018, section 3.2 and appendix D (n-step targets and prioritized replay: Ape-X DPG).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from replay_tutorial.agents.agent import Agent, Policy
from replay_tutorial.agents.td_error import Transitions, Update, priorities_of, weighted_loss


class ActorCritic(nn.Module):
    """π(s), in [-1, 1], and Q(s, a) in one module, so that their parameters form one vector."""

    def __init__(self, policy: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic


def targets(target: ActorCritic, transitions: Transitions) -> Tensor:
    """Return the targets of Q(s_t, a_t): float32[B], without gradient.

    `discount` is already 0 after `terminated` and γ^k after `truncated`.
    """
    with torch.no_grad():
        next_action = target.policy(transitions.next_obs)  # float32[B, action_size]
        # y = R + γ^k q(s', π(s'; φ⁻); ψ⁻)   (Horgan et al. 2018, section 3.2)
        return transitions.reward + transitions.discount * target.critic(transitions.next_obs, next_action)


def policy_gradient(networks: ActorCritic, observations: Tensor, clip: float) -> Tensor:
    """Add the gradient of the mean of -Q(s, π(s)) to the policy's gradients; leave the critic's unchanged.

    ∂Q/∂a is clipped to ±`clip` before it is backpropagated through the policy (Horgan et al. 2018, appendix
    D). A locally steep critic then cannot cause a large policy update.

    Returns:
        The values Q(s, π(s)), float32[B], without gradient.
    """
    actions: Tensor = networks.policy(observations)
    inputs = actions.detach().requires_grad_()
    values: Tensor = networks.critic(observations, inputs)
    (action_gradient,) = torch.autograd.grad(values.sum(), inputs)  # ∂Q/∂a: float32[B, action_size]
    actions.backward(-action_gradient.clamp(-clip, clip) / len(actions))
    return values.detach()


class DPGPolicy(Policy):
    """Policy for actors and the evaluator: a policy network, and a critic for initial priorities."""

    def act(
        self, observations: NDArray[Any], exploration: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Return the policy's actions plus Gaussian noise with standard deviation σ, clipped to [-1, 1]."""
        actions = self.act_greedily(observations)
        noise = generator.standard_normal(actions.shape) * exploration[:, None]
        return np.clip(actions + noise, -1.0, 1.0).astype(np.float32)

    def act_greedily(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return self.networks.policy(torch.from_numpy(observations)).numpy()  # float32[B, action_size]

    def priorities(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return |TD error| of n-step transitions, float32[B], without separate target networks."""
        transitions = Transitions.from_batch(batch)
        with torch.no_grad():
            predicted = self.networks.critic(transitions.obs, transitions.action)
            return priorities_of(targets(self.networks, transitions) - predicted)


class DPGAgent(Agent):
    """The learner's side: policy and critic, their target networks and their optimizers.

    Args:
        networks: Policy and critic, on their device; the target networks are initialised as copies of them.
        critic_learning_rate: Adam's learning rate for the critic.
        policy_learning_rate: Adam's learning rate for the policy.
        huber_delta: |TD error| up to which the Huber loss is quadratic; it is linear beyond.
        gradient_norm: Maximum norm of the critic's gradient; larger gradients are clipped.
        action_gradient: Limit to which ∂Q/∂a is clipped, in both directions.
        target_interval: Number of updates between copies to the target networks.
        device: Device of the networks.
    """

    def __init__(
        self,
        networks: ActorCritic,
        *,
        critic_learning_rate: float,
        policy_learning_rate: float,
        huber_delta: float,
        gradient_norm: float,
        action_gradient: float,
        target_interval: int,
        device: str = "cpu",
    ) -> None:
        critic, policy = networks.critic.parameters(), networks.policy.parameters()
        self.critic_optimizer = torch.optim.Adam(critic, lr=critic_learning_rate, fused=True)
        self.policy_optimizer = torch.optim.Adam(policy, lr=policy_learning_rate, fused=True)
        optimizers = {"critic_optimizer": self.critic_optimizer, "policy_optimizer": self.policy_optimizer}
        super().__init__(networks, optimizers, target_interval, device)
        self.huber_delta = huber_delta
        self.gradient_norm = gradient_norm
        self.action_gradient = action_gradient

    def update(self, batch: Mapping[str, Any], weights: NDArray[np.float32]) -> Update:
        """Take one gradient step on the critic, then one on the policy.

        Only the critic's loss is weighted by importance: it estimates an expectation, which the sampling
        biases. The policy follows ∂Q/∂a separately in each state, whatever the distribution of states.
        """
        transitions = Transitions.from_batch(batch, self.device)
        predicted: Tensor = self.online.critic(transitions.obs, transitions.action)  # float32[B]
        errors = targets(self.target, transitions) - predicted
        loss = weighted_loss(errors, torch.as_tensor(weights, device=self.device), self.huber_delta)

        self.critic_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.critic.parameters(), self.gradient_norm)
        self.critic_optimizer.step()

        self.policy_optimizer.zero_grad()
        values = policy_gradient(self.online, transitions.obs, self.action_gradient)
        self.policy_optimizer.step()

        self.count_update()
        metrics = {
            "td_loss": loss.item(),
            "q_values": predicted.detach().mean().item(),
            "policy_loss": -values.mean().item(),
        }
        return Update(priorities_of(errors), metrics)
