"""The evaluator: which of all the policies of a run is its result?

A policy can get worse from one moment to the next while it learns, so the last one may be a poor choice. The
evaluator takes the newest one now and then and keeps the best so far, in two rounds, because a high mean over
a few episodes is often luck: a policy that does well in the first evaluation plays many other episodes, its
confirmation, and only those count.

It works beside the learner and never falls behind: of what was published while it was busy, it takes the
newest. The best policy is kept at once, so that it survives whatever happens to the run.

Left out: several evaluators; averaging the parameters of several policies.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.evaluation import Evaluation, evaluate, until
from replay_tutorial.apex.context import POLL_SECONDS, Context, Published
from replay_tutorial.apex.messages import EvaluationReport
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.seeds import RunSeeds


class Candidate(NamedTuple):
    """A policy as it was at one moment, and how it did."""

    parameters: NDArray[np.float32]
    step: int  # when it was copied, in environment steps
    confirmation: Evaluation  # the second round, or the first where there is no second

    def solves(self, target: float | None) -> bool:
        """Return whether the lower bound of its mean return meets the target, if there is one."""
        return target is not None and self.confirmation.lower_bound >= target


def never() -> bool:
    """Return False."""
    return False


class Evaluator:
    """The best policy so far, and how it is found.

    Args:
        context: Its side of the run.
        keep: Keeps a candidate that is the best so far.
        solved_at: The mean return that the lower bound has to reach, if there is a target.
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
        self.solved_at = solved_at
        self.best = best
        self.evaluated_update = evaluated_update
        self.is_stopped = is_stopped
        self.seeds = RunSeeds(context.config)
        self.policy = make_policy(context.config, context.spaces)  # plays the episodes
        self.newest: Published | None = None

    @property
    def solved(self) -> bool:
        """Whether the lower bound of the best policy's mean return meets the target."""
        return self.best is not None and self.best.solves(self.solved_at)

    def evaluate_if_due(self, last: bool = False) -> None:
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
        update, before = self.newest.update, self.best
        is_new = update > self.evaluated_update or before is None
        is_due = update >= self.evaluated_update + self.context.config.evaluation_interval
        if not (is_due or (last and is_new)):
            return
        step = self.context.counters.steps
        evaluation, best = self._evaluate_candidate(self.newest.parameters, step)
        self.evaluated_update = update
        confirmation, is_tie = None, False
        if best is not None:
            self.best = best
            self.keep(best)
            confirmation = best.confirmation
            is_tie = before is not None and confirmation.mean == before.confirmation.mean
        self.context.send_message(
            EvaluationReport(step, update, evaluation, confirmation, self.solved, is_tie)
        )

    def _evaluate_candidate(
        self, parameters: NDArray[np.float32], step: int
    ) -> tuple[Evaluation, Candidate | None]:
        """Evaluate a policy; return its first round, and the candidate if it is the best so far."""
        self.policy.set_parameters(parameters)
        first, best = self._play(self.seeds.evaluation), self.best
        if best is None or first.mean >= best.confirmation.mean:
            confirmation = self._play(self.seeds.confirmation) if self.seeds.confirmation else first
            # A tie goes to the later one: it has learned more.
            if best is None or confirmation.mean >= best.confirmation.mean:
                return first, Candidate(parameters, step, confirmation)
        return first, None

    def _play(self, seeds: Sequence[int]) -> Evaluation:
        config = self.context.config
        act = until(self.is_stopped, self.policy.act_greedily)
        limit, at_once = config.evaluation_step_limit, config.evaluation_environments
        return evaluate(act, config.environment, seeds, limit, at_once)


def evaluate_policies(evaluator: Evaluator) -> None:
    """Evaluate policies until told to stop, and once more if asked to."""
    context = evaluator.context
    while not context.stop.requested:
        evaluator.evaluate_if_due()
        time.sleep(POLL_SECONDS / 2)
    if context.stop.last_evaluation:
        evaluator.evaluate_if_due(last=True)
