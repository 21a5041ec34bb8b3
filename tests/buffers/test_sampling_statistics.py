"""Whether draws are distributed as they should be: Pearson's χ² with fixed seeds.

A test fails where chance alone would give so great a deviation in less than one of a million runs
(`LEAST`); seeds are fixed, so a failure is a change of the code, not bad luck. Stratified batches are more
even than chance, so the prioritized buffer is also drawn from one row at a time, where the strata are the
whole range and draws independent.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from oracles import PlainPriorities
from scipy.stats import chisquare

from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer

LEAST = 1e-6
ENV_DICT: dict[str, dict[str, Any]] = {"action": {"dtype": np.int64}}

# name: capacity, how many rows each call of add brings; 0 is clear
FILLINGS: dict[str, tuple[int, list[int]]] = {
    "one row": (8, [1]),
    "partly filled": (8, [5]),
    "full": (8, [8]),
    "wrapped": (8, [8, 5]),
    "wrapped often": (7, [5] * 20),
    "overlong batch": (7, [30]),
    "cleared and refilled": (8, [13, 0, 6]),
    "a thousand": (1000, [700, 700]),
}


def filled(kind: Any, filling: str, **arguments: Any) -> tuple[Any, list[int]]:
    """A buffer, and the indexes that are stored in it; `action` is the index."""
    capacity, counts = FILLINGS[filling]
    buffer = kind(capacity, ENV_DICT, seed=11, **arguments)
    following, stored = 0, []
    for count in counts:
        if count == 0:
            buffer.clear()
            stored = []
        else:
            buffer.add(action=np.arange(following, following + count))
            stored = [*stored, *range(following, following + count)][-capacity:]
            following += count
    return buffer, stored


def assert_distributed(drawn: np.ndarray, probabilities: dict[int, float]) -> None:
    counts = dict(zip(*(column.tolist() for column in np.unique(drawn, return_counts=True)), strict=True))
    possible = {index: share for index, share in probabilities.items() if share > 0}
    assert set(counts) <= set(possible), "a row was drawn that can't be"
    if len(possible) == 1:
        return
    observed = [counts.get(index, 0) for index in possible]
    expected = [len(drawn) * share for share in possible.values()]
    assert min(expected) >= 5, "too few draws for the χ² distribution to hold"
    assert chisquare(observed, expected).pvalue > LEAST


@pytest.mark.parametrize("filling", FILLINGS)
def test_uniform_draws_are_uniform_over_the_stored_rows(filling):
    buffer, stored = filled(ReplayBuffer, filling)
    drawn = np.concatenate([buffer.sample(500)["action"] for _ in range(60)])
    assert_distributed(drawn, dict.fromkeys(stored, 1 / len(stored)))


def test_uniform_draws_of_one_batch_are_independent_with_replacement():
    buffer, _ = filled(ReplayBuffer, "partly filled")
    for batch_size in (2, 64):
        pairs = np.concatenate(
            [buffer.sample(batch_size)["action"].reshape(-1, 2) for _ in range(20_000 // batch_size)]
        )
        cells = pairs[:, 0] * 5 + pairs[:, 1]
        assert_distributed(cells, dict.fromkeys(range(25), 1 / 25))


def test_uniform_draws_of_successive_batches_are_independent():
    buffer, _ = filled(ReplayBuffer, "full")
    drawn = np.concatenate([buffer.sample(1)["action"] for _ in range(10_000)])
    assert_distributed(drawn[0::2] * 8 + drawn[1::2], dict.fromkeys(range(64), 1 / 64))


def test_shuffle_makes_every_order_equally_often():
    buffer, _ = filled(ReplayBuffer, "one row")
    buffer.add(action=[1, 2])
    orders = {order: i for i, order in enumerate(itertools.permutations(range(3)))}
    drawn = [orders[tuple(next(buffer.epoch(len(buffer)))["action"].tolist())] for _ in range(3000)]
    assert_distributed(np.array(drawn), dict.fromkeys(range(6), 1 / 6))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("filling", [name for name in FILLINGS if name != "a thousand"])
def test_prioritized_draws_are_proportional_to_mass(filling, alpha, batch_size):
    buffer, stored = filled(PrioritizedReplayBuffer, filling, alpha=alpha, eps=0.01)
    oracle = PlainPriorities(FILLINGS[filling][0], alpha, 0.01)
    rng = np.random.default_rng(3)
    for index in stored:
        oracle.give(index, 1.0)
    for _ in range(3):
        indexes = rng.choice(stored, 4)
        priorities = rng.choice([0.0, 0.2, 1.0, 5.0], 4)
        buffer.update_priorities(indexes, priorities)
        oracle.update(indexes.tolist(), priorities.tolist())
    draws = 6_000 // batch_size
    drawn = np.concatenate([buffer.sample(batch_size)["indexes"] for _ in range(draws)])
    assert_distributed(drawn, {index: oracle.probability(index) for index in stored})


def test_draws_inside_one_part_of_the_range_are_proportional_too():
    """Ten equal masses and a batch of two: one draw among the first five rows, one among the last."""
    buffer = PrioritizedReplayBuffer(10, ENV_DICT, alpha=1.0, eps=0.0, seed=1)
    buffer.add(action=np.arange(10), priorities=np.full(10, 0.125))
    drawn = np.stack([buffer.sample(2)["indexes"] for _ in range(5000)])
    assert_distributed(drawn[:, 0], dict.fromkeys(range(5), 1 / 5))
    assert_distributed(drawn[:, 1], dict.fromkeys(range(5, 10), 1 / 5))
    assert_distributed(drawn[:, 0] * 5 + drawn[:, 1] - 5, dict.fromkeys(range(25), 1 / 25))


def test_importance_weights_make_the_prioritized_mean_the_uniform_one():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(100)
    buffer = PrioritizedReplayBuffer(100, ENV_DICT, alpha=0.7, eps=0.01, seed=1)
    priorities = np.abs(values) + 0.1
    buffer.add(action=np.arange(100), priorities=priorities)
    total = weight = 0.0
    for _ in range(400):
        sample = buffer.sample(100, beta=1.0)
        total += float((sample["weights"] * values[sample["action"]]).sum())
        weight += float(sample["weights"].sum())
    assert total / weight == pytest.approx(values.mean(), abs=0.01)
    biased = (values * (priorities + 0.01) ** 0.7).sum() / ((priorities + 0.01) ** 0.7).sum()
    assert abs(biased - values.mean()) > 0.02, "the test would not notice missing weights"
