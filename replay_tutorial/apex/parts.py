"""Builds the parts of a run from its settings: agent, policy, optimizer, device, exploration.

The classes in `agents/` take plain numbers and don't depend on `Config`; this module connects the two.

Paper: Horgan et al. 2018, section 4.1 and appendices C and D.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from replay_tutorial.agents.agent import Agent, Policy
from replay_tutorial.agents.dpg import ActorCritic, DPGAgent, DPGPolicy
from replay_tutorial.agents.dqn import DQNAgent, DQNPolicy, epsilon_schedule
from replay_tutorial.agents.environments import Spaces, UnsupportedEnvironment
from replay_tutorial.agents.networks import CriticNetwork, DuelingNetwork, PolicyNetwork
from replay_tutorial.apex.config import Config


def agent_name(config: Config, spaces: Spaces) -> Literal["dqn", "dpg"]:
    """Return the agent that fits the action space; raise UnsupportedEnvironment if another was requested."""
    fitting = "dpg" if spaces.is_continuous else "dqn"
    if config.agent not in (None, fitting):
        raise UnsupportedEnvironment(
            f"agent is {config.agent}, but {config.environment} has "
            f"{'Box' if spaces.is_continuous else 'Discrete'} actions, which require {fitting}. "
            "Omit --agent to select it automatically."
        )
    return fitting


def make_agent(config: Config, spaces: Spaces) -> Agent:
    """Return the agent of a run; its initial parameters are drawn from torch's global generator."""
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
    """Return a policy for the agent of a run; call `set_parameters` before use."""
    if agent_name(config, spaces) == "dpg":
        return DPGPolicy(actor_critic(config, spaces))
    return DQNPolicy(dueling_network(config, spaces))


def dueling_network(config: Config, spaces: Spaces) -> DuelingNetwork:
    """Return DQN's network; raise UnsupportedEnvironment if images are too small for the convolutions."""
    shape, actions = spaces.observation_shape, spaces.action_count
    if len(shape) == 3:
        side = min(shape[1:])  # pixels, of the images and then of each layer's output
        for number, (_, kernel_size, stride) in enumerate(config.convolutions, 1):
            if kernel_size > side:
                raise UnsupportedEnvironment(
                    f"convolutions is {config.convolutions}, but {config.environment} has images of "
                    f"{shape[1]} by {shape[2]} pixels: the kernel of layer {number} has a side of "
                    f"{kernel_size} pixels, and may have at most {side}."
                )
            side = (side - kernel_size) // stride + 1
    return DuelingNetwork(shape, actions, config.hidden_sizes, config.convolutions)


def actor_critic(config: Config, spaces: Spaces) -> ActorCritic:
    """Return DPG's networks, for the agent or the policy."""
    shape, size = spaces.observation_shape, spaces.action_count
    policy = PolicyNetwork(shape, size, config.policy_hidden_sizes)
    return ActorCritic(policy, CriticNetwork(shape, size, config.hidden_sizes))


def make_optimizer(config: Config, network: nn.Module) -> torch.optim.Optimizer:
    """Return DQN's optimizer."""
    if config.optimizer == "rmsprop":
        # Centered: the gradient is normalised by its variance, not its second moment (Horgan et al. 2018,
        # appendix C).
        return torch.optim.RMSprop(
            network.parameters(), lr=config.learning_rate, alpha=0.95, eps=1.5e-7, centered=True
        )
    # fused: one call instead of several per tensor; with small networks, this saves a fifth of the update's
    # time.
    return torch.optim.Adam(network.parameters(), lr=config.learning_rate, eps=1e-5, fused=True)


def learner_device(config: Config) -> str:
    """Return the device on which the learner trains; `auto` is a GPU if there is one."""
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return config.device


def exploration_schedule(config: Config, spaces: Spaces) -> NDArray[np.float64]:
    """Return the exploration parameter of each environment, float64[config.environment_count].

    As in the paper, it is ε for DQN, different in each environment, and σ for DPG, the same in all.
    """
    if agent_name(config, spaces) == "dpg":
        return np.full(config.environment_count, config.noise)
    return epsilon_schedule(config.environment_count, config.epsilon_base, config.epsilon_exponent)
