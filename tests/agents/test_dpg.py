"""DPG: targets by hand, gradients by finite differences, priorities of both sides, a solved problem."""

import numpy as np
import pytest
import torch
from agent_parts import agent_of, networks_of, ones, policy_of, rows_of
from torch import nn

from replay_tutorial.agents.dpg import ActorCritic, policy_gradient, targets
from replay_tutorial.agents.networks import get_parameters
from replay_tutorial.agents.td_error import Transitions

pytestmark = pytest.mark.learns


class Times(nn.Module):
    """π(s) = k s."""

    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, observations):
        return self.factor * observations


class Parabola(nn.Module):
    """Q(s, a) = c s - (a - 1)²."""

    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, observations, actions):
        return (self.factor * observations - (actions - 1.0) ** 2).squeeze(1)


def test_target_networks_select_and_evaluate_the_next_action():
    target = ActorCritic(Times(3.0), Parabola(10.0))
    rows = {"obs": [[9], [9]], "action": [[9], [9]], "next_obs": [[2], [2]], "reward": [1.5, 1.5]}
    rows = {name: np.array(values, np.float32) for name, values in {**rows, "discount": [0.5, 0]}.items()}
    # In state 2 the target policy's action is 6, which the target critic estimates at 10 · 2 - (6 - 1)² = -5;
    # there is nothing after the end.
    assert targets(target, Transitions.from_batch(rows)).tolist() == [1.5 + 0.5 * -5.0, 1.5]


class Product(nn.Module):
    """Q(s, a) = s a, which grows by s as a does."""

    def forward(self, observations, actions):
        return (observations * actions).squeeze(1)


@pytest.mark.parametrize(
    ("clip", "expected"), [(100.0, (0.5 * 0.5 + 3.0 * 3.0) / 2), (2.0, (0.5 * 0.5 + 2.0 * 3.0) / 2)]
)
def test_direction_of_a_better_action_is_clipped_for_each_row(clip, expected):
    networks = ActorCritic(Times(0.1), Product())
    values = policy_gradient(networks, torch.tensor([[0.5], [-3.0]]), clip)
    # -∂Q/∂k = -∂Q/∂a ∂a/∂k, and both are s
    assert networks.policy.factor.grad.item() == pytest.approx(-expected)
    assert values.tolist() == pytest.approx([0.1 * 0.5**2, 0.1 * 3.0**2])


def test_policys_gradient_is_that_of_finite_differences():
    networks = networks_of("dpg").double()
    observations = torch.randn(5, 3, dtype=torch.float64)
    # The project's own torso makes float32 of everything, too coarse for differences.
    for network in (networks.policy.layers[0], networks.critic.torso):
        network.forward = lambda observations: observations
    policy_gradient(networks, observations, clip=1e9)
    gradient = np.concatenate([tensor.grad.numpy().ravel() for tensor in networks.policy.parameters()])

    def loss():
        with torch.no_grad():
            return -networks.critic(observations, networks.policy(observations)).mean().item()

    differences, step = [], 1e-6
    for tensor in networks.policy.parameters():
        for parameter in tensor.data.view(-1).split(1):
            parameter += step
            above = loss()
            parameter -= 2 * step
            below = loss()
            parameter += step
            differences.append((above - below) / (2 * step))
    np.testing.assert_allclose(gradient, differences, atol=1e-8)
    assert np.abs(gradient).max() > 1e-3
    assert all(tensor.grad is None for tensor in networks.critic.parameters())


def test_policy_does_not_move_the_critic():
    first, second = agent_of("dpg"), agent_of("dpg", policy_learning_rate=0.1)
    for seed in range(3):
        rows = rows_of("dpg", 8, seed)
        rows["discount"][:] = 0.0  # no way from the policy into the targets
        first.update(rows, ones(8))
        second.update(rows, ones(8))
    np.testing.assert_array_equal(get_parameters(first.online.critic), get_parameters(second.online.critic))
    assert not np.array_equal(get_parameters(first.online.policy), get_parameters(second.online.policy))


def test_best_action_of_a_one_step_problem_is_found():
    agent = agent_of("dpg", learning_rate=1e-2)
    for step in range(500):
        rows = rows_of("dpg", 64, step)
        best = np.tanh(rows["obs"][:, :2])
        rows["reward"][:] = -((rows["action"] - best) ** 2).sum(axis=1)
        rows["discount"][:] = 0.0
        agent.update(rows, ones(64))
    policy, fresh = policy_of("dpg", 1), rows_of("dpg", 64, 500)["obs"]
    policy.set_parameters(agent.parameters())
    assert np.abs(policy.act_greedily(fresh) - np.tanh(fresh[:, :2])).mean() < 0.2  # 0.7 before


def test_noise_has_the_spread_asked_for_and_stays_within_bounds():
    policy = policy_of("dpg")
    policy.set_parameters(np.zeros(policy.parameter_count, np.float32))
    observations, generator = np.zeros((3, 3), np.float32), np.random.default_rng(0)
    actions = np.stack([policy.act(observations, np.array([0.0, 0.1, 5.0]), generator) for _ in range(1000)])
    assert actions.dtype == np.float32
    assert (actions[:, 0] == policy.act_greedily(observations)[0]).all()
    # 2,000 numbers: the spread is known to 1.6 %; five of those
    assert actions[:, 1].std() == pytest.approx(0.1, rel=0.08)
    assert abs(actions[:, 1].mean()) < 0.012
    assert np.abs(actions).max() == 1.0
