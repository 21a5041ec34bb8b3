"""Policy selection: the best policy is kept, as it was, and luck in a few episodes isn't enough."""

import numpy as np
import pytest

from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex import policy_selection
from replay_tutorial.apex.policy_selection import PolicySelection

EVALUATION, CONFIRMATION = [1, 2], [3, 4, 5]


@pytest.fixture
def played(monkeypatch):
    """Scripted evaluations: the next element is what every episode of a round brings."""
    script = []

    def evaluate(policy, environment, seeds, step_limit, at_once):
        return Evaluation(np.full(len(seeds), float(script.pop(0))))

    monkeypatch.setattr(policy_selection, "evaluate", evaluate)
    return script


class StillPolicy:
    """Remembers what it plays with."""

    def set_parameters(self, vector):
        self.vector = vector

    def act_greedily(self, observations):
        raise NotImplementedError("the evaluations are scripted")


def consider(selection, step):
    return selection.consider(np.array([step]), step)


def test_best_of_the_second_round_is_kept(played):
    selection = PolicySelection(StillPolicy(), "CartPole-v1", EVALUATION, CONFIRMATION, None)
    played += [10, 10, 20, 30, 29, 40, 5]
    for step in (1, 2, 3, 4):
        consider(selection, step)
    # Steps 1, 2 and 4 play both rounds; step 3 falls in the first, with 29 to 30.
    assert played == []
    assert selection.best.step == 2
    assert selection.best.confirmation.returns.tolist() == [30, 30, 30]


def test_policy_that_is_lucky_in_the_first_round_needs_confirmation(played):
    selection = PolicySelection(StillPolicy(), "CartPole-v1", EVALUATION, CONFIRMATION, None)
    played += [10, 10, 100, 0]
    consider(selection, 1)
    assert consider(selection, 2).mean == 100
    assert selection.best.step == 1


def test_later_policy_wins_a_tie(played):
    selection = PolicySelection(StillPolicy(), "CartPole-v1", EVALUATION, [], None)
    played += [10, 10]
    consider(selection, 1)
    consider(selection, 2)
    assert selection.best.step == 2


def test_parameters_that_are_kept_are_those_that_were_played(played):
    policy = StillPolicy()
    selection = PolicySelection(policy, "CartPole-v1", EVALUATION, CONFIRMATION, None)
    played += [10, 10, 5]
    consider(selection, 1)
    consider(selection, 2)
    assert selection.best.parameters.tolist() == [1]
    assert policy.vector.tolist() == [2]


def test_solved_needs_a_lower_bound_that_meets_the_target(monkeypatch):
    returns = [
        500.0,
        500.0,
        500.0,
        500.0,
        430.0,
    ]  # the confirmation is the last three: mean 476.7, but spread
    monkeypatch.setattr(
        policy_selection,
        "evaluate",
        lambda p, e, seeds, *_: Evaluation(np.array([returns[s - 1] for s in seeds])),
    )
    selection = PolicySelection(StillPolicy(), "CartPole-v1", EVALUATION, CONFIRMATION, 475.0)
    assert not selection.solved
    consider(selection, 1)
    assert not selection.solved
    returns[2:] = [500.0, 500.0, 500.0]
    consider(selection, 2)
    assert selection.solved
    selection.solved_at = None
    assert not selection.solved
