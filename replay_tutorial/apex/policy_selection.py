"""Policy selection: which of all the policies of a run is its result?

A policy can get worse from one moment to the next while it learns, so the last one may be a poor choice. The
selection evaluates it now and then and keeps the best so far, in two rounds, because a high mean over a few
episodes is often luck: a policy that does well in the first evaluation plays many other episodes, its
confirmation, and only those count.

Left out: averaging the parameters of several policies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.evaluation import AT_ONCE, Evaluation, evaluate, until


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


@dataclass
class PolicySelection:
    """The best policy so far, and how it is found."""

    policy: Policy  # plays the episodes, with the parameters that it is given
    environment: str
    evaluation_seeds: Sequence[int]  # episodes of the first round, for every policy
    confirmation_seeds: Sequence[int]  # of the second, for a policy that may be the best; possibly none
    solved_at: float | None  # the mean return that the lower bound has to reach, if there is a target
    step_limit: int | None = None  # steps after which an episode is cut; None never cuts
    best: Candidate | None = None
    at_once: int = AT_ONCE  # environments of an evaluation
    is_stopped: Callable[[], bool] = never  # asked before each step of the evaluation

    def consider(self, parameters: NDArray[np.float32], step: int) -> Evaluation:
        """Evaluate a policy and keep it if it is the best so far; return the evaluation of the first round.

        The vector must not change afterwards.

        Raises:
            Stopped: If the evaluation was stopped. Nothing has changed then.
        """
        self.policy.set_parameters(parameters)
        first = self._play(self.evaluation_seeds)
        if self.best is None or first.mean >= self.best.confirmation.mean:
            confirmation = self._play(self.confirmation_seeds) if self.confirmation_seeds else first
            # A tie goes to the later one: it has learned more.
            if self.best is None or confirmation.mean >= self.best.confirmation.mean:
                self.best = Candidate(parameters, step, confirmation)
        return first

    @property
    def solved(self) -> bool:
        """Whether the lower bound of the best policy's mean return meets the target."""
        return self.best is not None and self.best.solves(self.solved_at)

    def _play(self, seeds: Sequence[int]) -> Evaluation:
        act = until(self.is_stopped, self.policy.act_greedily)
        return evaluate(act, self.environment, seeds, self.step_limit, self.at_once)
