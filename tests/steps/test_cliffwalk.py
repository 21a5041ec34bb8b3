"""Blind Cliffwalk: the memory holds all walks, and prioritized replay needs far fewer updates."""

from collections import Counter
from itertools import product

import pytest
from cliffwalk import compare

from replay_course.steps.learning.cliffwalk import memory_of, true_values, updates_needed


def walked(actions):
    """Rows of one walk, step by step: state, action, reward, next state, discount."""
    n = len(actions)
    for state, action in enumerate(actions):
        if action == state % 2:  # off the cliff
            yield (state, action, 0.0, 0, 0.0)
            return
        if state == n - 1:
            yield (state, action, 1.0, 0, 0.0)
            return
        yield (state, action, 0.0, state + 1, 1.0 - 1.0 / n)


@pytest.mark.parametrize("states", [2, 3, 5])
def test_memory_holds_every_walk_once(states):
    expected = Counter(row for actions in product([0, 1], repeat=states) for row in walked(actions))
    rows = Counter(zip(*(column.tolist() for column in memory_of(states).values()), strict=True))
    assert rows == expected
    assert sum(rows.values()) == 2 ** (states + 1) - 2
    assert sum(count for row, count in rows.items() if row[2] > 0) == 1


def test_true_values_solve_bellmans_equation():
    values = true_values(5)
    for state, action, reward, following, discount in zip(*memory_of(5).values(), strict=True):
        assert values[state, action] == pytest.approx(reward + discount * values[following].max())


def test_prioritized_replay_needs_a_fraction_of_the_updates_and_alpha_0_is_uniform():
    uniform, flat, usual, full = compare(8, runs=10, samplers=["uniform", "alpha 0", "alpha 0.6", "alpha 1"])
    assert uniform.median >= 4 * usual.median
    assert uniform.median >= 6 * full.median
    assert min(uniform.updates) > max(usual.updates) > min(usual.updates) > max(full.updates)
    # The medians of 10 runs, whose spread is about a fifth of it: 0.6 to 1.7 is four standard deviations.
    assert 0.6 < flat.median / uniform.median < 1.7


def test_walk_without_an_end_is_given_up():
    with pytest.raises(RuntimeError, match="100 updates"):
        updates_needed(8, alpha=None, seed=0, limit=100)
