"""Relabel steps when they are sampled: store each step once, and draw new goals for every batch.

    draw steps ──▶ draw a goal for each ──▶ recompute rewards and `terminated` for all rows at once

Improvement over relabelling at the end: the goals take no memory, and each batch has other goals. For every
step, the memory must know where its episode ends, so that no goal is drawn from another episode.

Remaining problem: the list grows without bound. The package's `HindsightReplayBuffer` stores the steps in a
ring, where old episodes are partly overwritten, and also supports priorities and n-step returns.

Paper: Andrychowicz et al. 2017, section 4.5 (strategy "future").
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_course.steps.goals.bit_flip import GoalStep, OneGoal, batch_of, reached, reward


class RelabelWhenSampled(OneGoal):
    """A list of steps that receive new goals when they are sampled, with a given probability."""

    def __init__(self, seed: int = 0, probability: float = 0.8) -> None:
        """Create an empty list."""
        super().__init__(seed)
        self.probability = probability
        self.ends: list[int] = []  # of each step: the position after the last step of its episode

    def add_episode(self, episode: Sequence[GoalStep]) -> None:
        """Store the steps of an episode, and where it ends."""
        super().add_episode(episode)
        self.ends += [len(self.steps)] * len(episode)

    def sample(self, batch_size: int) -> dict[str, NDArray[Any]]:
        """Sample steps uniformly, and draw new goals for some of them."""
        drawn = self.rng.integers(len(self.steps), size=batch_size)
        changed = self.rng.random(batch_size) < self.probability
        batch = batch_of([self.steps[i] for i in drawn])
        batch["goal"] = np.where(changed[:, np.newaxis], self.new_goals(drawn), batch["goal"])
        batch["reward"] = reward(batch["next_obs"], batch["goal"])
        batch["terminated"] = reached(batch["next_obs"], batch["goal"])
        return batch

    def new_goals(self, drawn: NDArray[np.int64]) -> NDArray[Any]:
        """Return for each step a goal achieved after its action or the action of a later step."""
        later = self.rng.integers(drawn, [self.ends[i] for i in drawn])
        return np.stack([self.steps[i].next_obs for i in later])
