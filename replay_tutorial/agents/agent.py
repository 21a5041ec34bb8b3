"""The agent: what the rest of a run has to know of it, whichever it is.

An agent has two sides. The learner's side, `Agent`, has the networks, their optimizers and the update. The actors' and
evaluators' side, `Policy`, has copies of what acts and of what judges rows. Between them goes one vector of weights. So
actors, learner, checkpoints and evaluation are written once, and DQN and DPG are two pairs of classes behind two
protocols.

Paper: Horgan et al. 2018, section 3: the architecture is the same for both.
"""

from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from replay_tutorial.agents.dpg import ActorCritic, DPGAgent, DPGPolicy
from replay_tutorial.agents.dqn import DQNAgent, DQNPolicy, epsilon_schedule
from replay_tutorial.agents.environments import Spaces, UnsupportedEnvironment
from replay_tutorial.agents.networks import CriticNetwork, DuelingNetwork, PolicyNetwork
from replay_tutorial.agents.td_error import Rows, Update
from replay_tutorial.apex.config import Config


class Agent(Protocol):
    """The learner's side: networks, optimizers, and how they change."""

    updates: int  # made so far

    def update(self, rows: Rows, weights: NDArray[np.float32]) -> Update:
        """Learn from sampled rows, as the replay gave them or as tensors, and their importance weights float32[B]."""
        ...

    def parameters(self) -> NDArray[np.float32]:
        """Return a copy of all that a policy needs: float32[parameter_count of the policy]."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides how learning goes on: networks, targets, optimizers, updates."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        ...


class Policy(Protocol):
    """The actors' and evaluators' side, always on the processor: a copy of what acts and of what judges."""

    parameter_count: int  # the length of the vector of weights

    def set_parameters(self, vector: NDArray[np.float32]) -> None:
        """Take over what `Agent.parameters` returned."""
        ...

    def act(
        self, observations: NDArray[Any], exploration: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[Any]:
        """Return a curious action for each observation [batch, ...]; `exploration` is float64[batch]: ε, or σ."""
        ...

    def act_greedily(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the best known action for each observation [batch, ...]."""
        ...

    def priorities(self, rows: Rows) -> NDArray[np.float32]:
        """Return the first priorities of n-step rows: |TD error|, float32[rows]."""
        ...


def agent_name(config: Config, spaces: Spaces) -> Literal["dqn", "dpg"]:
    """Return which agent plays: the one asked for, or else the one that fits the actions.

    Raises:
        UnsupportedEnvironment: If the one asked for can't take such actions.
    """
    fitting = "dpg" if spaces.is_continuous else "dqn"
    if config.agent not in (None, fitting):
        raise UnsupportedEnvironment(
            f"agent is {config.agent}, but {config.environment} has "
            f"{'a Box of' if spaces.is_continuous else 'Discrete'} actions, which are for {fitting}. "
            "Leave --agent away: the one that fits is taken."
        )
    return fitting


def make_agent(config: Config, spaces: Spaces) -> Agent:
    """Return the agent of a run, with first weights by torch's global random state."""
    device = learner_device(config)
    if agent_name(config, spaces) == "dpg":
        return DPGAgent(
            actor_critic(config, spaces).to(device),
            critic_learning_rate=config.learning_rate,
            policy_learning_rate=config.policy_learning_rate,
            huber_delta=config.huber_delta,
            gradient_norm=config.gradient_norm,
            action_gradient=config.action_gradient,
            target_interval=config.target_interval,
            device=device,
        )
    network = dueling_network(config, spaces).to(device)
    return DQNAgent(
        network,
        make_optimizer(config, network),
        huber_delta=config.huber_delta,
        gradient_norm=config.gradient_norm,
        target_interval=config.target_interval,
        device=device,
    )


def make_policy(config: Config, spaces: Spaces) -> Policy:
    """Return a policy for the agent of a run; it acts by random weights until it is given others."""
    if agent_name(config, spaces) == "dpg":
        return DPGPolicy(actor_critic(config, spaces))
    return DQNPolicy(dueling_network(config, spaces))


def dueling_network(config: Config, spaces: Spaces) -> DuelingNetwork:
    """Return the network that both sides of DQN have."""
    return DuelingNetwork(spaces.observation_shape, spaces.action_count, config.hidden_sizes)


def actor_critic(config: Config, spaces: Spaces) -> ActorCritic:
    """Return the networks that both sides of DPG have."""
    shape, size = spaces.observation_shape, spaces.action_count
    policy = PolicyNetwork(shape, size, config.policy_hidden_sizes)
    return ActorCritic(policy, CriticNetwork(shape, size, config.hidden_sizes))


def make_optimizer(config: Config, network: nn.Module) -> torch.optim.Optimizer:
    """Return DQN's optimizer."""
    if config.optimizer == "rmsprop":
        # Centered: steps are scaled by the gradient's variance, not by its square (Horgan et al. 2018, appendix C).
        return torch.optim.RMSprop(
            network.parameters(), lr=config.learning_rate, alpha=0.95, eps=1.5e-7, centered=True
        )
    # fused: one call instead of several for each tensor, a fifth of the whole update at this size.
    return torch.optim.Adam(network.parameters(), lr=config.learning_rate, eps=1e-5, fused=True)


def learner_device(config: Config) -> str:
    """Return where the learner trains; `auto` is a GPU if there is one."""
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return config.device


def exploration_schedule(config: Config) -> NDArray[np.float64]:
    """Return how curious each environment of all actors is: float64[config.environment_count].

    For DQN that is ε, different for each; for DPG the same σ for all, as in the paper: noise is added to the policy's
    action, so that every environment tries what lies around it, and none is far from it.
    """
    if config.agent == "dpg":
        return np.full(config.environment_count, config.noise)
    return epsilon_schedule(config.environment_count, config.epsilon_base, config.epsilon_exponent)
