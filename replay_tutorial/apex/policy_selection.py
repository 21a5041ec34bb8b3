"""Choosing the policy: which of all the networks of a run is the one to keep?

A network that learns fast is good one moment and worse the next, so the last one may be a poor choice. The chooser
looks at the network now and then and keeps the best so far, in two rounds, because good luck in a few episodes is common
when one looks often: a network that does well in a few episodes has to prove it in many others, and only those count.

Left out: averaging the weights of several networks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.evaluation import Evaluation, evaluate


class Candidate(NamedTuple):
    """An agent as it was at one moment, and how it did."""

    parameters: NDArray[np.float32]  # of its policy
    step: int  # when it was copied, in environment steps
    confirmation: Evaluation  # the second round; the first one where there is no second

    def solves(self, bar: float | None) -> bool:
        """Tell whether it is surely above a bar, if there is one."""
        return bar is not None and self.confirmation.lower_bound >= bar


class PolicySelection:
    """Keeps the weights of the best policy seen.

    Args:
        policy: Plays the episodes, with the weights that it is given.
        environment: The environment's name.
        first_seeds: Episodes of the first round, for every network.
        more_seeds: Episodes of the second round, for those that may be the best; maybe none.
        solved_at: The mean return that has to be surpassed surely; None if there is no such bar.
        step_limit: Where episodes are cut; None never cuts.
    """

    def __init__(
        self,
        policy: Policy,
        environment: str,
        first_seeds: Sequence[int],
        more_seeds: Sequence[int],
        solved_at: float | None,
        step_limit: int | None = None,
    ) -> None:
        self.policy = policy
        self.environment = environment
        self.first_seeds = first_seeds
        self.more_seeds = more_seeds
        self.solved_at = solved_at
        self.step_limit = step_limit
        self.best: Candidate | None = None

    def consider(self, weights: NDArray[np.float32], step: int) -> Evaluation:
        """Evaluate weights and keep them if they are the best so far; the vector must not change afterwards.

        Returns:
            What they brought in the first round.
        """
        self.policy.set_parameters(weights)
        first = self._play(self.first_seeds)
        if self.best is None or first.mean >= self.best.confirmation.mean:
            confirmation = self._play(self.more_seeds) if self.more_seeds else first
            # At a tie the later one: it has learned more.
            if self.best is None or confirmation.mean >= self.best.confirmation.mean:
                self.best = Candidate(weights, step, confirmation)
        return first

    @property
    def solved(self) -> bool:
        """Whether the best network is surely above the bar."""
        return self.best is not None and self.best.solves(self.solved_at)

    def _play(self, seeds: Sequence[int]) -> Evaluation:
        return evaluate(self.policy.act_greedily, self.environment, seeds, self.step_limit)
