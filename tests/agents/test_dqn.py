"""Double DQN: hand-computed targets, the loss, the target network, and priorities that both sides share."""

import numpy as np
import pytest
import torch
from agent_parts import agent_of, ones, policy_of, rows_of
from torch import nn

from replay_tutorial.agents.dqn import DQNPolicy, epsilon_schedule, targets, td_errors
from replay_tutorial.agents.networks import DuelingNetwork
from replay_tutorial.agents.td_error import Transitions, weighted_loss

pytestmark = pytest.mark.learns


class QTable(nn.Module):
    """Q-values looked up: the observation is the number of the state."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(torch.tensor(table))

    def forward(self, observations):
        return self.table[observations.squeeze(1).long()]


ONLINE = QTable([[1.0, 2.0], [5.0, 3.0], [0.0, 7.0]])
TARGET = QTable([[10.0, 20.0], [50.0, 300.0], [40.0, 70.0]])


def transitions_of(obs, action, reward, next_obs, discount):
    return Transitions(
        obs=torch.tensor(obs, dtype=torch.float32).unsqueeze(1),
        action=torch.tensor(action),
        reward=torch.tensor(reward),
        next_obs=torch.tensor(next_obs, dtype=torch.float32).unsqueeze(1),
        discount=torch.tensor(discount),
    )


def test_online_network_selects_and_target_network_evaluates_the_next_action():
    # In state 1 the online network selects action 0 (5 > 3); the target network's estimate of it is 50, not
    # the 300 of its own best action.
    transitions = transitions_of(obs=[0], action=[1], reward=[1.5], next_obs=[1], discount=[0.5])
    assert targets(ONLINE, TARGET, transitions).tolist() == [1.5 + 0.5 * 50.0]
    assert td_errors(ONLINE, TARGET, transitions)[0].tolist() == [1.5 + 0.5 * 50.0 - 2.0]


def test_gradient_flows_through_the_prediction_only():
    online = QTable([[1.0, 2.0], [5.0, 3.0]])
    transitions = transitions_of(obs=[0], action=[1], reward=[0.0], next_obs=[1], discount=[1.0])
    td_errors(online, online, transitions)[0].sum().backward()
    assert online.table.grad.tolist() == [[0.0, -1.0], [0.0, 0.0]]


@pytest.mark.parametrize(("delta", "expected"), [(1.0, [0.125, 2.5]), (10.0, [0.125, 4.5])])
def test_loss_is_hubers_times_the_weights(delta, expected):
    errors, weights = torch.tensor([-0.5, 3.0]), torch.tensor([1.0, 0.25])
    loss = weighted_loss(errors, weights, delta)
    assert loss.item() == pytest.approx((expected[0] + 0.25 * expected[1]) / 2)


def test_repeated_updates_on_terminal_rows_learn_their_rewards():
    agent, rows = agent_of("dqn", learning_rate=1e-2, target_interval=10), rows_of("dqn", 16, 2)
    rows["discount"][:] = 0.0
    for _ in range(500):
        priorities, metrics = agent.update(rows, ones(16))
    assert priorities.max() < 0.05
    assert metrics["td_loss"] < 1e-3
    assert metrics["q_values"] == pytest.approx(rows["reward"].mean(), abs=0.05)


def test_epsilon_schedule_is_the_papers():
    schedule = epsilon_schedule(8)
    assert schedule[0] == pytest.approx(0.4)
    assert schedule[1] == pytest.approx(0.4**2)
    assert schedule[-1] == pytest.approx(0.4**8)
    assert epsilon_schedule(3).tolist() == pytest.approx([0.4, 0.4**4.5, 0.4**8])
    assert epsilon_schedule(1, base=0.3, exponent=5.0).tolist() == [0.3]


def test_greedy_actions_are_the_best_ones_for_observations_of_any_dtype():
    torch.manual_seed(0)
    network = DuelingNetwork((3,), 4, (8, 8))
    observations = np.random.default_rng(0).normal(size=(16, 3))  # float64
    with torch.no_grad():
        expected = network(torch.from_numpy(observations.astype(np.float32))).numpy().argmax(axis=1)
    policy = DQNPolicy(network)
    np.testing.assert_array_equal(policy.act_greedily(observations), expected)
    np.testing.assert_array_equal(policy.act(observations, np.zeros(16), np.random.default_rng(0)), expected)
    assert len(set(expected.tolist())) > 1


def test_epsilon_of_one_acts_at_random_and_of_zero_greedily():
    policy = policy_of("dqn")
    with_bias = np.zeros(policy.parameter_count, np.float32)
    with_bias[-1] = 1.0  # the last action is always the best
    policy.set_parameters(with_bias)
    generator, observations = np.random.default_rng(0), np.zeros((2, 3), np.float32)
    actions = np.array([policy.act(observations, np.array([0.0, 1.0]), generator) for _ in range(400)])
    assert set(actions[:, 0].tolist()) == {1}
    assert policy.act_greedily(observations).tolist() == [1, 1]
    # Binomial(400, 1/2): six standard deviations to each side
    assert 140 < actions[:, 1].sum() < 260
