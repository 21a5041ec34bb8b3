"""LaBER: its weights are its authors', its identities hold exactly, its draws have their probabilities.

authors (LaBER/discrete/LABER_DDQN.py):   mean  mean(p) / p_i      lazy  1 / p_i      max  (1/p_i) / max (1/p)
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from replay_tutorial import laber

LARGE = [0.5, 2.0, 0.0, 0.25, 4.0, 1.0, 1.0, 0.125]  # M = 8 priorities; sums of these are exact
DRAWABLE = [i for i, p in enumerate(LARGE) if p > 0]
LEAST = 1e-6  # significance


def weights_of(priorities: list[float], variant: str, n: int = 4096) -> dict[int, float]:
    """The weight of each position that is drawn; it must be the same whenever the position is."""
    positions, weights = laber(priorities, n, np.random.default_rng(0), variant)
    pairs = set(zip(positions.tolist(), weights.tolist(), strict=True))
    assert len(pairs) == len(set(positions.tolist())), "one weight per row"
    return dict(pairs)


def test_mean_is_unbiased_for_the_large_batch_exactly():
    weights = weights_of(LARGE, "mean")
    gradients = np.random.default_rng(1).normal(size=len(LARGE))
    gradients[LARGE.index(0.0)] = 0.0  # the gradient of a row without error
    expected = sum(LARGE[i] / sum(LARGE) * weights[i] * gradients[i] for i in DRAWABLE)  # all 8 draws
    assert sorted(weights) == DRAWABLE
    assert expected == pytest.approx(sum(gradients) / len(LARGE), rel=1e-14)


def test_lazy_is_one_over_the_priority_as_the_authors_and_unlike_cpprbs():
    lazy, mean = weights_of(LARGE, "lazy"), weights_of(LARGE, "mean")
    large_mean = sum(LARGE) / len(LARGE)
    for i in DRAWABLE:
        assert lazy[i] == pytest.approx(1 / LARGE[i], rel=1e-15)
        assert lazy[i] == pytest.approx(mean[i] / large_mean, rel=1e-15)

    cpprb = pytest.importorskip("cpprb")
    theirs = dict[str, dict[int, float]]()
    for name in ("LaBERmean", "LaBERlazy"):
        draw = getattr(cpprb, name)(2048, m=2, eps=0.0)  # 4096 priorities: all 8, 512 times
        batch = draw(priorities=np.tile(LARGE, 512))
        theirs[name] = dict(
            zip((batch["indexes"] % len(LARGE)).tolist(), batch["weights"].tolist(), strict=True)
        )
    for i in DRAWABLE:
        assert theirs["LaBERmean"][i] == pytest.approx(mean[i])
        assert theirs["LaBERlazy"][i] == pytest.approx(4096 * mean[i]), "M · mean: not 1 / p"


def test_max_divides_by_the_largest_weight_of_the_batch_in_every_pair():
    rng, seen = np.random.default_rng(0), set()
    pairs = set(itertools.product(DRAWABLE, repeat=2))
    for _ in range(20_000):
        positions, weights = laber(LARGE, 2, rng, "max")
        pair = tuple(positions.tolist())
        if pair not in seen:
            largest = max(1 / LARGE[i] for i in pair)
            assert weights.tolist() == pytest.approx([1 / LARGE[i] / largest for i in pair], rel=1e-15)
            assert weights.max() == 1.0
            seen.add(pair)
        if seen == pairs:
            return
    pytest.fail(f"never drawn: {pairs - seen}")


def test_rows_are_drawn_in_proportion_to_their_priorities():
    positions, _ = laber(LARGE, 100_000, np.random.default_rng(2))
    counts = Counter(positions.tolist())
    assert sorted(counts) == DRAWABLE, "a row of priority 0 is never drawn, also not as the last one"
    expected = [100_000 * LARGE[i] / sum(LARGE) for i in DRAWABLE]
    assert chisquare([counts[i] for i in DRAWABLE], expected).pvalue > LEAST


@pytest.mark.parametrize("zeros", [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
def test_rows_of_priority_0_are_never_drawn_at_the_ends_of_the_large_batch(zeros):
    positions, weights = laber(zeros, 1000, np.random.default_rng(3))
    assert set(positions.tolist()) == {zeros.index(1.0)}
    assert np.isfinite(weights).all()


def test_equal_priorities_have_weights_of_1():
    for value in (1e-300, 1.0, 1e308):  # whose sum would overflow
        for variant in ("mean", "max"):
            positions, weights = laber([value] * 8, 64, np.random.default_rng(5), variant)
            assert (weights == 1).all()
            assert len(set(positions.tolist())) == 8


def test_results_are_reproducible_arrays_of_their_own():
    p = np.array(LARGE, np.float32).reshape(-1, 1)  # a field of shape 1, as cpprb's are
    before = p.copy()
    one, other = (laber(p, 5, np.random.default_rng(6)) for _ in range(2))
    assert [array.dtype for array in one] == [np.int64, np.float64]
    assert [array.shape for array in one] == [(5,), (5,)]
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    np.testing.assert_array_equal(p, before)
    assert laber([True, False], 1, np.random.default_rng(0))[0].tolist() == [0]
    assert laber([3], 4, np.random.default_rng(0))[0].tolist() == [0] * 4, "more than there are: drawn again"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.0, 0.0], 1), ValueError, "At least one priority must be above 0"),
        (([], 1), ValueError, "At least one priority"),
        (([1.0, -1.0], 1), ValueError, "not -1.0"),
        (([1.0, np.nan], 1), ValueError, "not nan"),
        (([1.0, np.inf], 1), ValueError, "not inf"),
        (([[1.0, 2.0]] * 2, 1), ValueError, r"shape \(M,\) or \(M, 1\), not \(2, 2\)"),
        ((1.0, 1), ValueError, r"shape"),
        ((["a"], 1), TypeError, "real numbers"),
        (([1.0], 0), ValueError, "batch_size must be at least 1"),
        (([1.0], 1.5), TypeError, "batch_size must be an integer"),
        (([1.0], 1, "median"), ValueError, "not 'median'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_drawn(arguments, error, message):
    rng = np.random.default_rng(0)
    priorities, batch_size, *variant = arguments
    with pytest.raises(error, match=message):
        laber(priorities, batch_size, rng, *variant)
    assert rng.random() == np.random.default_rng(0).random()
