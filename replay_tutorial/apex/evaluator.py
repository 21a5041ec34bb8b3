"""The evaluator: evaluates policies during the run and keeps the best one.

A policy can get worse at any time while it learns, so the last one may be a poor choice. The evaluator
regularly evaluates the newest policy in two rounds, because a high mean over a few episodes is often luck: a
policy that does well in the first round plays many more episodes, its confirmation, and only the
confirmations are compared.

The evaluator runs beside the learner. If an evaluation takes a long time, the policies published
meanwhile are skipped. The best policy is written to disk immediately, so that a crash doesn't lose it.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.evaluation import Evaluation, evaluate, stop_when
from replay_tutorial.apex.context import POLL_SECONDS, Context, Published
from replay_tutorial.apex.messages import EvaluationReport
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.seeds import RunSeeds


class Candidate(NamedTuple):
    """A snapshot of a policy with its evaluation.

    Attributes:
        parameters: float32[parameter_count].
        step: Environment steps when the parameters were pulled.
        confirmation: The second round of episodes, or the first if there is no second.
    """

    parameters: NDArray[np.float32]
    step: int
    confirmation: Evaluation

    def solves(self, target: float | None) -> bool:
        """Return whether the lower bound of the mean return reaches the target, if there is one."""
        return target is not None and self.confirmation.lower_bound >= target


class Evaluator:
    """Evaluates policies and keeps the best one.

    `keep` is called with each candidate that is the best so far, and `is_stopped` before each step of an
    evaluation; if it returns True, the evaluation raises `EvaluationStopped`. In a resumed run, `best` is the
    best policy so far, and `evaluated_update` the last update whose parameters were evaluated.
    """

    def __init__(
        self,
        context: Context,
        keep: Callable[[Candidate], object],
        solved_at: float | None,
        best: Candidate | None,
        evaluated_update: int,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.context = context
        self.keep = keep
        self.solved_at = solved_at
        self.best = best
        self.evaluated_update = evaluated_update
        self.is_stopped = is_stopped
        self.seeds = RunSeeds(context.config)
        self.policy = make_policy(context.config, context.spaces)  # acts in the evaluations
        self.newest: Published | None = None

    @property
    def solved(self) -> bool:
        """Whether the lower bound of the best policy's mean return reaches the target."""
        return self.best is not None and self.best.solves(self.solved_at)

    def evaluate_if_due(self, last: bool = False) -> None:
        """Evaluate the newest policy if an evaluation is due.

        It is due `evaluation_interval` updates after the policy that was evaluated last; with `last`, for any
        policy that has not been evaluated. After EvaluationStopped, the next call repeats the evaluation.
        """
        known = 0 if self.newest is None else self.newest.version
        self.newest = self.context.parameters.pull(known) or self.newest
        if self.newest is None:  # nothing has been published
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
        """Evaluate a policy; return its first round, and a candidate if it is the best so far."""
        self.policy.set_parameters(parameters)
        first, best = self._play(self.seeds.evaluation), self.best
        if best is None or first.mean >= best.confirmation.mean:
            confirmation = self._play(self.seeds.confirmation) if self.seeds.confirmation else first
            # In a tie, the later policy wins, because it has learned from more data.
            if best is None or confirmation.mean >= best.confirmation.mean:
                return first, Candidate(parameters, step, confirmation)
        return first, None

    def _play(self, seeds: Sequence[int]) -> Evaluation:
        config = self.context.config
        action = stop_when(self.is_stopped, self.policy.act_greedily)
        limit, num_envs = config.evaluation_step_limit, config.evaluation_environments
        return evaluate(action, config.environment, seeds, limit, num_envs)


def evaluate_policies(evaluator: Evaluator) -> None:
    """Evaluate policies until the run is stopped, and once more if a last evaluation is requested."""
    context = evaluator.context
    while not context.stop.requested:
        evaluator.evaluate_if_due()
        time.sleep(POLL_SECONDS / 2)
    if context.stop.last_evaluation:
        evaluator.evaluate_if_due(last=True)
