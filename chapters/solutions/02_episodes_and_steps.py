"""Solutions of chapter 02: the n-step window and the exercises."""

from replay_course.steps.learning.n_step_stream import NStepStream

# The n-step window: the class that the chapter shows.
MyNStepStream = NStepStream

# 1. γ to the power of the number of rewards in the row; truncation doesn't set it to 0.
my_discounts = [0.125, 0.125, 0.25, 0.5]


def my_n_step(rewards, terminated, n, gamma):
    """2. A slice stops at the end of the episode."""
    rows = []
    for start in range(len(rewards)):
        part = rewards[start : start + n]
        value = sum(gamma**k * reward for k, reward in enumerate(part))
        is_last = start + n >= len(rewards)
        rows.append((value, 0.0 if terminated and is_last else gamma ** len(part)))
    return rows


def my_row(rewards, terminated, n, gamma):
    """3. A tail of k rewards leads k steps ahead, so its discount is γ^k, not γ^n."""
    total = sum(gamma**k * reward for k, reward in enumerate(rewards))
    return total, 0.0 if terminated else gamma ** len(rewards)
