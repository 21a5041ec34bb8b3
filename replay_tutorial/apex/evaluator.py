"""The evaluator: takes the newest policy, lets `policy_selection` evaluate it, and keeps the best one.

It works beside the learner and never falls behind: of what was published while it was busy, it takes the
newest. The best policy is kept at once, so that it survives whatever happens to the run.

Left out: several evaluators.
"""

import time
from collections.abc import Callable

from replay_tutorial.apex.context import POLL_SECONDS, Context, Published
from replay_tutorial.apex.messages import EvaluationReport
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.policy_selection import Candidate, PolicySelection, never
from replay_tutorial.apex.seeds import RunSeeds


class Evaluator:
    """A policy selection, and its ends of the run.

    Args:
        context: Its side of the run.
        keep: Keeps a candidate that is the best so far.
        solved_at: As for the selection.
        best: The best policy so far, of a run that is resumed.
        evaluated_update: The update whose parameters were evaluated last.
        is_stopped: Asked before each step of an evaluation; True ends it with `Stopped`.
    """

    def __init__(
        self,
        context: Context,
        keep: Callable[[Candidate], object],
        solved_at: float | None,
        best: Candidate | None,
        evaluated_update: int,
        is_stopped: Callable[[], bool] = never,
    ) -> None:
        self.context = context
        self.keep = keep
        self.evaluated_update = evaluated_update
        self.newest: Published | None = None
        config, seeds = context.config, RunSeeds(context.config)
        self.selection = PolicySelection(
            make_policy(config, context.spaces),
            config.environment,
            seeds.evaluation,
            seeds.confirmation,
            solved_at,
            config.evaluation_step_limit,
            best,
            config.evaluation_environments,
            is_stopped,
        )

    def look(self, last: bool = False) -> None:
        """Evaluate the newest policy if it is due: `evaluation_interval` updates after the last one.

        Args:
            last: Evaluate it even if it isn't due, unless it has been evaluated already.

        Raises:
            Stopped: If the evaluation was stopped. The next call repeats it.
        """
        known = 0 if self.newest is None else self.newest.version
        self.newest = self.context.parameters.pull(known) or self.newest
        if self.newest is None:  # the learner has not begun
            return
        update, before = self.newest.update, self.selection.best
        is_new = update > self.evaluated_update or before is None
        is_due = update >= self.evaluated_update + self.context.config.evaluation_interval
        if not (is_due or (last and is_new)):
            return
        step = self.context.pace.steps
        evaluation = self.selection.consider(self.newest.parameters, step)
        self.evaluated_update = update
        best = self.selection.best
        confirmation, is_tie = None, False
        if best is not None and best is not before:
            self.keep(best)
            confirmation = best.confirmation
            is_tie = before is not None and confirmation.mean == before.confirmation.mean
        solved = self.selection.solved
        self.context.tell(EvaluationReport(step, update, evaluation, confirmation, solved, is_tie))


def evaluate_policies(evaluator: Evaluator) -> None:
    """Evaluate policies until told to stop, and once more if asked to."""
    context = evaluator.context
    while not context.stop.asked:
        evaluator.look()
        time.sleep(POLL_SECONDS / 2)
    if context.stop.last_evaluation:
        evaluator.look(last=True)
