"""The evaluator: when it looks, what it keeps, and that luck in a few episodes is not enough."""

from dataclasses import replace

import numpy as np
import pytest
from run_parts import parts

from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex import evaluator as evaluator_module
from replay_tutorial.apex.evaluator import Evaluator
from replay_tutorial.apex.runs.run_folder import RunFolder


@pytest.fixture
def evaluator(tmp_path, monkeypatch):
    """One whose rounds are scripted by their returns; its script, messages and folder."""
    script, told = [], []
    context, _ = parts()
    config = replace(context.config, evaluation_interval=100, publish_interval=25, runs=tmp_path)
    context = replace(context, config=config, send_message=told.append)

    def evaluate(action, environment, seeds, step_limit, at_once):
        return Evaluation(np.resize(np.array(script.pop(0), float), len(seeds)))

    monkeypatch.setattr(evaluator_module, "evaluate", evaluate)
    folder = RunFolder.create(config)
    return Evaluator(context, folder.save_policy, 50.0, None, 0), script, told, folder


def publish(evaluator, update):
    """Publish every 25 updates, as the learner does, parameters that are the number of their update."""
    parameters, count = evaluator.context.parameters, evaluator.policy.parameter_count
    for made in range(parameters.pull().update, update + 1, 25):
        parameters.publish(np.full(count, made, np.float32), made)


def look(evaluator, *updates):
    for update in updates:
        publish(evaluator, update)
        evaluator.evaluate_if_due()


def test_policy_is_evaluated_every_so_many_updates_and_the_best_is_kept(evaluator):
    evaluator, script, told, folder = evaluator
    script += [10, 10, 5, 20, 60]
    look(evaluator, *range(0, 351, 25))
    assert [message.update for message in told] == [100, 200, 300]
    assert [message.evaluation.mean for message in told] == [10, 5, 20]
    assert [message.confirmation and message.confirmation.mean for message in told] == [10, None, 60]
    assert [message.solved for message in told] == [False, False, True]
    best = folder.load_best()
    assert (best.confirmation.mean, best.parameters[0]) == (60, 300)
    assert len(best.confirmation.returns) == evaluator.context.config.confirmation_episodes


@pytest.mark.parametrize(
    ("rounds", "best", "ties"),
    [
        ([10, 10, 20, 30, 29, 40, 5], 200, [False, False, False, False]),  # 29 is below the best's 30
        ([10, 10, 100, 0], 100, [False, False]),  # luck in the first round
        ([10, 10, 10, 10, 11, 11], 300, [False, True, False]),
    ],
    ids=["the second round counts", "luck is not confirmed", "a tie goes to the later one"],
)
def test_best_of_the_second_round_is_kept_as_it_was_played(evaluator, rounds, best, ties):
    evaluator, script, told, folder = evaluator
    script += rounds
    look(evaluator, *range(100, 100 * len(ties) + 1, 100))
    assert script == []
    assert [message.is_tie for message in told] == ties
    assert set(folder.load_best().parameters.tolist()) == {best}


def test_solved_needs_a_lower_bound_that_meets_the_target(evaluator):
    evaluator, script, told, _ = evaluator
    script += [60, [60, 42], 60, 60]
    for update in (100, 200):
        assert not evaluator.solved
        look(evaluator, update)
    assert [message.solved for message in told] == [False, True]
    assert evaluator.solved
    evaluator.solved_at = None
    assert not evaluator.solved


def test_what_was_published_meanwhile_is_skipped_except_the_newest(evaluator):
    evaluator, script, told, _ = evaluator
    script += [1, 1, 1, 1]
    look(evaluator, 475)
    evaluator.evaluate_if_due()
    look(evaluator, 575)
    assert [message.update for message in told] == [475, 575]


def test_last_look_evaluates_only_what_is_new(evaluator):
    evaluator, script, told, _ = evaluator
    script += [1, 1, 2, 2]
    evaluator.evaluate_if_due(last=True)  # a run that was too short for any
    assert [message.update for message in told] == [0]
    evaluator.evaluate_if_due(last=True)
    assert len(told) == 1
    publish(evaluator, 25)
    evaluator.evaluate_if_due(last=True)
    assert [message.update for message in told] == [0, 25]


def test_policy_that_was_the_best_before_a_resumption_still_is(evaluator):
    first, script, _, folder = evaluator
    script += [40, 40, 30]
    look(first, 100)
    best, told = folder.load_best(), []
    resumed = Evaluator(replace(first.context, send_message=told.append), folder.save_policy, 50.0, best, 100)
    look(resumed, 175)
    assert told == []
    look(resumed, 200)
    assert [message.confirmation for message in told] == [None]
    assert folder.load_best().step == best.step
