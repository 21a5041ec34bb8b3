"""Torso, dueling network, policy and critic, and their parameters as one vector."""

import numpy as np
import pytest
import torch

from replay_tutorial.agents.networks import (
    CriticNetwork,
    DuelingNetwork,
    PolicyNetwork,
    Torso,
    get_parameters,
    parameter_count,
    set_parameters,
)


def network_of(seed, hidden_sizes=(8, 8)):
    torch.manual_seed(seed)
    return DuelingNetwork(observation_shape=(3,), action_count=4, hidden_sizes=hidden_sizes)


def test_mean_over_actions_is_the_value_and_differences_are_those_of_the_advantages():
    network, observations = network_of(0), torch.randn(16, 3)
    q_values = network(observations)
    value = network.value_head(network.trunk(observations)).squeeze(1)
    torch.testing.assert_close(q_values.mean(dim=1), value)
    advantage = network.advantage_head(network.trunk(observations))
    torch.testing.assert_close(q_values - q_values[:, :1], advantage - advantage[:, :1])


def test_parameters_go_from_one_network_to_another():
    network, other, observations = network_of(0), network_of(1), torch.randn(16, 3)
    assert not torch.equal(network(observations), other(observations))
    vector = get_parameters(network)
    assert vector.dtype == np.float32
    assert vector.shape == (parameter_count(network),)
    set_parameters(other, vector)
    assert torch.equal(network(observations), other(observations))


def test_parameters_are_copied_both_ways():
    network, other = network_of(0), network_of(1)
    vector = get_parameters(network)
    kept = vector.copy()
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.zero_()
    np.testing.assert_array_equal(vector, kept)
    set_parameters(other, vector)
    vector[:] = 0.0
    np.testing.assert_array_equal(get_parameters(other), kept)


def test_vector_of_another_network_is_refused_and_changes_nothing():
    network, other = network_of(0), network_of(0, hidden_sizes=(9,))
    before = get_parameters(other)
    with pytest.raises(ValueError, match="hidden sizes"):
        set_parameters(other, get_parameters(network))
    np.testing.assert_array_equal(get_parameters(other), before)


IMAGE = (4, 84, 84)


def test_torso_for_images_is_that_of_the_papers():
    torso = Torso(IMAGE)
    shapes = [tuple(tensor.shape) for tensor in torso.parameters() if tensor.dim() == 4]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert torso.feature_count == 64 * 7 * 7
    # Mnih's convolutions, and for each of the two streams 512 hidden units and its output
    expected = 77_984 + 2 * (3136 * 512 + 512) + 513 * (6 + 1)
    assert parameter_count(DuelingNetwork(IMAGE, 6, (512,))) == expected


def test_convolutions_may_be_others_than_the_papers_and_take_bits():
    torso = Torso((4, 42, 42), ((16, 6, 3), (32, 4, 2), (8, 3, 1)))
    shapes = [tuple(tensor.shape) for tensor in torso.parameters() if tensor.dim() == 4]
    assert shapes == [(16, 4, 6, 6), (32, 16, 4, 4), (8, 32, 3, 3)]
    assert torso.feature_count == 8 * 3 * 3
    bits = torch.from_numpy(np.random.default_rng(0).random((2, 7, 10, 10)) < 0.5)
    network = DuelingNetwork((7, 10, 10), 6, (8,), ((16, 3, 1),))
    assert parameter_count(network) == 16 * (7 * 9 + 1) + 2 * (16 * 64 * 8 + 8) + 9 * (6 + 1)
    torch.testing.assert_close(network(bits), network(bits.float()))


def test_bytes_are_scaled_and_other_numbers_are_not():
    torso, observations = Torso(IMAGE), torch.randint(256, (2, *IMAGE), dtype=torch.uint8)
    torch.testing.assert_close(torso(observations), torso(observations.float() / 255.0))
    flat = Torso((3,))
    assert flat(torch.tensor([[0, 51, 255]], dtype=torch.uint8)).tolist() == [[0.0, pytest.approx(0.2), 1.0]]
    assert flat(torch.tensor([[0, 51, 255]])).tolist() == [[0.0, 51.0, 255.0]]


@pytest.mark.parametrize(("shape", "count"), [((3,), 5), (IMAGE, 2), ((3, 96, 96), 2), ((1, 36, 50), 2)])
def test_every_network_takes_flat_observations_and_images(shape, count):
    observations = torch.zeros((count, *shape), dtype=torch.uint8 if len(shape) == 3 else torch.float32)
    assert DuelingNetwork(shape, 6, (8,))(observations).shape == (count, 6)
    actions = PolicyNetwork(shape, 2, (8,))(observations)
    assert actions.shape == (count, 2)
    assert CriticNetwork(shape, 2, (8,))(observations, actions).shape == (count,)


def test_actions_of_a_policy_stay_between_minus_one_and_one():
    network = PolicyNetwork((3,), 2, (8,))
    actions = network(1e6 * torch.randn(100, 3))
    assert actions.abs().max() <= 1.0
    assert actions.std() > 0.1


def test_critic_depends_on_observation_and_action():
    network, observations, actions = CriticNetwork((3,), 2, (16,)), torch.randn(8, 3), torch.randn(8, 2)
    values = network(observations, actions)
    assert not torch.allclose(network(observations + 1.0, actions), values)
    assert not torch.allclose(network(observations, actions + 1.0), values)
