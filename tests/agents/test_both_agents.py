"""What DQN and DPG have in common: first priorities, target networks, weights, and a state that is saved."""

import numpy as np
import pytest
import torch

from replay_tutorial.agents.dpg import ActorCritic, DPGAgent, DPGPolicy
from replay_tutorial.agents.dqn import DQNAgent, DQNPolicy
from replay_tutorial.agents.networks import CriticNetwork, DuelingNetwork, PolicyNetwork, get_parameters

both = pytest.mark.parametrize("kind", ["dqn", "dpg"])


def networks_of(kind, seed):
    torch.manual_seed(seed)
    if kind == "dqn":
        return DuelingNetwork((3,), 2, (16,))
    return ActorCritic(PolicyNetwork((3,), 2, (8, 8)), CriticNetwork((3,), 2, (8, 8)))


def agent_of(kind, seed=0, target_interval=2):
    networks = networks_of(kind, seed)
    settings = {"huber_delta": 1.0, "gradient_norm": 10.0, "target_interval": target_interval}
    if kind == "dqn":
        return DQNAgent(networks, torch.optim.Adam(networks.parameters(), lr=1e-3), **settings)
    rates = {"critic_learning_rate": 1e-3, "policy_learning_rate": 1e-3, "action_gradient": 1.0}
    return DPGAgent(networks, **settings, **rates)


def policy_of(kind, seed):
    return {"dqn": DQNPolicy, "dpg": DPGPolicy}[kind](networks_of(kind, seed))


def rows_of(kind, size, seed):
    generator = np.random.default_rng(seed)
    rows = {name: generator.normal(size=(size, 3)).astype(np.float32) for name in ("obs", "next_obs")}
    rows |= {name: generator.random(size).astype(np.float32) for name in ("rew", "discount")}
    actions = generator.uniform(-1, 1, size=(size, 2)).astype(np.float32)
    return rows | {"act": generator.integers(2, size=size) if kind == "dqn" else actions}


def ones(size):
    return np.ones(size, np.float32)


@both
def test_actors_first_priorities_are_the_learners_for_the_same_parameters(kind):
    rows, agent, policy = rows_of(kind, 32, 0), agent_of(kind), policy_of(kind, 1)
    assert not np.allclose(policy.priorities(rows), agent_of(kind).update(rows, ones(32)).priorities)
    policy.set_parameters(agent.parameters())
    by_actor = policy.priorities(rows)
    np.testing.assert_allclose(by_actor, agent.update(rows, ones(32)).priorities, rtol=1e-5)
    assert (by_actor >= 0).all()
    assert by_actor.std() > 0.1  # of random rows: no constant in disguise


@both
def test_target_networks_are_copied_every_target_interval_updates_and_stay_otherwise(kind):
    agent, rows = agent_of(kind, target_interval=2), rows_of(kind, 8, 1)
    parts = [(agent.online, agent.target)]
    if kind == "dpg":
        parts = [(getattr(agent.online, part), getattr(agent.target, part)) for part in ("policy", "critic")]

    def distances():
        return [np.abs(get_parameters(one) - get_parameters(other)).max() for one, other in parts]

    assert max(distances()) == 0.0
    agent.update(rows, ones(8))
    assert min(distances()) > 0.0
    agent.update(rows, ones(8))
    assert max(distances()) == 0.0


@both
def test_rows_of_weight_zero_teach_no_values(kind):
    agent = agent_of(kind)
    values = agent.online if kind == "dqn" else agent.online.critic
    before = get_parameters(values)
    agent.update(rows_of(kind, 8, 1), 0 * ones(8))
    np.testing.assert_array_equal(get_parameters(values), before)


@both
def test_state_that_is_loaded_goes_on_like_the_one_that_was_saved(kind):
    agent, other = (agent_of(kind, seed, target_interval=3) for seed in (0, 1))
    first, second = rows_of(kind, 8, 2), rows_of(kind, 8, 3)
    for _ in range(4):
        agent.update(first, ones(8))
    other.load_state_dict(agent.state_dict())
    for _ in range(4):  # on the same way even across the next copy into the target networks
        one, two = agent.update(second, ones(8)), other.update(second, ones(8))
        np.testing.assert_array_equal(one.priorities, two.priorities)
        assert one.metrics == two.metrics
    np.testing.assert_array_equal(agent.parameters(), other.parameters())
    assert agent.updates == other.updates == 8
