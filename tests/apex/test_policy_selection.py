"""Choosing: the best network is kept, as it was, and luck in a few episodes isn't enough."""

import numpy as np
import pytest

from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex import policy_selection as choose
from replay_tutorial.apex.policy_selection import PolicySelection

FIRST, MORE = [1, 2], [3, 4, 5]


@pytest.fixture
def played(monkeypatch):
    """Scripted evaluations: the next element is what every episode of a round brings."""
    script = []

    def evaluate(policy, environment, seeds, step_limit):
        return Evaluation(np.full(len(seeds), float(script.pop(0))))

    monkeypatch.setattr(choose, "evaluate", evaluate)
    return script


class StillPolicy:
    """Remembers what it plays with."""

    def set_parameters(self, vector):
        self.vector = vector

    def act_greedily(self, observations):
        raise NotImplementedError("the evaluations are scripted")


def consider(chooser, step):
    return chooser.consider(np.array([step]), step)


def test_best_of_the_second_round_is_kept(played):
    chooser = PolicySelection(StillPolicy(), "CartPole-v1", FIRST, MORE, None)
    played += [10, 10, 20, 30, 29, 40, 5]
    for step in (1, 2, 3, 4):
        consider(chooser, step)
    # Steps 1, 2 and 4 play both rounds; step 3 falls in the first, with 29 to 30.
    assert played == []
    assert chooser.best.step == 2
    assert chooser.best.confirmation.returns.tolist() == [30, 30, 30]


def test_network_that_is_lucky_in_the_first_round_has_to_prove_it(played):
    chooser = PolicySelection(StillPolicy(), "CartPole-v1", FIRST, MORE, None)
    played += [10, 10, 100, 0]
    consider(chooser, 1)
    assert consider(chooser, 2).mean == 100
    assert chooser.best.step == 1


def test_later_network_wins_a_tie(played):
    chooser = PolicySelection(StillPolicy(), "CartPole-v1", FIRST, [], None)
    played += [10, 10]
    consider(chooser, 1)
    consider(chooser, 2)
    assert chooser.best.step == 2


def test_weights_that_are_kept_are_those_that_were_played(played):
    policy = StillPolicy()
    chooser = PolicySelection(policy, "CartPole-v1", FIRST, MORE, None)
    played += [10, 10, 5]
    consider(chooser, 1)
    consider(chooser, 2)
    assert chooser.best.weights.tolist() == [1]
    assert policy.vector.tolist() == [2]


def test_solved_needs_a_mean_surely_above_the_bar(monkeypatch):
    returns = [500.0, 500.0, 500.0, 500.0, 430.0]  # the proof is the last three: mean 476.7, but spread
    monkeypatch.setattr(
        choose, "evaluate", lambda p, e, seeds, limit: Evaluation(np.array([returns[s - 1] for s in seeds]))
    )
    chooser = PolicySelection(StillPolicy(), "CartPole-v1", FIRST, MORE, 475.0)
    assert not chooser.solved
    consider(chooser, 1)
    assert not chooser.solved
    returns[2:] = [500.0, 500.0, 500.0]
    consider(chooser, 2)
    assert chooser.solved
    chooser.solved_at = None
    assert not chooser.solved
