"""The evaluator: takes the newest policy from the mailbox, lets the chooser judge it, and keeps the best on the disk.

It works beside the learner, which goes on meanwhile, and it is never behind: what has been published while it was busy
is skipped but for the newest. The best policy is written at once, so that it survives whatever happens to the run.

Left out: several evaluators.
"""

import os
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from replay_tutorial.agents.agent import make_policy
from replay_tutorial.apex.messages import EvaluationReport
from replay_tutorial.apex.policy_selection import Candidate, PolicySelection
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.local.shared_context import POLL_SECONDS, RunSeeds, SharedContext, Tell
from replay_tutorial.local.worker import lower_priority, run_worker


class Evaluator:
    """A chooser and its ends of the mailbox and the run's folder.

    Args:
        common: What it shares with the others.
        folder: Where the best policy goes.
        solved_at: As for the chooser.
        best: The best policy so far, of a run that is resumed.
        evaluated_update: The update that had made the weights that were judged last.
        tell: How its messages get to the parent.
    """

    def __init__(
        self,
        common: SharedContext,
        folder: RunFolder,
        solved_at: float | None,
        best: Candidate | None,
        evaluated_update: int,
        tell: Tell,
    ) -> None:
        self.common = common
        self.folder = folder
        self.evaluated_update = evaluated_update
        self.tell = tell
        config, seeds = common.config, RunSeeds(common.config)
        policy = make_policy(config, common.spaces)
        self.chooser = PolicySelection(
            policy,
            config.environment,
            seeds.evaluation,
            seeds.confirmation,
            solved_at,
            config.evaluation_step_limit,
        )
        self.chooser.best = best

    def look(self, last: bool = False) -> None:
        """Judge the newest policy if it is due: so many updates after the last one that was evaluated.

        Args:
            last: Judge it even if it isn't due, unless it has been judged already.
        """
        update = self.common.update_of(self.common.mailbox.version)
        is_new = update > self.evaluated_update or self.chooser.best is None
        if update < self.evaluated_update + self.common.config.evaluation_interval and not (last and is_new):
            return
        pulled = self.common.mailbox.pull(0)
        if pulled is None:  # the learner has not begun
            return
        version, weights = pulled
        step, before = self.common.steps, self.chooser.best
        evaluation = self.chooser.consider(weights, step)
        self.evaluated_update = self.common.update_of(version)
        best = self.chooser.best
        if best is not None and best is not before:
            self.folder.save_policy(best.weights, best.step, best.confirmation.returns)
        proof = None if best is None or best is before else best.confirmation
        self.tell(EvaluationReport(step, self.evaluated_update, evaluation, proof, self.chooser.solved))


@dataclass(frozen=True)
class EvaluatorTask:
    """What the evaluator's process is started with."""

    common: SharedContext
    folder: RunFolder
    solved_at: float | None
    best: Candidate | None
    evaluated_update: int
    messages: Connection


def run_evaluator(task: EvaluatorTask) -> None:
    """Be the evaluator's process: judge until told to stop, or until the parent is gone."""
    lower_priority()  # learner and actors don't wait for a judgement
    run_worker(lambda: judge(task), task.messages, task.common.config.threads)


def judge(task: EvaluatorTask) -> None:
    """Judge policies until told to stop, and once more if told so."""
    common = task.common
    evaluator = Evaluator(
        common, task.folder, task.solved_at, task.best, task.evaluated_update, task.messages.send
    )
    threading.Thread(target=leave_when_stopped, args=(common,), daemon=True).start()
    while not common.stopped:
        evaluator.look()
        time.sleep(POLL_SECONDS / 2)
    if common.last_look:
        evaluator.look(last=True)


def leave_when_stopped(common: SharedContext) -> None:
    """End this process as soon as nobody wants its judgement any more, in the midst of an episode, too."""
    while not common.stopped:
        time.sleep(POLL_SECONDS)
    if not common.last_look:
        os._exit(0)
