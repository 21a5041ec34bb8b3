"""Choosing the policy: which of all the networks of a run is the one to keep?

A network that learns fast is good one moment and worse the next, so the last one may be a poor choice. The chooser
looks at the network now and then and keeps the best so far, in two rounds, because good luck in a few episodes is common
when one looks often: a network that does well in a few episodes has to prove it in many others, and only those count.

Left out: averaging the weights of several networks.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from replay_tutorial.apex.evaluate import Evaluation, evaluate
from replay_tutorial.apex.networks import DuelingNetwork, greedy_actions


class Candidate(NamedTuple):
    """A network as it was at one moment, and how it did."""

    network: DuelingNetwork  # a copy
    step: int  # when it was copied, in environment steps
    proof: Evaluation  # the second round; the first one where there is no second


class Chooser:
    """Keeps a copy of the best network seen.

    Args:
        environment: The environment's name.
        first_seeds: Episodes of the first round, for every network.
        more_seeds: Episodes of the second round, for those that may be the best; maybe none.
        solved_at: The mean return that has to be surpassed surely; None if there is no such bar.
    """

    def __init__(
        self,
        environment: str,
        first_seeds: Sequence[int],
        more_seeds: Sequence[int],
        solved_at: float | None,
    ) -> None:
        self.environment = environment
        self.first_seeds = first_seeds
        self.more_seeds = more_seeds
        self.solved_at = solved_at
        self.best: Candidate | None = None

    def consider(self, network: DuelingNetwork, step: int) -> Evaluation:
        """Evaluate a network and keep a copy of it if it is the best one so far.

        Returns:
            What it brought in the first round.
        """
        first = self._play(network, self.first_seeds)
        if self.best is None or first.mean >= self.best.proof.mean:
            proof = self._play(network, self.more_seeds) if self.more_seeds else first
            # At a tie the later one: it has learned more.
            if self.best is None or proof.mean >= self.best.proof.mean:
                self.best = Candidate(deepcopy(network), step, proof)
        return first

    @property
    def solved(self) -> bool:
        """Whether the best network is surely above the bar."""
        return (
            self.solved_at is not None and self.best is not None and self.best.proof.surely >= self.solved_at
        )

    def _play(self, network: DuelingNetwork, seeds: Sequence[int]) -> Evaluation:
        return evaluate(lambda observations: greedy_actions(network, observations), self.environment, seeds)
