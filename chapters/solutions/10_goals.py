"""Solutions of chapter 10: relabelling and the exercises."""

import numpy as np

from replay_course.steps.goals.bit_flip import reached, reward
from replay_course.steps.goals.relabel_at_the_end import relabel

# Relabelling: the function that the chapter shows.
my_relabel = relabel

# 1. future: one of the goals after steps 2, 3, 4 and 5; episode: one of six; final: only the last step reaches it.
my_answers = [1 / 4, 1 / 6, 1]


def my_row(episode, t, goal, n, gamma):
    """2. Compute each reward for the new goal, and stop at the step that reaches it."""
    total, discount = 0.0, 1.0
    for step in episode[t : t + n]:
        total += discount * reward(step.next_obs, goal)
        discount *= gamma
        if reached(step.next_obs, goal):
            return total, 0.0, step.next_obs
    return total, discount, step.next_obs


def my_is_fair(draw):
    """3. `round` halves the probability of the first and the last step. With t = 0, no step is impossible, but only then is `t or 1` wrong."""
    rng = np.random.default_rng(0)
    for t in (0, 3):  # five steps, about 1,000 draws of each, with a standard deviation of 28
        counts = np.bincount([draw(t, t + 5, rng) for _ in range(5000)], minlength=t + 5)[t:]
        if counts.min() < 800 or counts.max() > 1200:
            return False
    return True
