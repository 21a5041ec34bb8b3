"""DPG: the agent for actions that are numbers, of which there are too many to compare.

Nobody can take the maximum of Q(s, a) over all actions if an action is a push of any strength. So a second network, the
policy π, learns to name the best one: the critic Q says in which direction a better action lies, and the policy is moved
that way. The critic itself learns as DQN does, with π's action in the place of the maximum.

Left out: two critics, noise on the target's action (TD3), distributional critics (D4PG).

Papers: Silver et al. 2014 (deterministic policy gradient), Lillicrap et al. 2016 (target networks for both),
Horgan et al. 2018, section 3.2 and appendix D (n-step targets and prioritized replay: Ape-X DPG).
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from replay_tutorial.agents.networks import get_parameters, parameter_count, set_parameters
from replay_tutorial.agents.td_error import Batch, Rows, Update, priorities_of, weighted_loss


class ActorCritic(nn.Module):
    """The two networks, so that their weights travel together.

    Args:
        policy: π(s), from -1 to 1.
        critic: Q(s, a).
    """

    def __init__(self, policy: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic


def targets(target: ActorCritic, batch: Batch) -> Tensor:
    """Return what Q(s_t, a_t) should be: float32[B], without gradient.

    `discount` already knows how the window ended: 0 after `terminated`, γ^k after `truncated`.
    """
    with torch.no_grad():
        # y = R + γ^k q(s', π(s'; φ⁻); ψ⁻)   (Horgan et al. 2018, section 3.2)
        return batch.rew + batch.discount * target.critic(batch.next_obs, target.policy(batch.next_obs))


def policy_gradient(networks: ActorCritic, observations: Tensor, clip: float) -> Tensor:
    """Add to the policy's gradients those that lower -Q(s, π(s)), averaged over the batch.

    The chain is cut at the action: how Q changes with it, ∂Q/∂a, is clipped to ±`clip` before it goes on into the policy,
    so that a critic that is steep somewhere can't throw the policy (Horgan et al. 2018, appendix D). The critic's own
    gradients stay as they are.

    Returns:
        Q(s, π(s)): float32[B], without gradient.
    """
    actions: Tensor = networks.policy(observations)
    chosen = actions.detach().requires_grad_()
    values: Tensor = networks.critic(observations, chosen)
    (direction,) = torch.autograd.grad(values.sum(), chosen)  # ∂Q/∂a: float32[B, action_size]
    actions.backward(-direction.clamp(-clip, clip) / len(actions))
    return values.detach()


class DPGPolicy:
    """What an actor or an evaluator has of the agent: a policy that acts, and a critic that judges rows.

    Args:
        networks: Of the shapes of the agent's; their weights come by `set_parameters`.
    """

    def __init__(self, networks: ActorCritic) -> None:
        self.networks = networks
        self.parameter_count = parameter_count(networks)

    def set_parameters(self, vector: NDArray[np.float32]) -> None:
        """Take over what `DPGAgent.weights` returned."""
        set_parameters(self.networks, vector)

    def act(
        self,
        observations: NDArray[Any],
        exploration: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> NDArray[np.float32]:
        """Return the policy's actions with Gaussian noise of standard deviation `exploration`, cut to [-1, 1]."""
        actions = self.act_greedily(observations)
        noise = generator.standard_normal(actions.shape) * exploration[:, None]
        return np.clip(actions + noise, -1.0, 1.0).astype(np.float32)

    def act_greedily(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Return the policy's own actions: float32[batch, action_size]."""
        with torch.inference_mode():
            return self.networks.policy(torch.from_numpy(observations)).numpy()

    def priorities(self, rows: Rows) -> NDArray[np.float32]:
        """Return |TD error| of n-step rows, float32[rows], by networks that stand for their targets, too."""
        batch = Batch.from_rows(rows)
        with torch.no_grad():
            return priorities_of(targets(self.networks, batch) - self.networks.critic(batch.obs, batch.act))


class DPGAgent:
    """The learner's policy and critic, their targets and their optimizers.

    Args:
        networks: Policy and critic, on their device; the targets start as copies of them.
        critic_learning_rate: Adam's step size for the critic.
        policy_learning_rate: Adam's step size for the policy.
        huber_delta: Where Huber's loss turns from a square into a straight line.
        gradient_norm: Gradients of the critic longer than this are shortened to it.
        action_gradient: How much Q may seem to change with the action.
        target_interval: Updates between copies into the target networks.
        device: Where the networks are.
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
        self.online = networks
        self.target = deepcopy(networks).requires_grad_(False)
        self.critic_optimizer = torch.optim.Adam(
            networks.critic.parameters(), lr=critic_learning_rate, fused=True
        )
        self.policy_optimizer = torch.optim.Adam(
            networks.policy.parameters(), lr=policy_learning_rate, fused=True
        )
        self.huber_delta = huber_delta
        self.gradient_norm = gradient_norm
        self.action_gradient = action_gradient
        self.target_interval = target_interval
        self.device = device
        self.updates = 0

    def update(self, rows: Rows, weights: NDArray[np.float32]) -> Update:
        """Take one step with the critic, then one with the policy.

        The importance weights are the critic's: they correct a mean that it has to get right. The policy only asks in
        which direction a better action lies, for whichever states it is shown.

        Args:
            rows: Sampled rows, `B` of them.
            weights: Their importance weights, float32[B].
        """
        batch = Batch.from_rows(rows, self.device)
        predicted: Tensor = self.online.critic(batch.obs, batch.act)  # float32[B]
        errors = targets(self.target, batch) - predicted
        loss = weighted_loss(errors, torch.as_tensor(weights, device=self.device), self.huber_delta)
        self.critic_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.critic.parameters(), self.gradient_norm)
        self.critic_optimizer.step()

        self.policy_optimizer.zero_grad()
        values = policy_gradient(self.online, batch.obs, self.action_gradient)
        self.policy_optimizer.step()

        self.updates += 1
        if self.updates % self.target_interval == 0:
            self.target.load_state_dict(self.online.state_dict())
        metrics = {
            "td_loss": loss.item(),
            "q_values": predicted.detach().mean().item(),
            "policy_loss": -values.mean().item(),
        }
        return Update(priorities_of(errors), metrics)

    def parameters(self) -> NDArray[np.float32]:
        """Return a copy of the policy's and the critic's weights: all that a `DPGPolicy` needs."""
        return get_parameters(self.online)

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides how learning goes on; the arrays are the agent's own, not copies."""
        return {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "policy_optimizer": self.policy_optimizer.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        # Copies: an optimizer keeps the very arrays that it is given, and changes them.
        self.critic_optimizer.load_state_dict(deepcopy(state["critic_optimizer"]))
        self.policy_optimizer.load_state_dict(deepcopy(state["policy_optimizer"]))
        self.updates = int(state["updates"])
