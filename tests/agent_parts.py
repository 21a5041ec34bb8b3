"""Small agents of both kinds and rows for them: observations of three numbers, actions of one or two."""

import numpy as np
import torch

from replay_tutorial.agents.dpg import ActorCritic, DPGAgent, DPGPolicy
from replay_tutorial.agents.dqn import DQNAgent, DQNPolicy
from replay_tutorial.agents.networks import CriticNetwork, DuelingNetwork, PolicyNetwork


def networks_of(kind, seed=0):
    torch.manual_seed(seed)
    if kind == "dqn":
        return DuelingNetwork((3,), 2, (16,))
    return ActorCritic(PolicyNetwork((3,), 2, (8, 8)), CriticNetwork((3,), 2, (8, 8)))


def agent_of(kind, seed=0, learning_rate=1e-3, **changes):
    networks = networks_of(kind, seed)
    settings = {"huber_delta": 1.0, "gradient_norm": 10.0, "target_interval": 2}
    if kind == "dqn":
        optimizer = torch.optim.Adam(networks.parameters(), lr=learning_rate)
        return DQNAgent(networks, optimizer, **(settings | changes))
    settings |= {"critic_learning_rate": learning_rate, "policy_learning_rate": learning_rate}
    return DPGAgent(networks, **(settings | {"action_gradient": 1.0} | changes))


def policy_of(kind, seed=0):
    return {"dqn": DQNPolicy, "dpg": DPGPolicy}[kind](networks_of(kind, seed))


def rows_of(kind, size, seed=0):
    generator = np.random.default_rng(seed)
    rows = {name: generator.normal(size=(size, 3)).astype(np.float32) for name in ("obs", "next_obs")}
    rows |= {name: generator.random(size).astype(np.float32) for name in ("reward", "discount")}
    actions = generator.uniform(-1, 1, size=(size, 2)).astype(np.float32)
    return rows | {"action": generator.integers(2, size=size) if kind == "dqn" else actions}


def ones(size):
    return np.ones(size, np.float32)
