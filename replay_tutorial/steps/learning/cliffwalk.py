"""Blind Cliffwalk: does prioritized replay learn from fewer updates where one row in thousands has a reward?

A walk of n states: in each, one of two actions leads on and the other ends the episode; only the last right
one pays. The memory holds each of the 2^n sequences of actions once, run to its end, so that one of its
2^(n+1) - 2 rows has a reward. A table of Q learns from one row per update until it is right, and the
updates are counted. How often a row is drawn is the only difference between the samplers; the buffers are
the package's own.

Paper: Schaul et al. 2016, section 3.1 and appendix B.1.
"""

import numpy as np
from numpy.typing import NDArray

from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer

STEP_SIZE = 0.25
GOOD_ENOUGH = 1e-3  # mean squared error of the table
FIELDS = {
    "obs": {"shape": (), "dtype": np.int64},
    "act": {"shape": (), "dtype": np.int64},
    "rew": {"shape": ()},
    "next_obs": {"shape": (), "dtype": np.int64},
    "discount": {"shape": ()},
}


def true_values(states: int) -> NDArray[np.float64]:
    """Return Q(s, a): float64[states, 2]; action 1 of an even state and action 0 of an odd one lead on.

    Example:
        >>> true_values(2).tolist()
        [[0.0, 0.5], [1.0, 0.0]]
    """
    gamma = 1.0 - 1.0 / states
    values = np.zeros((states, 2))
    for state in range(states):
        values[state, 1 - state % 2] = gamma ** (states - 1 - state)
    return values


def memory_of(states: int) -> dict[str, NDArray[np.generic]]:
    """Return the rows of all sequences of actions, each run to its end: 2^(n+1) - 2 of them."""
    gamma = 1.0 - 1.0 / states
    rows: list[tuple[int, int, float, int, float]] = []
    for state in range(states):
        right = 1 - state % 2
        last = state == states - 1
        # 2^n sequences, of which 2^(n-s) come to state s; half of them go on from there.
        times = 2 ** (states - state - 1)
        rows += [(state, 1 - right, 0.0, 0, 0.0)] * times
        rows += [(state, right, float(last), 0 if last else state + 1, 0.0 if last else gamma)] * times
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return dict(zip(FIELDS, columns, strict=True))


def updates_needed(states: int, alpha: float | None, seed: int, limit: int = 10**8) -> int:
    """Learn from one row per update until the table is right.

    Args:
        states: n, the length of the walk.
        alpha: How much priorities matter; None draws from a uniform buffer.
        seed: Decides the draws and the first table.
        limit: Give up after this many.

    Returns:
        The number of updates until the mean squared error was below 1e-3.

    Raises:
        RuntimeError: If `limit` updates weren't enough.
    """
    rows = memory_of(states)
    size = len(rows["obs"])
    buffer = (
        ReplayBuffer(size, FIELDS, seed=seed)
        if alpha is None
        else PrioritizedReplayBuffer(size, FIELDS, alpha=alpha, eps=1e-3, seed=seed)
    )
    buffer.add(**rows)
    truth: list[list[float]] = true_values(states).tolist()
    # A table of zeros would have no error anywhere but at the reward.
    table: list[list[float]] = np.random.default_rng(seed).normal(0.0, 0.1, (states, 2)).tolist()
    enough = GOOD_ENOUGH * 2 * states
    error = squared_error(table, truth)
    for update in range(1, limit + 1):
        # beta = 0: no importance weights, whose only task is to keep a network unbiased.
        sample = (
            buffer.sample(1, beta=0.0) if isinstance(buffer, PrioritizedReplayBuffer) else buffer.sample(1)
        )
        state, action = int(sample["obs"][0]), int(sample["act"][0])
        following = max(table[int(sample["next_obs"][0])])
        delta = float(sample["rew"][0]) + float(sample["discount"][0]) * following - table[state][action]
        before = table[state][action] - truth[state][action]
        table[state][action] += STEP_SIZE * delta
        if isinstance(buffer, PrioritizedReplayBuffer):
            buffer.update_priorities(sample["indexes"], np.array([abs(delta)]))
        # Only one entry has changed; summed up anew before it counts, as differences add rounding errors.
        error += (table[state][action] - truth[state][action]) ** 2 - before**2
        if error < enough and (error := squared_error(table, truth)) < enough:
            return update
    raise RuntimeError(f"{limit} updates weren't enough for {states} states with alpha {alpha}.")


def squared_error(table: list[list[float]], truth: list[list[float]]) -> float:
    """Return the sum of squared differences of two tables."""
    return sum(
        (a - b) ** 2 for row, true in zip(table, truth, strict=True) for a, b in zip(row, true, strict=True)
    )
