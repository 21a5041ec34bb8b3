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
from replay_tutorial.apex.messages import Judgement
from replay_tutorial.apex.policy_selection import Candidate, Chooser
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.local.shared_context import PATIENCE, Common, RunSeeds, Tell
from replay_tutorial.local.worker import be_a_process, give_way


class Evaluator:
    """A chooser and its ends of the mailbox and the run's folder.

    Args:
        common: What it shares with the others.
        folder: Where the best policy goes.
        solved_at: As for the chooser.
        best: The best policy so far, of a run that is resumed.
        judged: The update that had made the weights that were judged last.
        tell: How its messages get to the parent.
    """

    def __init__(
        self,
        common: Common,
        folder: RunFolder,
        solved_at: float | None,
        best: Candidate | None,
        judged: int,
        tell: Tell,
    ) -> None:
        self.common = common
        self.folder = folder
        self.judged = judged
        self.tell = tell
        config, seeds = common.config, RunSeeds(common.config)
        policy = make_policy(config, common.spaces)
        self.chooser = Chooser(
            policy,
            config.environment,
            seeds.evaluation,
            seeds.confirmation,
            solved_at,
            config.evaluation_step_limit,
        )
        self.chooser.best = best

    def look(self, last: bool = False) -> None:
        """Judge the newest policy if it is due: so many updates after the last one that was judged.

        Args:
            last: Judge it even if it isn't due, unless it has been judged already.
        """
        update = self.common.update_of(self.common.mailbox.version)
        is_new = update > self.judged or self.chooser.best is None
        if update < self.judged + self.common.config.evaluation_interval and not (last and is_new):
            return
        pulled = self.common.mailbox.pull(0)
        if pulled is None:  # the learner has not begun
            return
        version, weights = pulled
        step, before = self.common.steps, self.chooser.best
        evaluation = self.chooser.consider(weights, step)
        self.judged = self.common.update_of(version)
        best = self.chooser.best
        if best is not None and best is not before:
            self.folder.save_policy(best.weights, best.step, best.proof.returns)
        proof = None if best is None or best is before else best.proof
        self.tell(Judgement(step, self.judged, evaluation, proof, self.chooser.solved))


@dataclass(frozen=True)
class EvaluatorTask:
    """What the evaluator's process is started with."""

    common: Common
    folder: RunFolder
    solved_at: float | None
    best: Candidate | None
    judged: int
    messages: Connection


def run_evaluator(task: EvaluatorTask) -> None:
    """Be the evaluator's process: judge until told to stop, or until the parent is gone."""
    give_way()  # learner and actors don't wait for a judgement
    be_a_process(lambda: judge(task), task.messages, task.common.config.threads)


def judge(task: EvaluatorTask) -> None:
    """Judge policies until told to stop, and once more if told so."""
    common = task.common
    evaluator = Evaluator(common, task.folder, task.solved_at, task.best, task.judged, task.messages.send)
    threading.Thread(target=leave_when_stopped, args=(common,), daemon=True).start()
    while not common.stopped:
        evaluator.look()
        time.sleep(PATIENCE / 2)
    if common.last_look:
        evaluator.look(last=True)


def leave_when_stopped(common: Common) -> None:
    """End this process as soon as nobody wants its judgement any more, in the midst of an episode, too."""
    while not common.stopped:
        time.sleep(PATIENCE)
    if not common.last_look:
        os._exit(0)
