"""What DQN and DPG have in common: first priorities, target networks, weights, and a state that is saved."""

import numpy as np
import pytest
from agent_parts import agent_of, ones, policy_of, rows_of

from replay_tutorial.agents.networks import get_parameters

pytestmark = pytest.mark.learns

both = pytest.mark.parametrize("kind", ["dqn", "dpg"])


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
