"""Double DQN: the agent for a few actions, one of which is the best.

The worth of a state is that of its best action, and a greedy policy takes just that one. One function, `td_errors`,
computes the TD error for both sides, so that an actor's first priority and the learner's later ones are the same
quantity.

Left out: distributional and noisy variants, value rescaling.

Papers: Mnih et al. 2015 (target network), van Hasselt et al. 2016 (double Q-learning), Schaul et al. 2016 (importance
weights), Horgan et al. 2018 (n-step targets with prioritized replay: Ape-X).
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from replay_tutorial.agents.networks import get_parameters, greedy_actions, parameter_count, set_parameters
from replay_tutorial.agents.td_error import Batch, Rows, Update, priorities_of, weighted_loss


def epsilon_schedule(count: int, base: float = 0.4, exponent: float = 7.0) -> NDArray[np.float64]:
    """Return how often each of `count` environments acts at random: float64[count], from curious to greedy.

    A ladder of one rung has the first one's ε.

    Example:
        >>> epsilon_schedule(3).round(4).tolist()
        [0.4, 0.0162, 0.0007]
    """
    rungs = np.arange(count) / max(1, count - 1)  # i / (N - 1), and 0 for N = 1
    # ε_i = ε^(1 + i/(N-1) · α)   with ε = 0.4, α = 7   (Horgan et al. 2018, section 4.1)
    return base ** (1.0 + rungs * exponent)


def targets(online: nn.Module, target: nn.Module, batch: Batch) -> Tensor:
    """Return what Q(s_t, a_t) should be: float32[B], without gradient.

    The online network chooses the next action and the target network values it: a network that does both prefers the
    actions that it overestimates by accident. `discount` already knows how the window ended: it is 0 after `terminated`
    and γ^k after `truncated`, so there is nothing to decide here.
    """
    with torch.no_grad():
        values: Tensor = online(batch.next_obs)
        next_act = values.argmax(dim=1, keepdim=True)  # int64[B, 1]
        if target is not online:
            values = target(batch.next_obs)
        next_value = values.gather(1, next_act).squeeze(1)  # float32[B]
        # y = R + γ^k q(s', argmax_a q(s', a; θ); θ⁻)   (Horgan et al. 2018, section 3.1)
        return batch.rew + batch.discount * next_value


def td_errors(online: nn.Module, target: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return δ = target - Q(s_t, a_t), and Q(s_t, a_t): float32[B] each, with the gradient of the latter.

    The learner passes its two networks. An actor, which has only a copy of the online one, passes that twice.
    """
    predicted: Tensor = online(batch.obs).gather(1, batch.act.unsqueeze(1)).squeeze(1)  # float32[B]
    return targets(online, target, batch) - predicted, predicted


class DQNPolicy:
    """What an actor or an evaluator has of the agent: a copy of the online network.

    Args:
        network: Of the shape of the agent's; its weights come by `set_parameters`.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.parameter_count = parameter_count(network)

    def set_parameters(self, vector: NDArray[np.float32]) -> None:
        """Take over what `DQNAgent.weights` returned."""
        set_parameters(self.network, vector)

    def act(
        self,
        observations: NDArray[Any],
        exploration: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Return an action for each observation, random in a share `exploration` (ε) of the cases: int64[batch]."""
        with torch.inference_mode():
            values: NDArray[np.float32] = self.network(torch.from_numpy(observations)).numpy()
        curious = generator.random(len(values)) < exploration
        random_actions = generator.integers(values.shape[1], size=len(values))
        return np.where(curious, random_actions, values.argmax(axis=1))

    def act_greedily(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """Return the best action for each observation: int64[batch]."""
        return greedy_actions(self.network, observations)

    def priorities(self, rows: Rows) -> NDArray[np.float32]:
        """Return |TD error| of n-step rows, float32[rows], by a network that stands for the target network, too.

        (Horgan et al. 2018, algorithm 1, line 10: the actor has no other network.)
        """
        with torch.no_grad():
            errors, _ = td_errors(self.network, self.network, Batch.from_rows(rows))
            return priorities_of(errors)


class DQNAgent:
    """The learner's two networks and its optimizer.

    Args:
        network: The online network, on its device; the target network starts as a copy of it.
        optimizer: Of the online network's weights.
        huber_delta: Where Huber's loss turns from a square into a straight line.
        gradient_norm: Gradients longer than this are shortened to it.
        target_interval: Updates between copies of the online weights into the target network.
        device: Where the network is.
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
        self.online = network
        self.target = deepcopy(network).requires_grad_(False)
        self.optimizer = optimizer
        self.huber_delta = huber_delta
        self.gradient_norm = gradient_norm
        self.target_interval = target_interval
        self.device = device
        self.updates = 0

    def update(self, rows: Rows, weights: NDArray[np.float32]) -> Update:
        """Take one step of gradient descent.

        Args:
            rows: Sampled rows, `B` of them.
            weights: Their importance weights, float32[B].
        """
        batch = Batch.from_rows(rows, self.device)
        errors, predicted = td_errors(self.online, self.target, batch)
        loss = weighted_loss(errors, torch.as_tensor(weights, device=self.device), self.huber_delta)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), self.gradient_norm)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.target_interval == 0:
            self.target.load_state_dict(self.online.state_dict())
        # The mean of Q should settle near the returns.
        metrics = {"td_loss": loss.item(), "q_values": predicted.detach().mean().item()}
        return Update(priorities_of(errors), metrics)

    def parameters(self) -> NDArray[np.float32]:
        """Return a copy of the online network's weights: all that a `DQNPolicy` needs."""
        return get_parameters(self.online)

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides how learning goes on; the arrays are the agent's own, not copies."""
        return {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        # A copy: an optimizer keeps the very arrays that it is given, and changes them.
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))
        self.updates = int(state["updates"])
