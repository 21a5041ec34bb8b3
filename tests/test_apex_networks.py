"""The dueling network, and its weights as one vector."""

import numpy as np
import pytest
import torch

from replay_tutorial.apex.networks import (
    DuelingNetwork,
    get_weights,
    greedy_actions,
    set_weights,
    weight_count,
)


def network_of(seed, hidden_sizes=(8, 8)):
    torch.manual_seed(seed)
    return DuelingNetwork(observation_size=3, action_count=4, hidden_sizes=hidden_sizes)


def test_mean_over_actions_is_the_value():
    network, observations = network_of(0), torch.randn(16, 3)
    value = network.value_head(network.trunk(observations)).squeeze(1)
    torch.testing.assert_close(network(observations).mean(dim=1), value)


def test_differences_between_actions_are_those_of_their_advantages():
    network, observations = network_of(0), torch.randn(16, 3)
    q_values = network(observations)
    advantage = network.advantage_head(network.trunk(observations))
    torch.testing.assert_close(q_values - q_values[:, :1], advantage - advantage[:, :1])


def test_adding_a_constant_to_all_advantages_changes_nothing():
    network, observations = network_of(0), torch.randn(16, 3)
    before = network(observations)
    with torch.no_grad():
        network.advantage_head.bias += 5.0
    torch.testing.assert_close(network(observations), before)


def test_greedy_actions_are_the_best_ones_for_observations_of_any_dtype():
    network = network_of(0)
    observations = np.random.default_rng(0).normal(size=(16, 3))  # float64
    with torch.no_grad():
        expected = network(torch.from_numpy(observations.astype(np.float32))).numpy().argmax(axis=1)
    np.testing.assert_array_equal(greedy_actions(network, observations), expected)
    assert len(set(expected.tolist())) > 1


def test_weights_go_from_one_network_to_another():
    network, other, observations = network_of(0), network_of(1), torch.randn(16, 3)
    assert not torch.equal(network(observations), other(observations))
    vector = get_weights(network)
    assert vector.dtype == np.float32
    assert vector.shape == (weight_count(network),)
    set_weights(other, vector)
    assert torch.equal(network(observations), other(observations))


def test_weights_are_copies_on_both_ways():
    network, other = network_of(0), network_of(1)
    vector = get_weights(network)
    kept = vector.copy()
    with torch.no_grad():
        for weights in network.parameters():
            weights.zero_()
    np.testing.assert_array_equal(vector, kept)
    set_weights(other, vector)
    vector[:] = 0.0
    np.testing.assert_array_equal(get_weights(other), kept)


def test_vector_of_another_network_is_refused_and_changes_nothing():
    network, other = network_of(0), network_of(0, hidden_sizes=(9,))
    before = get_weights(other)
    with pytest.raises(ValueError, match="hidden sizes"):
        set_weights(other, get_weights(network))
    np.testing.assert_array_equal(get_weights(other), before)
