"""Relabel steps when an episode ends: store each step again, with goals that were achieved after it.

    episode with goal g     s_0 ──▶ s_1 ──▶ s_2 ──▶ s_3          reward -1 -1 -1
    the same with goal s_2  s_0 ──▶ s_1 ──▶ s_2                   reward -1  0

Improvement over one goal: a failed episode contains rewards, those for reaching the states that it reached.

Remaining problem: with k new goals per step, the memory is k + 1 times as large, and a step's goals never
change.

Paper: Andrychowicz et al. 2017, algorithm 1 and section 4.5 (strategy "future").
"""

from collections.abc import Callable, Sequence

import numpy as np

from replay_course.steps.goals.bit_flip import Bits, GoalStep, OneGoal, reached, reward


def with_goal(step: GoalStep, goal: Bits) -> GoalStep:
    """Return a step as it would have been stored if the agent had pursued another goal."""
    new_reward, terminated = float(reward(step.next_obs, goal)), bool(reached(step.next_obs, goal))
    return step._replace(goal=goal, reward=new_reward, terminated=terminated)


def relabel(episode: Sequence[GoalStep], t: int, rng: np.random.Generator) -> GoalStep:
    """Return step t with a goal that was achieved after the action of step t or of a later step."""
    later = episode[int(rng.integers(t, len(episode)))]  # t, t + 1, ..., or the last step
    return with_goal(episode[t], later.next_obs)


class RelabelAtTheEnd(OneGoal):
    """A list of steps: each is stored with its own goal, and k times with a new goal."""

    def __init__(
        self,
        seed: int = 0,
        k: int = 4,
        relabel: Callable[[Sequence[GoalStep], int, np.random.Generator], GoalStep] = relabel,
    ) -> None:
        """Create an empty list; `relabel` returns a step with a new goal."""
        super().__init__(seed)
        self.k, self.relabel = k, relabel

    def add_episode(self, episode: Sequence[GoalStep]) -> None:
        """Store the steps of an episode with their own goal, and with new goals."""
        super().add_episode(episode)
        for t in range(len(episode)):
            self.steps += [self.relabel(episode, t, self.rng) for _ in range(self.k)]
