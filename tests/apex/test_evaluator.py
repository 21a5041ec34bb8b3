"""The evaluator: when it looks, what it keeps, and what it says."""

from dataclasses import replace

import numpy as np
import pytest
from test_apex_checkpoint import parts

from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex import policy_selection as choose
from replay_tutorial.apex.evaluator import Evaluator
from replay_tutorial.apex.runs.run_folder import RunFolder


@pytest.fixture
def evaluator(tmp_path, monkeypatch):
    """One whose judgements are scripted, and the lists of script and messages."""
    common, _ = parts()
    config = replace(common.config, evaluation_interval=100, publish_interval=25, runs=tmp_path)
    common = replace(common, config=config)
    script, told = [], []

    def evaluate(act, environment, seeds, step_limit):
        return Evaluation(np.full(len(seeds), float(script.pop(0))))

    monkeypatch.setattr(choose, "evaluate", evaluate)
    folder = RunFolder.create(config)
    return Evaluator(common, folder, 50.0, None, 0, told.append), script, told


def publish(evaluator, update):
    """Publish, as the learner does each 25 updates, until the newest weights are those of an update."""
    mailbox = evaluator.common.mailbox
    while evaluator.common.update_of(mailbox.version) < update:
        mailbox.publish(np.full(evaluator.chooser.policy.parameter_count, mailbox.version, np.float32))


def test_policy_is_judged_each_so_many_updates_and_the_best_is_kept(evaluator):
    evaluator, script, told = evaluator
    script += [10, 10, 5, 20, 60]
    for update in range(0, 351, 25):
        publish(evaluator, update)
        evaluator.look()
    assert [message.update for message in told] == [100, 200, 300]
    assert [message.evaluation.mean for message in told] == [10, 5, 20]
    assert [message.confirmation and message.confirmation.mean for message in told] == [10, None, 60]
    assert [message.solved for message in told] == [False, False, True]
    best = evaluator.folder.load_best()
    assert (best.confirmation.mean, best.weights[0]) == (60, 300 // 25)
    assert len(best.confirmation.returns) == evaluator.common.config.confirmation_episodes


def test_what_was_published_meanwhile_is_skipped_but_for_the_newest(evaluator):
    evaluator, script, told = evaluator
    script += [1, 1, 1, 1]
    publish(evaluator, 475)
    evaluator.look()
    evaluator.look()
    publish(evaluator, 575)
    evaluator.look()
    assert [message.update for message in told] == [475, 575]


def test_last_look_judges_what_is_new_only(evaluator):
    evaluator, script, told = evaluator
    script += [1, 1, 2, 2]
    evaluator.look(last=True)  # a run that was too short for any
    assert [message.update for message in told] == [0]
    evaluator.look(last=True)
    assert len(told) == 1
    publish(evaluator, 25)
    evaluator.look(last=True)
    assert [message.update for message in told] == [0, 25]


def test_policy_that_was_the_best_before_a_resumption_still_is(evaluator):
    first, script, _ = evaluator
    script += [40, 40, 30]
    publish(first, 100)
    first.look()
    best, told = first.folder.load_best(), []
    resumed = Evaluator(first.common, first.folder, 50.0, best, 100, told.append)
    publish(resumed, 175)
    resumed.look()
    assert told == []
    publish(resumed, 200)
    resumed.look()
    assert [message.confirmation for message in told] == [None]
    assert first.folder.load_best().step == best.step
