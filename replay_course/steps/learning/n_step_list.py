"""N-step returns from a plain list: sum the rewards of n steps into one row.

A step (s_t, a_t, r_t, s_t+1) becomes a row (s_t, a_t, R, s_t+k, discount) over k steps:

    R = r_t + γ r_t+1 + … + γ^(k-1) r_t+k-1        discount = γ^k, or 0 if the last of the k steps terminated

so the target is `R + discount * max_a Q(s_t+k, a)` for any k. k is n, or the number of steps left in the
episode if it is smaller. An episode ends in one of two ways:

    terminated   the pole fell: there is no next state to bootstrap from, so the discount is 0
    truncated    a time limit was reached: the environment could have continued, so the discount is γ^k

Improvement over 1-step rows: a reward propagates to the states before it n times as fast.

Remaining problem: `n_step` needs the complete list and sums each window from scratch. The package's
`NStepWindow` keeps only the steps of unfinished windows.

Source: Sutton and Barto 2018, section 7.1; Pardo et al. 2018 (time limits).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Step(NamedTuple):
    """The data of one `env.step`."""

    obs: Any  # s_t
    action: Any  # a_t
    reward: float  # r_t
    next_obs: Any  # s_t+1
    terminated: bool = False
    truncated: bool = False


class Row(NamedTuple):
    """The stored row of up to n steps."""

    obs: Any  # s_t
    action: Any  # a_t
    reward: float  # R, of k steps
    next_obs: Any  # s_t+k
    discount: float  # γ^k, or 0


def window(steps: Sequence[Step], start: int, n: int) -> Sequence[Step]:
    """Return at most n steps from `start` to the end of the episode; empty if steps are missing."""
    for stop in range(start + 1, min(start + n, len(steps)) + 1):
        if steps[stop - 1].terminated or steps[stop - 1].truncated:
            return steps[start:stop]
    return steps[start : start + n] if start + n <= len(steps) else []


def fold(steps: Sequence[Step], gamma: float) -> Row:
    """Combine the steps of a window into one row."""
    total, discount = 0.0, 1.0
    for step in steps:
        total += discount * step.reward
        discount *= gamma  # once per reward, so γ^k for k rewards
    first, last = steps[0], steps[-1]
    return Row(first.obs, first.action, total, last.next_obs, 0.0 if last.terminated else discount)


def n_step(steps: Sequence[Step], n: int, gamma: float) -> list[Row]:
    """Return a row for each step whose window is complete.

    Args:
        steps: Steps of one environment, in order, of any number of episodes; the last may be unfinished.
        n: Maximum number of steps of a row; at least 1.
        gamma: Discount per step.

    Example:
        >>> steps = [Step(obs=t, action=0, reward=1.0, next_obs=t + 1, terminated=t == 2) for t in range(3)]
        >>> for row in n_step(steps, n=2, gamma=0.5):
        ...     print(row.obs, row.reward, row.next_obs, row.discount)
        0 1.5 2 0.25
        1 1.5 3 0.0
        2 1.0 3 0.0
    """
    windows = (window(steps, start, n) for start in range(len(steps)))
    return [fold(those, gamma) for those in windows if those]
