"""N-step returns over a plain list: sum the rewards of n steps into one row.

A step (s_t, a_t, r_t, s_t+1) becomes a row (s_t, a_t, R, s_t+k, discount), k steps long:

    R = r_t + γ r_t+1 + … + γ^(k-1) r_t+k-1        discount = γ^k, or 0 if the last of the k steps terminated

so that the target is `R + discount * max_a Q(s_t+k, a)`, whatever k was. k is n, or as many steps as there
are to the end of the episode: the tails. What may end an episode:

    terminated   the pole fell. There is no future, and no value to bootstrap from: discount 0
    truncated    somebody stopped the clock. The world would have gone on: discount γ^k

What it fixes of 1-step rows: a reward reaches the states before it n times as fast.

Still wrong with it: it needs the whole list, and sums each window anew. The package's `NStep` keeps only the
steps that wait.

Source: Sutton and Barto 2018, section 7.1; Pardo et al. 2018 (time limits).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Step(NamedTuple):
    """What one `env.step` gave."""

    obs: Any  # s_t
    act: Any  # a_t
    rew: float  # r_t
    next_obs: Any  # s_t+1
    terminated: bool = False
    truncated: bool = False


class Row(NamedTuple):
    """What is stored of up to n steps."""

    obs: Any  # s_t
    act: Any  # a_t
    rew: float  # R, of k steps
    next_obs: Any  # s_t+k
    discount: float  # γ^k, or 0


def window(steps: Sequence[Step], start: int, n: int) -> Sequence[Step]:
    """Return the steps from `start` to the end of their episode, n at most; none while steps are missing."""
    for stop in range(start + 1, min(start + n, len(steps)) + 1):
        if steps[stop - 1].terminated or steps[stop - 1].truncated:
            return steps[start:stop]
    return steps[start : start + n] if start + n <= len(steps) else []


def fold(steps: Sequence[Step], gamma: float) -> Row:
    """Make one row of the steps of a window."""
    total, discount = 0.0, 1.0
    for step in steps:
        total += discount * step.rew
        discount *= gamma  # once per reward: γ^k for the k rewards that are really there
    first, last = steps[0], steps[-1]
    return Row(first.obs, first.act, total, last.next_obs, 0.0 if last.terminated else discount)


def n_step(steps: Sequence[Step], n: int, gamma: float) -> list[Row]:
    """Return a row for each step whose window is whole.

    Args:
        steps: Of one environment, in order, of any number of episodes; the last one may be open.
        n: The most steps of a row, at least 1.
        gamma: The discount of one step.

    Example:
        >>> steps = [Step(obs=t, act=0, rew=1.0, next_obs=t + 1, terminated=t == 2) for t in range(3)]
        >>> for row in n_step(steps, n=2, gamma=0.5):
        ...     print(row.obs, row.rew, row.next_obs, row.discount)
        0 1.5 2 0.25
        1 1.5 3 0.0
        2 1.0 3 0.0
    """
    windows = (window(steps, start, n) for start in range(len(steps)))
    return [fold(those, gamma) for those in windows if those]
