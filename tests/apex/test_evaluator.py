"""The evaluator: when it looks, what it keeps, and what it says."""

from dataclasses import replace

import numpy as np
import pytest
from run_parts import parts

from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex import policy_selection
from replay_tutorial.apex.evaluator import Evaluator
from replay_tutorial.apex.runs.run_folder import RunFolder


@pytest.fixture
def evaluator(tmp_path, monkeypatch):
    """One whose evaluations are scripted, the lists of script and messages, and the folder."""
    script, told = [], []
    context, _ = parts()
    config = replace(context.config, evaluation_interval=100, publish_interval=25, runs=tmp_path)
    context = replace(context, config=config, tell=told.append)

    def evaluate(act, environment, seeds, step_limit, at_once):
        return Evaluation(np.full(len(seeds), float(script.pop(0))))

    monkeypatch.setattr(policy_selection, "evaluate", evaluate)
    folder = RunFolder.create(config)
    return Evaluator(context, folder.save_policy, 50.0, None, 0), script, told, folder


def publish(evaluator, update):
    """Publish every 25 updates, as the learner does, parameters that are the number of their update."""
    parameters, count = evaluator.context.parameters, evaluator.selection.policy.parameter_count
    for made in range(parameters.pull().update, update + 1, 25):
        parameters.publish(np.full(count, made, np.float32), made)


def test_policy_is_evaluated_every_so_many_updates_and_the_best_is_kept(evaluator):
    evaluator, script, told, folder = evaluator
    script += [10, 10, 5, 20, 60]
    for update in range(0, 351, 25):
        publish(evaluator, update)
        evaluator.look()
    assert [message.update for message in told] == [100, 200, 300]
    assert [message.evaluation.mean for message in told] == [10, 5, 20]
    assert [message.confirmation and message.confirmation.mean for message in told] == [10, None, 60]
    assert [message.solved for message in told] == [False, False, True]
    best = folder.load_best()
    assert (best.confirmation.mean, best.parameters[0]) == (60, 300)
    assert len(best.confirmation.returns) == evaluator.context.config.confirmation_episodes


def test_policy_that_is_as_good_as_the_best_one_is_kept_and_reported_as_a_tie(evaluator):
    evaluator, script, told, folder = evaluator
    script += [10, 10, 10, 10, 11, 11]
    for update in (100, 200, 300):
        publish(evaluator, update)
        evaluator.look()
    assert [message.is_tie for message in told] == [False, True, False]
    assert folder.load_best().parameters[0] == 300


def test_what_was_published_meanwhile_is_skipped_except_the_newest(evaluator):
    evaluator, script, told, _ = evaluator
    script += [1, 1, 1, 1]
    publish(evaluator, 475)
    evaluator.look()
    evaluator.look()
    publish(evaluator, 575)
    evaluator.look()
    assert [message.update for message in told] == [475, 575]


def test_last_look_evaluates_only_what_is_new(evaluator):
    evaluator, script, told, _ = evaluator
    script += [1, 1, 2, 2]
    evaluator.look(last=True)  # a run that was too short for any
    assert [message.update for message in told] == [0]
    evaluator.look(last=True)
    assert len(told) == 1
    publish(evaluator, 25)
    evaluator.look(last=True)
    assert [message.update for message in told] == [0, 25]


def test_policy_that_was_the_best_before_a_resumption_still_is(evaluator):
    first, script, _, folder = evaluator
    script += [40, 40, 30]
    publish(first, 100)
    first.look()
    best, told = folder.load_best(), []
    resumed = Evaluator(replace(first.context, tell=told.append), folder.save_policy, 50.0, best, 100)
    publish(resumed, 175)
    resumed.look()
    assert told == []
    publish(resumed, 200)
    resumed.look()
    assert [message.confirmation for message in told] == [None]
    assert folder.load_best().step == best.step
