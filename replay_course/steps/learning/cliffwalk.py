"""Blind Cliffwalk: does prioritized replay need fewer updates if one row in thousands has a reward?

The environment has n states in a row. In each state one of two actions leads to the next state and the other
ends the episode; only the correct action in the last state is rewarded. The buffer holds each of the 2^n
sequences of actions once, run to its end, so one of its 2^(n+1) - 2 rows has a reward. A Q table learns from
one row per update until it is accurate, and the updates are counted. The probability of drawing each row is
the only difference between the samplers; both use the package's buffers.

Paper: Schaul et al. 2016, section 3.1 and appendix B.1.
"""

import math

import numpy as np
from numpy.typing import NDArray

from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer

STEP_SIZE = 0.25
GOOD_ENOUGH = 1e-3  # mean squared error of the table
FIELDS = {
    "obs": {"dtype": np.int64},
    "action": {"dtype": np.int64},
    "reward": {},
    "next_obs": {"dtype": np.int64},
    "discount": {},
}


def true_values(states: int) -> NDArray[np.float64]:
    """Return Q(s, a): float64[states, 2]. Action 1 in even states and action 0 in odd states continue.

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
    """Return the rows of all sequences of actions, each run to its end: 2^(n+1) - 2 rows."""
    gamma = 1.0 - 1.0 / states
    rows: list[tuple[int, int, float, int, float]] = []
    for state in range(states):
        right = 1 - state % 2
        last = state == states - 1
        # Of 2^n sequences, 2^(n-s) reach state s; half of these continue from there.
        times = 2 ** (states - state - 1)
        rows += [(state, 1 - right, 0.0, 0, 0.0)] * times
        rows += [(state, right, float(last), 0 if last else state + 1, 0.0 if last else gamma)] * times
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return dict(zip(FIELDS, columns, strict=True))


def updates_needed(states: int, alpha: float | None, seed: int, limit: int = 10**8) -> int:
    """Learn from one row per update until the table is accurate.

    Args:
        states: n, the number of states.
        alpha: Exponent of the priorities; None samples uniformly.
        seed: Seed for sampling and for the initial table.
        limit: Maximum number of updates.

    Returns:
        The number of updates until the mean squared error is below 1e-3.

    Raises:
        RuntimeError: If `limit` updates are not enough.
    """
    rows = memory_of(states)
    size = len(rows["obs"])
    buffer = (
        ReplayBuffer(size, FIELDS, seed=seed)
        if alpha is None
        else PrioritizedReplayBuffer(size, FIELDS, alpha=alpha, eps=1e-3, seed=seed)
    )
    buffer.add(**rows)
    # Flat lists: Q(s, a) is entry 2 * s + a. A table of zeros would have no error except at the reward.
    truth: list[float] = true_values(states).ravel().tolist()
    table: list[float] = np.random.default_rng(seed).normal(0.0, 0.1, 2 * states).tolist()
    good_enough = math.sqrt(GOOD_ENOUGH * 2 * states)  # as a distance
    for update in range(1, limit + 1):
        # beta = 0: no importance weights, whose only purpose is to correct the bias of a network's updates.
        sample = (
            buffer.sample(1, beta=0.0) if isinstance(buffer, PrioritizedReplayBuffer) else buffer.sample(1)
        )
        state, action, reward, following, discount = (sample[name].item() for name in FIELDS)
        entry, best = 2 * state + action, max(table[2 * following : 2 * following + 2])
        delta = reward + discount * best - table[entry]
        table[entry] += STEP_SIZE * delta
        if isinstance(buffer, PrioritizedReplayBuffer):
            buffer.update_priorities(sample["indexes"], np.array([abs(delta)]))
        if math.dist(table, truth) < good_enough:
            return update
    raise RuntimeError(f"{states} states with alpha {alpha} require more than {limit} updates.")
