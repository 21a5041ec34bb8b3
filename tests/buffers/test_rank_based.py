"""Rank-based sampling beside a sort of all priorities and the law rank^-alpha.

In `buffer_of`, alpha = 1 and eps = 0, so that a mass is the priority itself. With `ALL` draws from at most 40
rows, the segment of every row is longer than the distance of two draws, so every row is in the batch.
"""

import pickle
from typing import Any

import numpy as np
import pytest
from test_sampling_statistics import assert_distributed

from replay_tutorial import MPPrioritizedReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers import prioritized_ring
from replay_tutorial.buffers.schemes import Combined, RankBased

ACT: dict[str, dict[str, Any]] = {"action": {"dtype": np.int64}}
ALL = 600
APART = 1.05 ** np.random.default_rng(3).permutation(40)  # no two are tied


def buffer_of(priorities: Any, size: int = 40, **options: Any) -> Any:
    buffer = PrioritizedReplayBuffer(size, ACT, seed=5, **({"alpha": 1.0, "eps": 0.0} | options))
    buffer.add(action=np.arange(len(priorities)), priorities=priorities)
    return buffer


def law(priorities: dict[int, float], alpha: float) -> dict[int, float]:
    """P(row) by sorting; rows are tied if the first seven binary digits of their priorities agree."""
    ranked = sorted((-p, index) for index, p in priorities.items() if p > 0)
    shares = np.arange(1.0, len(ranked) + 1) ** -alpha
    shares /= shares.sum()
    tied: dict[str, list[int]] = {}
    for rank, (priority, _) in enumerate(ranked):
        digits, exponent = float.hex(-priority).split("p")  # 0x1.ddd…: each d has four binary digits
        tied.setdefault(f"{int(digits[4:6].ljust(2, '0'), 16) >> 2} {exponent}", []).append(rank)
    means = [(ranks, float(shares[ranks].mean())) for ranks in tied.values()]
    return {ranked[r][1]: mean for ranks, mean in means for r in ranks}


def reported(buffer: Any, scheme: RankBased) -> dict[int, float]:
    """P(row) of every row that can be drawn."""
    sample = buffer.sample(ALL, scheme=scheme)
    assert (sample["action"] == sample["indexes"]).all()
    again = scheme.probabilities(buffer._stored_rows(), sample["indexes"])
    np.testing.assert_allclose(sample["probabilities"], again, rtol=1e-9)
    return dict(zip(sample["indexes"].tolist(), sample["probabilities"].tolist(), strict=True))


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("batch_size", [1, 32])
def test_rows_are_drawn_by_the_power_law_of_their_ranks(alpha, batch_size):
    buffer, scheme = buffer_of(APART), RankBased(alpha)
    expected = law(dict(enumerate(APART)), alpha)
    by_sort = np.empty(40)
    by_sort[np.argsort(-APART)] = np.arange(1.0, 41) ** -alpha
    assert expected == pytest.approx(dict(enumerate(by_sort / by_sort.sum())))  # no ties
    assert reported(buffer, scheme) == pytest.approx(expected, rel=1e-9)
    batches = [buffer.sample(batch_size, scheme=scheme)["indexes"] for _ in range(3000 // batch_size)]
    assert_distributed(np.concatenate(batches), expected)


def test_each_place_of_a_batch_follows_the_law_because_rows_are_in_random_order():
    buffer, scheme = buffer_of(APART), RankBased()
    batches = np.array([buffer.sample(8, scheme=scheme)["indexes"] for _ in range(3000)])
    for place in range(8):
        assert_distributed(batches[:, place], law(dict(enumerate(APART)), 0.7))


def test_tied_rows_share_the_probability_of_their_ranks_equally():
    buffer, scheme = buffer_of([1.0] * 30 + [3.0] * 10), RankBased()
    shares = np.arange(1.0, 41) ** -0.7
    expected = np.repeat([shares[10:].mean(), shares[:10].mean()], [30, 10]) / shares.sum()
    assert reported(buffer, scheme) == pytest.approx(dict(enumerate(expected)))
    batches = [buffer.sample(16, scheme=scheme)["indexes"] for _ in range(500)]
    assert_distributed(np.concatenate(batches), dict(enumerate(expected)))


@pytest.mark.parametrize("seed", range(4))
def test_every_row_has_the_probability_of_a_sort_in_any_history(seed):
    """Adds beyond the capacity, repeated and late updates, priorities of 0, clear, and copies."""
    rng = np.random.default_rng(seed)
    buffer, scheme, known = buffer_of([1.0], 37), RankBased(), {0: 1.0}
    for _ in range(300):
        operation, count = rng.random(), int(rng.choice([1, 2, 9, 50, 2000], p=[0.3, 0.3, 0.29, 0.1, 0.01]))
        priorities = np.exp(rng.normal(scale=rng.choice([0.01, 3.0, 100.0]), size=count)) * (
            rng.random(count) < 0.9
        )
        first = buffer._ring.next_index
        if operation < 0.3 or not known:
            buffer.add(action=np.arange(first, first + count), priorities=priorities)
            known |= dict(zip(range(first, first + count), priorities.tolist(), strict=True))
        elif operation < 0.94:
            indexes = rng.integers(max(0, first - 50), first, count)
            buffer.update_priorities(indexes, priorities)
            known |= dict(zip(indexes.tolist(), priorities.tolist(), strict=True))
        elif operation < 0.97:
            buffer.clear()
            known = {}
        else:
            buffer = pickle.loads(pickle.dumps(buffer))
        known = {index: p for index, p in known.items() if index >= buffer._ring.oldest_index}
        if any(known.values()) and rng.random() < 0.7:
            assert reported(buffer, scheme) == pytest.approx(law(known, 0.7), rel=1e-9)
    assert buffer._ring.next_index > 5 * 37


@pytest.mark.parametrize("power", [-300, 0, 300])
def test_priorities_of_any_size_are_ranked(power):
    priorities = 10.0**power * APART
    assert reported(buffer_of(priorities), RankBased()) == pytest.approx(law(dict(enumerate(APART)), 0.7))


def test_importance_weights_make_every_mean_unbiased():
    buffer, scheme = buffer_of(APART), RankBased()
    values, least = np.sin(np.arange(40.0)) + 2.0, min(law(dict(enumerate(APART)), 0.7).values())
    samples = [buffer.sample(16, 1.0, normalize="buffer", scheme=scheme) for _ in range(2000)]
    for sample in samples[:20]:
        np.testing.assert_allclose(sample["weights"], least / sample["probabilities"], rtol=1e-6)
    means = [(values[each["indexes"]] / (40 * each["probabilities"])).mean() for each in samples]
    assert abs(np.mean(means) - values.mean()) < 4 * np.std(means) / np.sqrt(2000)


def test_a_row_added_without_priority_ties_with_the_largest_one():
    buffer, scheme = buffer_of(APART[:39]), RankBased()
    buffer.sample(1, scheme=scheme)
    buffer.add(action=39)
    top = sorted(reported(buffer, scheme).items(), key=lambda row: -row[1])[:2]
    assert {index for index, _ in top} == {39, int(np.argmax(APART[:39]))} and top[0][1] == top[1][1]


def test_a_loaded_buffer_draws_the_rows_that_the_saved_one_draws(tmp_path):
    buffer, loaded, scheme = buffer_of([2.0] * 40), buffer_of([1.0]), RankBased()
    for _ in range(20):  # tied slots are then no longer in ascending order
        buffer.update_priorities(buffer.sample(8, scheme=scheme)["indexes"], np.arange(1.0, 9))
    buffer.save(tmp_path / "buffer.npz")
    loaded.load(tmp_path / "buffer.npz")
    for _ in range(5):
        one, other = buffer.sample(8, scheme=scheme), loaded.sample(8, scheme=RankBased())
        assert (one["indexes"] == other["indexes"]).all() and (one["weights"] == other["weights"]).all()
        for each in (buffer, loaded):
            each.update_priorities(one["indexes"], np.arange(1.0, 9))


def test_schemes_and_buffers_are_independent_of_each_other():
    buffers = [buffer_of(APART), buffer_of(APART[:25] ** 2, 25)]
    schemes = [RankBased(0.3), RankBased(0.9)]
    for scheme, alpha in zip(schemes, (0.3, 0.9), strict=True):
        assert reported(buffers[1], scheme) == pytest.approx(law(dict(enumerate(APART[:25] ** 2)), alpha))
        assert reported(buffers[0], scheme) == pytest.approx(law(dict(enumerate(APART)), alpha))


def test_an_update_interrupted_after_its_kernel_counts(monkeypatch):
    buffer, scheme, update_leaves = buffer_of(APART), RankBased(), prioritized_ring.update_leaves
    buffer.sample(1, scheme=scheme)

    def interrupted(*arguments: Any) -> None:
        update_leaves(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(prioritized_ring, "update_leaves", interrupted)
    with pytest.raises(KeyboardInterrupt):
        buffer.update_priorities([7], [1000.0])
    assert reported(buffer, scheme) == pytest.approx(law({**dict(enumerate(APART)), 7: 1000.0}, 0.7))


def test_the_newest_row_may_be_combined_with_ranks():
    buffer, expected = buffer_of(APART), law(dict(enumerate(APART)), 0.7)
    sample = buffer.sample(4 * ALL, scheme=Combined(newest=1, scheme=RankBased()))
    for index, probability in zip(sample["indexes"].tolist(), sample["probabilities"].tolist(), strict=True):
        others = expected[index] * (1 - 1 / (4 * ALL))
        assert probability == pytest.approx(others + (index == 39) / (4 * ALL))
    buffer.update_priorities([3], [0.0])
    assert RankBased().probabilities(buffer._stored_rows(), np.arange(3, 5))[0] == 0.0


def test_wrong_arguments_name_the_remedy():
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]"):
            RankBased(wrong)
    with pytest.raises(TypeError, match="alpha must be a number"):
        RankBased("0.7")  # pyright: ignore[reportArgumentType]
    uniform = ReplayBuffer(4, ACT)
    uniform.add(action=1)
    with pytest.raises(ValueError, match=r"RankBased requires priorities.*Use PrioritizedReplayBuffer"):
        uniform.sample(2, scheme=RankBased())
    with pytest.raises(ValueError, match="Every mass is 0"):
        buffer_of([0.0, 0.0]).sample(2, scheme=RankBased())


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer])
@pytest.mark.parametrize("scheme", [RankBased(), Combined(newest=1, scheme=RankBased())])
def test_buffer_with_alpha_0_has_no_ranks(kind, scheme):
    buffer = kind(5, ACT, alpha=0.0)
    buffer.add(action=np.arange(5), priorities=np.arange(5.0))
    with pytest.raises(ValueError, match="requires a buffer with alpha above 0"):
        buffer.sample(2, scheme=scheme)
