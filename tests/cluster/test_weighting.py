"""Batches across shards beside one buffer of all rows: expectations to the last digits, and counted draws.

The oracle is plain sums over a list of rows; it knows neither shards' totals nor factors.
"""

import math

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from oracles import chi_square_p_value, find_by_running_sum

from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.cluster.shards.weighting import Piece, Totals, deal, factors

LEAST = 1e-6  # significance of the chi-square tests: one false alarm in a million
SHARDS = [[0.2, 3.0, 7.5, 0.9], [0.05, 0.1], [12.0, 1.0, 5.0, 5.0, 0.3, 2.0]]  # masses, very unlike


def totals_of(masses):
    """Of a shard that holds rows of these masses."""
    return Totals(math.fsum(masses), min((m for m in masses if m > 0), default=0.0), len(masses), len(masses))


def in_one_buffer(shards, beta, gradient):
    """Σ P(i) w_i g_i over all rows; g is a function of the row's shard and place."""
    rows = [(mass, gradient(s, i)) for s, masses in enumerate(shards) for i, mass in enumerate(masses)]
    total = math.fsum(mass for mass, _ in rows)
    least = min(mass for mass, _ in rows if mass > 0)
    return math.fsum(mass / total * (least / mass) ** beta * g for mass, g in rows if mass > 0)


def across_shards(shards, shares, scale, beta, gradient):
    """Σ q_i v_i g_i: shard s gives a part `shares[s]`, drawn by mass; its own weights times `scale[s]`."""
    terms = []
    for s, masses in enumerate(shards):
        total, least = math.fsum(masses), min((m for m in masses if m > 0), default=0.0)
        for i, mass in enumerate(masses):
            if mass > 0 and shares[s] > 0:
                weight = scale[s] * (least / mass) ** beta
                terms.append(shares[s] * mass / total * weight * gradient(s, i))
    return math.fsum(terms)


def expectation(shards, told_masses, beta, gradient):
    """What is expected of a batch that is dealt by totals as they were told, perhaps long ago."""
    told = [totals_of(masses)._replace(mass=mass) for masses, mass in zip(shards, told_masses, strict=True)]
    present = [s for s, mass in enumerate(told_masses) if mass > 0]
    scale = np.zeros(len(shards))
    scale[present] = factors(told, [Piece(s, 5 + s, totals_of(shards[s])) for s in present], beta)
    shares = np.array(told_masses) / math.fsum(told_masses)
    return across_shards(shards, shares, scale, beta, gradient)


def uneven(shard, place):
    return math.sin(7.0 * shard + 3.0 * place) + 0.3 * shard


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(
    "shards",
    [
        SHARDS,
        SHARDS[:1],
        [[2.0] * 3, [2.0] * 5, [2.0]],
        [[0.0, 1.0, 0.0], [0.0, 3.0]],
        [SHARDS[0], [1e-12]],
        [[1e-300, 1e300], [1.0, 2.0]],
    ],
    ids=["three", "one shard", "all masses equal", "rows without mass", "a tiny shard", "far apart"],
)
def test_expectation_is_that_of_one_buffer(shards, beta):
    fresh = [math.fsum(masses) for masses in shards]
    for told in (fresh, [1.0] * len(shards), [(s + 1) * total for s, total in enumerate(fresh)]):
        expected = in_one_buffer(shards, beta, uneven)
        assert expectation(shards, told, beta, uneven) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@repeatable(200)
@given(
    shards=st.lists(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6), min_size=1, max_size=5),
    beta=st.floats(0, 1),
    data=st.data(),
)
def test_expectation_is_that_of_one_buffer_whatever_totals_were_told(shards, beta, data):
    told = [data.draw(st.floats(1e-3, 1e3)) for _ in shards]
    expected = in_one_buffer(shards, beta, lambda s, i: 1.0)
    assert expectation(shards, told, beta, lambda s, i: 1.0) == pytest.approx(expected, rel=1e-12)


def test_shard_that_is_left_out_or_empty_leaves_one_buffer_of_the_others():
    for others, missing in (([0, 2], 1), ([1, 2], 0)):
        shards = [SHARDS[s] for s in others]
        told = [totals_of(masses) for masses in SHARDS]
        told[missing] = Totals(0.0, 0.0, 0, 0)
        pieces = [Piece(s, 4, totals_of(SHARDS[s])) for s in others]
        shares = [told[s].mass / sum(t.mass for t in told) for s in others]
        scale = factors(told, pieces, 0.4)
        got = across_shards(shards, shares, scale, 0.4, uneven)
        assert got == pytest.approx(in_one_buffer(shards, 0.4, uneven), rel=1e-12)


def test_shard_without_a_draw_still_sets_the_least_mass_and_the_total():
    """A batch of one row can't have rows of both; its weight is the same as in one buffer."""
    told = [Totals(10.0, 1.0, 5, 5), Totals(0.02, 0.01, 2, 2)]
    assert factors(told, [Piece(0, 1, told[0])], 0.5) == pytest.approx([math.sqrt(0.01)], rel=1e-12)


def test_rows_of_two_moments_count_by_the_totals_of_each():
    """A shard's rows may come from two draws, between which its masses have changed."""
    other, before, after = [1.0, 2.0], [4.0, 0.5], [4.0, 6.0, 2.0]
    told = [totals_of(other), totals_of(after)]
    pieces = [Piece(0, 3, told[0]), Piece(1, 1, totals_of(before)), Piece(1, 2, totals_of(after))]
    shares = [told[0].mass / 15, 12 / 15 * 1 / 3, 12 / 15 * 2 / 3]
    got = across_shards([other, before, after], shares, factors(told, pieces, 0.7), 0.7, uneven)
    # a third of the shard's rows are as before, two thirds as after: so is the buffer
    total = 3.0 + (4.5 + 2 * 12.0) / 3
    rows = [(m, 1.0, uneven(0, i)) for i, m in enumerate(other)]
    rows += [(m, 1 / 3, uneven(1, i)) for i, m in enumerate(before)]
    rows += [(m, 2 / 3, uneven(2, i)) for i, m in enumerate(after)]
    expected = math.fsum(m * part / total * (0.5 / m) ** 0.7 * g for m, part, g in rows)
    assert got == pytest.approx(expected, rel=1e-12)


def test_weights_of_each_shard_alone_are_another_estimator():
    """Equal parts with the shards' own weights, as RLlib has them; with PER's formula on what was drawn."""
    rng = np.random.default_rng(0)
    shards = [(rng.exponential(scale, 50) + 1e-3).tolist() for scale in (1.0, 0.05, 8.0)]
    shares = [1 / 3] * 3

    def gradient(s, i):
        return 1.0 if s == 1 else 0.0

    right = in_one_buffer(shards, 0.4, gradient)
    alone = across_shards(shards, shares, [1.0] * 3, 0.4, gradient)
    # u_i = (M_s S / (N m_i))^β over the largest u
    largest = [(math.fsum(masses) / min(masses)) ** 0.4 for masses in shards]
    by_drawn = across_shards(shards, shares, np.array(largest) / max(largest), 0.4, gradient)
    assert alone > 5 * right
    assert not 0.9 < by_drawn / right < 1.1
    assert expectation(shards, [1.0] * 3, 0.4, gradient) == pytest.approx(right, rel=1e-12)


def test_draws_are_dealt_as_one_tree_over_all_rows_would_find_them():
    """The same points: each shard's rows are those that its stretch of all masses would give."""
    rng = np.random.default_rng(3)
    shards = [rng.exponential(size=count) for count in (50, 1, 200, 7)]
    masses, starts = np.concatenate(shards), [0, 50, 51, 251]
    for count in (1, 2, 64, 512):
        uniforms = rng.random(count)
        points = (np.arange(count) + uniforms) / count * masses.sum()
        rows = np.array([find_by_running_sum(masses.tolist(), point) for point in points])
        counts = deal(np.array([m.sum() for m in shards]), uniforms)
        for s, own in enumerate(shards):
            is_own = (rows >= starts[s]) & (rows < starts[s] + len(own))
            assert counts[s] == is_own.sum()
            below = masses[: starts[s]].sum()
            found = [find_by_running_sum(own.tolist(), point - below) for point in points[is_own]]
            assert found == (rows[is_own] - starts[s]).tolist()


@repeatable(300)
@given(
    masses=st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1e300)), min_size=1, max_size=6).filter(any),
    uniforms=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40),
)
def test_no_shard_is_two_draws_from_its_share_and_none_without_mass_gets_one(masses, uniforms):
    counts = deal(np.array(masses), np.array(uniforms))
    assert counts.sum() == len(uniforms)
    assert len(counts) == len(masses)
    for mass, count in zip(masses, counts.tolist(), strict=True):
        share = len(uniforms) * mass / math.fsum(masses)
        assert share - 2 - 1e-9 < count < share + 2 + 1e-9
        assert mass > 0 or count == 0


def test_points_at_the_very_end_are_the_last_shards_with_mass():
    assert deal(np.array([1.0, 0.0]), np.array([0.0, 1 - 2**-53])).tolist() == [2, 0]
    assert deal(np.array([0.1, 0.2, 0.0]), np.array([1 - 2**-53])).tolist() == [0, 1, 0]
    assert deal(np.array([0.0, 0.3, 0.1, 0.0]), np.array([0.0])).tolist() == [0, 1, 0, 0]
    assert deal(np.array([1.0, 1.0]), np.array([0.5])).tolist() == [0, 1]


def test_draws_of_real_buffers_follow_the_masses_of_all_rows():
    """Each shard draws its part for itself; together they are drawn as by one buffer (chi-square, 1e-6)."""
    rng, counts = np.random.default_rng(5), np.zeros((3, 20))
    priorities = rng.exponential(size=(3, 20)) * np.array([[1.0], [5.0], [0.2]])
    buffers = [
        PrioritizedReplayBuffer(20, {"act": {"shape": ()}}, alpha=1.0, eps=0.0, seed=s) for s in range(3)
    ]
    for buffer, given_priorities in zip(buffers, priorities, strict=True):
        buffer.add(act=np.arange(20), priorities=given_priorities)
    totals = np.array([buffer.total_mass for buffer in buffers])
    for _ in range(20_000):
        # A batch of one: independent draws, as the test supposes.
        (shard,) = np.flatnonzero(deal(totals, rng.random(1)))
        counts[shard, buffers[shard].sample(1)["indexes"]] += 1
    expected = priorities / priorities.sum() * counts.sum()
    assert chi_square_p_value(counts.reshape(-1).tolist(), expected.reshape(-1).tolist()) > LEAST
