"""Sampling schemes: which rows they draw, and whether the probabilities that they report are true.

Distributions are compared by Pearson's χ² with fixed seeds; correct code fails less than once in a million
tests (`LEAST`).
"""

import itertools
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from replay_tutorial import (
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    MPPrioritizedReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from replay_tutorial.buffers.schemes import (
    Combined,
    Geometric,
    Proportional,
    RankBased,
    Reverse,
    Scheme,
    StoredRows,
    Uniform,
)

LEAST = 1e-6
ACT: dict[str, dict[str, Any]] = {"action": {"dtype": np.int64}}


def filled(kind: Any, capacity: int, rows: int, **options: Any) -> Any:
    """A buffer to which `rows` rows were added, a few at a time; `action` is the index."""
    buffer = kind(capacity, ACT, seed=5, **options)
    for first in range(0, rows, 7):
        buffer.add(action=np.arange(first, min(first + 7, rows)))
    return buffer


def assert_true(buffer: Any, scheme: Scheme, probabilities: dict[int, float], batch_size: int) -> None:
    """Assert that rows are drawn with these probabilities, one for each stored row, and report them."""
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-12)
    samples = [buffer.sample(batch_size, scheme=scheme) for _ in range(8_000 // batch_size)]
    action, indexes, given = (
        np.concatenate([s[k] for s in samples]) for k in ("action", "indexes", "probabilities")
    )
    assert (action == indexes).all()
    stored, shares = np.array([*probabilities]), np.array([*probabilities.values()])
    assert (np.diff(stored) == 1).all()
    assert ((indexes >= stored[0]) & (indexes <= stored[-1])).all()
    np.testing.assert_allclose(given, shares[indexes - stored[0]], rtol=1e-9)
    observed = np.bincount(indexes - stored[0], minlength=len(stored)).astype(float)
    expected = shares * len(indexes)
    rare = expected < 5
    if rare.any():  # in one cell, because χ² is not valid for few expected draws
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if len(observed) > 1 and expected.min() > 0:
        assert chisquare(observed, expected).pvalue > LEAST


@pytest.mark.parametrize(("capacity", "rows"), [(11, 1), (11, 6), (11, 11), (11, 60), (1, 9)])
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_uniform_scheme_draws_every_stored_row_equally_often(kind, capacity, rows):
    buffer, stored = filled(kind, capacity, rows), min(capacity, rows)
    if kind is PrioritizedReplayBuffer:
        buffer.update_priorities([rows - 1], [100.0])
    assert_true(buffer, Uniform(), dict.fromkeys(range(rows - stored, rows), 1 / stored), 40)


def test_proportional_scheme_draws_what_a_prioritized_buffer_draws_by_itself():
    one, other = (filled(PrioritizedReplayBuffer, 11, 38, alpha=0.7) for _ in range(2))
    for buffer in (one, other):
        buffer.update_priorities(np.arange(27, 38), np.arange(11.0))
    for normalize in ("buffer", "batch"):
        plain, sample = (b.sample(20, 0.5, normalize=normalize, **o) for b, o in
                         ((one, {}), (other, {"scheme": Proportional()})))  # fmt: skip
        assert (plain["indexes"] == sample["indexes"]).all() and (plain["action"] == sample["action"]).all()
        np.testing.assert_allclose(plain["weights"], sample["weights"], rtol=1e-6)
    masses = (np.arange(11.0) + 1e-4) ** 0.7
    assert_true(other, Proportional(), dict(zip(range(27, 38), masses / masses.sum(), strict=True)), 5)


def test_scheme_that_needs_priorities_names_the_remedy_in_a_uniform_buffer():
    with pytest.raises(ValueError, match=r"Proportional requires priorities.*Use PrioritizedReplayBuffer"):
        filled(ReplayBuffer, 4, 3).sample(2, scheme=Proportional())
    nothing = filled(PrioritizedReplayBuffer, 4, 3, eps=0.0)
    nothing.update_priorities([0, 1, 2], 0.0)
    with pytest.raises(ValueError, match="Every mass is 0"):
        nothing.sample(2, scheme=Proportional())


def test_what_is_not_a_scheme_and_names_that_a_scheme_adds_are_refused():
    with pytest.raises(TypeError, match="must be a scheme such as"):
        filled(ReplayBuffer, 4, 3).sample(2, scheme="uniform")
    with pytest.raises(ValueError, match=r"\['indexes'\]; rename"):
        buffer = ReplayBuffer(4, {"indexes": {}})
        buffer.add(indexes=1)
        buffer.sample(2, scheme=Uniform())
    with pytest.raises(ValueError, match="the buffer is empty"):
        ReplayBuffer(4, ACT).sample(2, scheme=Uniform())


def by_age(stored: range, half_life: float, environments: int = 1) -> dict[int, float]:
    """The probability of each stored row, by counting the newer rows of its environment."""
    ages = {
        row: sum(other > row and other % environments == row % environments for other in stored)
        for row in stored
    }
    total = sum(2.0 ** (-age / half_life) for age in ages.values())
    return {row: 2.0 ** (-age / half_life) / total for row, age in ages.items()}


@pytest.mark.parametrize(("capacity", "rows"), [(37, 1), (37, 4), (37, 29), (37, 200), (5, 27), (1, 6)])
@pytest.mark.parametrize("environments", [1, 3, 5])
@pytest.mark.parametrize("half_life", [4.0, 13.5134, 1e13])  # the second is 0.05 fewer rows a step
def test_geometric_scheme_halves_the_probability_with_each_half_life(capacity, rows, environments, half_life):
    if environments > 1:  # as many rows a step
        rows = -(-rows // environments) * environments
    buffer = filled(ReplayBuffer, capacity, rows)
    stored = range(max(0, rows - capacity), rows)
    scheme = Geometric(half_life, num_envs=environments)
    expected = by_age(stored, half_life, environments)
    assert_true(buffer, scheme, expected, 100)
    seen = StoredRows(stored.start, stored.stop, capacity, None)
    all_rows = scheme.probabilities(seen, np.array(stored))
    assert all_rows.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(all_rows, [*expected.values()], rtol=1e-9)
    least = scheme.draw(seen, 1, np.random.default_rng(0)).least
    assert least == pytest.approx(min(expected.values()), rel=1e-9)


def test_extreme_half_lives_draw_the_newest_row_or_all_rows_alike():
    stored, rng = StoredRows(100, 10_100, 10_000, None), np.random.default_rng(0)
    for half_life in (5e-324, 1e-300, 1e-3):
        drawn = Geometric(half_life).draw(stored, 1000, rng)
        assert (drawn.indexes == 10_099).all() and (drawn.probabilities == 1.0).all() and drawn.least > 0
    for half_life in (1e15, 1e300, 1.7e308):
        drawn = Geometric(half_life).draw(stored, 100_000, rng)
        np.testing.assert_allclose(drawn.probabilities, 1e-4, rtol=1e-9)
        assert chisquare(np.bincount((drawn.indexes - 100) // 1000, minlength=10)).pvalue > LEAST


@pytest.mark.parametrize("environments", [1, 3])
def test_greatest_and_least_random_numbers_draw_the_oldest_and_the_newest_row(environments):
    class Fixed:
        def __init__(self, number: float) -> None:
            self.number = number

        def random(self, shape: Any) -> np.ndarray:
            return np.full(shape, self.number)

    for rows in [*range(1, 60), 10**6, 10**9 + 7]:
        for half_life in (rows / 7, rows, 3.3 * rows, 1e5 * rows, 1e12 * rows):
            stored = StoredRows(3, 3 + rows, rows, None)
            scheme = Geometric(half_life, num_envs=environments)
            for number, index in ((0.0, rows + 2), (math.nextafter(1, 0), 3)):
                rng: Any = Fixed(number)
                assert scheme.draw(stored, 2, rng).indexes.tolist() == [index, index]


@pytest.mark.parametrize("half_life", [0, 0.0, -1.0, math.nan, math.inf, -math.inf])
def test_half_life_that_is_not_positive_and_finite_is_refused(half_life):
    with pytest.raises(ValueError, match=f"above 0, not {half_life}"):
        Geometric(half_life)


def test_arguments_of_the_wrong_type_or_range_are_refused():
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: Geometric("1"), TypeError, "half_life must be a number"),
        (lambda: Geometric(3, num_envs=0), ValueError, "num_envs must be at least 1, not 0"),
        (lambda: Geometric(3, num_envs=2**70), ValueError, "num_envs must be below"),
        (lambda: Reverse(0), ValueError, "stride must be at least 1, not 0"),
        (lambda: Reverse(1.5), TypeError, "stride must be an integer"),
        (lambda: Combined(0), ValueError, "newest must be at least 1, not 0"),
        (lambda: Combined(1, Reverse()), TypeError, "draws every row with a fixed probability"),
        (lambda: filled(ReplayBuffer, 9, 3).sample(8, scheme=Combined(4)), ValueError, "4 stored.*not 3"),
        (lambda: filled(ReplayBuffer, 9, 9).sample(4, scheme=Combined(4)), ValueError, "above 4, not 4"),
        (lambda: ReplayBuffer(4, ACT).sample(2, scheme=Reverse()), ValueError, "the buffer is empty"),
    ]  # fmt: skip
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize(
    ("capacity", "rows", "newest", "batch"), [(11, 60, 1, 4), (11, 60, 3, 40), (11, 6, 6, 7)]
)
@pytest.mark.parametrize(
    "other", [Uniform(), Geometric(3), Proportional()], ids=["uniform", "geometric", "mass"]
)
def test_combined_scheme_has_the_newest_rows_in_every_batch(capacity, rows, newest, batch, other):
    buffer = filled(PrioritizedReplayBuffer, capacity, rows, alpha=1.0, eps=0.0)
    stored = range(max(0, rows - capacity), rows)
    buffer.update_priorities(stored, 1.0 + np.arange(len(stored)))
    given = {
        Uniform: lambda: dict.fromkeys(stored, 1 / len(stored)),
        Geometric: lambda: by_age(stored, 3),
        Proportional: lambda: {row: (1 + i) / sum(range(len(stored) + 1)) for i, row in enumerate(stored)},
    }[type(other)]()
    scheme = Combined(newest, other)
    for _ in range(20):
        assert buffer.sample(batch, scheme=scheme)["indexes"][:newest].tolist() == [*stored][-newest:]
    rest = batch - newest
    expected = {row: (rest * p + (row >= rows - newest)) / batch for row, p in given.items()}
    assert sum(expected.values()) == pytest.approx(1.0)
    drawn = [buffer.sample(batch, normalize="buffer", scheme=scheme) for _ in range(4000 // batch)]
    for sample in drawn:
        wanted = [expected[row] for row in sample["indexes"].tolist()]
        np.testing.assert_allclose(sample["probabilities"], wanted, rtol=1e-9)
        weights = (min(expected.values()) / np.array(wanted)) ** 0.4
        np.testing.assert_allclose(sample["weights"], weights, rtol=1e-5)
    others = np.concatenate([sample["indexes"][newest:] for sample in drawn]) - stored.start
    counts, shares = np.bincount(others, minlength=len(stored)), np.array([*given.values()])
    assert chisquare(counts, shares * len(others)).pvalue > LEAST


def test_new_row_that_the_other_scheme_never_draws_has_the_largest_weight():
    buffer = filled(PrioritizedReplayBuffer, 4, 4, alpha=1.0, eps=0.0)
    buffer.update_priorities([0, 1, 2, 3], [1, 1, 1, 0])
    sample = buffer.sample(32, beta=1.0, normalize="buffer", scheme=Combined(1, Proportional()))
    assert sample["weights"][0] == 1.0
    np.testing.assert_allclose(sample["weights"] * sample["probabilities"], 1 / 32, rtol=1e-6)


@pytest.mark.parametrize("other", [Proportional(), RankBased(1.0)], ids=["mass", "rank"])
@pytest.mark.parametrize("oldest", [2, 0])  # with 0, the oldest row is never drawn
def test_largest_weight_is_1_if_the_rarest_row_of_the_other_scheme_is_new(other, oldest):
    buffer = filled(PrioritizedReplayBuffer, 8, 11, alpha=1.0, eps=0.0)
    priorities = [oldest, 4, 8, 16, 32, 64, 128, 0.5]  # row 10 is new and the rarest
    buffer.update_priorities(range(3, 11), priorities)
    scheme = Combined(1, other)
    samples = [buffer.sample(64, beta=1.0, normalize="buffer", scheme=scheme) for _ in range(20)]
    shares = {int(i): p for s in samples for i, p in zip(s["indexes"], s["probabilities"], strict=True)}
    assert len(shares) == np.count_nonzero(priorities) and sum(shares.values()) == pytest.approx(1.0)
    for sample in samples:
        expected = min(shares.values()) / sample["probabilities"]
        np.testing.assert_allclose(sample["weights"], expected, rtol=1e-6)


def walked(starts: int, stride: int, stored: range, batch_size: int) -> list[int]:
    """A batch of `Reverse`, step by step: a row that the walk has visited is left out for the row before."""
    batch: list[int] = []
    row = starts
    while len(batch) < batch_size:
        visited = batch[len(batch) // len(stored) * len(stored) :]
        if not visited:
            row = starts
        while row in visited:
            row = row - 1 if row > stored.start else stored[-1]
        batch.append(row)
        for _ in range(stride):
            row = row - 1 if row > stored.start else stored[-1]
    return batch


@pytest.mark.parametrize(
    ("capacity", "stride", "batch_size"),
    [(20, 4, 4), (12, 4, 4), (12, 4, 30), (7, 300, 3), (1, 2, 3), (37, 5, 8), (36, 6, 36)],
)
def test_reverse_scheme_walks_as_a_simulation_with_indexes(capacity, stride, batch_size):
    buffer, scheme = ReplayBuffer(capacity, ACT, seed=0), Reverse(stride)
    rng = np.random.default_rng(capacity)
    following, start = 0, -1
    for _ in range(60):
        count = int(rng.integers(0, 6)) if following else 1
        if count:
            buffer.add(action=np.arange(following, following + count))
        following += count
        stored = range(max(0, following - capacity), following)
        if start not in stored or following - 1 - start >= 2 * stride:
            start = following - 1
        sample = buffer.sample(batch_size, scheme=scheme)
        assert sample["indexes"].tolist() == walked(start, stride, stored, batch_size)
        assert (sample["action"] == sample["indexes"]).all()
        times = [np.count_nonzero(sample["indexes"] == row) for row in sample["indexes"]]
        assert (sample["probabilities"] == np.array(times) / batch_size).all()
        assert batch_size > len(stored) or set(times) == {1}, "a row twice"
        start -= 1


def test_reverse_scheme_walks_as_the_published_example():
    buffer, scheme = filled(ReplayBuffer, 20, 20), Reverse(4)
    batches = [buffer.sample(4, scheme=scheme)["indexes"].tolist() for _ in range(9)]
    assert batches == [[first, first - 4, first - 8, first - 12] for first in [*range(19, 11, -1), 19]]


def test_reverse_scheme_accepts_any_stride():
    for stride in (2**40 + 1, 2**62 + 1, 10**30 + 1):
        rows = filled(ReplayBuffer, 10, 27).sample(10, scheme=Reverse(stride))["indexes"].tolist()
        assert rows == walked(26, stride % 10, range(17, 27), 10)


def test_reverse_scheme_resumes_from_its_pickle_or_its_position(tmp_path):
    buffer, scheme = filled(ReplayBuffer, 50, 170), Reverse(7)
    for _ in range(5):
        buffer.sample(8, scheme=scheme)
    buffer.save(tmp_path / "buffer")
    loaded, unpickled, placed = ReplayBuffer(50, ACT), pickle.loads(pickle.dumps(scheme)), Reverse(7)
    loaded.load(tmp_path / "buffer")
    placed.position = scheme.position
    for _ in range(12):
        expected = buffer.sample(8, scheme=scheme)["indexes"].tolist()
        assert loaded.sample(8, scheme=unpickled)["indexes"].tolist() == expected
        assert loaded.sample(8, scheme=placed)["indexes"].tolist() == expected


def test_reverse_scheme_begins_at_the_newest_row_after_clear():
    buffer, scheme = filled(ReplayBuffer, 9, 9), Reverse(2)
    buffer.sample(3, scheme=scheme)
    buffer.clear()
    buffer.add(action=[9, 10])
    assert buffer.sample(3, scheme=scheme)["indexes"].tolist() == [10, 9, 10]


@pytest.mark.parametrize("scheme", [Uniform(), Proportional(), Geometric(3), Combined(1), Reverse(4)])
@pytest.mark.parametrize(("capacity", "rows"), [(1, 1), (3, 20), (13, 5), (13, 80)])
def test_batch_larger_than_the_buffer_has_only_stored_rows(scheme, capacity, rows):
    sample = filled(PrioritizedReplayBuffer, capacity, rows).sample(100, scheme=scheme)
    assert set(sample["indexes"].tolist()) <= set(range(max(0, rows - capacity), rows))
    assert (sample["action"] == sample["indexes"]).all()
    assert ((sample["weights"] > 0) & (sample["weights"] <= 1)).all()


def log2_of_likelihoods(scheme: Scheme | None, priorities: list[float], batch_size: int) -> dict[int, float]:
    """log2 P(row) of each stored row that can be drawn: with exact fractions, or by age.

    The buffer has alpha=1 and eps=0, so that a priority is a mass.
    """
    rows = range(len(priorities))
    match scheme:
        case None | Proportional():
            fractions = {row: Fraction(priorities[row]) for row in rows if priorities[row] > 0.0}
            total = sum(fractions.values())
            return {row: log2_of(mass / total) for row, mass in fractions.items()}
        case Geometric():
            ages = {row: rows.stop - 1 - row for row in rows}
            weights = [2.0 ** (-age / scheme.half_life) for age in ages.values()]
            return {row: -age / scheme.half_life - math.log2(math.fsum(weights)) for row, age in ages.items()}
        case RankBased():  # groups of equal masses: each has the mean probability of its ranks
            order = sorted(rows, key=lambda row: -priorities[row])
            ranks = np.arange(1.0, rows.stop + 1) ** -scheme.alpha
            shares = dict(zip(order, ranks / ranks.sum(), strict=True))
            groups = {row: [s for r, s in shares.items() if priorities[r] == priorities[row]] for row in rows}
            return {row: math.log2(math.fsum(group) / len(group)) for row, group in groups.items()}
        case Combined():
            others = log2_of_likelihoods(scheme.scheme, priorities, batch_size)
            share = (batch_size - scheme.newest) / batch_size
            first_new = rows.stop - scheme.newest
            likelihoods = {row: math.log2(share) + log2 for row, log2 in others.items() if row < first_new}
            for row in range(first_new, rows.stop):
                likelihoods[row] = math.log2(share * 2.0 ** others.get(row, -math.inf) + 1 / batch_size)
            return likelihoods
        case _:  # Uniform, Reverse
            return dict.fromkeys(rows, -math.log2(rows.stop))


def log2_of(share: Fraction) -> float:
    """log2 of a fraction that may be too small or too large for a float."""
    return math.log2(share.numerator) - math.log2(share.denominator)


EXTREME = {
    "equal": [1.0] * 400,
    "one tiny": [1.0] * 399 + [1e-60],
    "one tiny, stored first": [1e-60] + [1.0] * 399,
    "all tiny": [1e-300] * 400,
    "one subnormal": [1.0, 5e-324] * 200,
    "one huge": [1.0] * 200 + [1e300] + [1.0] * 199,
    "spread over 300 orders of magnitude": [10.0**k for k in range(-150, 150)] + [1.0] * 100,
}
SCHEMES: list[Scheme | None] = [
    *(None, Uniform(), Proportional(), RankBased(), Reverse(7)),
    *(Geometric(half_life) for half_life in (1e-3, 0.3, 4.0, 1e6)),
    *(Combined(2, scheme) for scheme in (Uniform(), Proportional(), Geometric(0.3), RankBased())),
]


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer])
@pytest.mark.parametrize("priorities", EXTREME.values(), ids=EXTREME)
def test_weights_are_those_of_the_likelihoods_and_can_be_learned_from_however_extreme(kind, priorities):
    buffer = kind(len(priorities), ACT, alpha=1.0, eps=0.0, seed=0)
    buffer.add(action=np.arange(len(priorities)), priorities=priorities)
    for scheme in SCHEMES:
        likelihoods = log2_of_likelihoods(scheme, priorities, 32)
        if scheme is not None:
            assert buffer.sample(32, 1.0, scheme=scheme)["weights"].max() == 1.0, "by the batch"
        for normalize, beta in itertools.product(("buffer", "batch"), (0.0, 0.4, 1.0)):
            try:
                sample = buffer.sample(32, beta, normalize=normalize, scheme=scheme)
            except ValueError as error:
                assert 'Pass normalize="batch"' in str(error)
                assert (
                    normalize == "buffer"
                    and beta * (max(likelihoods.values()) - min(likelihoods.values())) > 23
                )
                continue
            drawn = np.array([likelihoods[row] for row in sample["indexes"].tolist()])
            least = min(likelihoods.values()) if normalize == "buffer" else drawn.min()
            expected = np.exp2(np.clip(beta * (least - drawn), -126.0, 0.0))
            np.testing.assert_allclose(
                sample["weights"], expected, rtol=1e-6, err_msg=f"{scheme} {normalize}"
            )
            assert sample["weights"].min() > 0.0 and sample["weights"].max() >= 2.0**-24


NUMBER: dict[str, Any] = {}
STEPS = {"obs": NUMBER, "reward": NUMBER, "next_obs": NUMBER, "terminated": {"dtype": bool}}


def never(achieved: Any, goals: Any, rows: Any) -> Any:
    return np.zeros(len(goals), bool)


@pytest.mark.parametrize(
    "buffer",
    [
        EpisodeReplayBuffer(100, STEPS, alpha=1.0, eps=0.0),
        SequenceReplayBuffer(100, STEPS, 1, alpha=1.0, eps=0.0),
        HindsightReplayBuffer(
            100, STEPS | {"goal": NUMBER}, never, never, goal="goal", achieved_goal="obs", alpha=1.0, eps=0.0
        ),
    ],
    ids=lambda buffer: type(buffer).__name__,
)
def test_weights_too_small_to_learn_from_are_refused_by_buffers_of_episodes(buffer):
    for step in range(6):
        goal = {"goal": 9} if isinstance(buffer, HindsightReplayBuffer) else {}
        buffer.add(obs=step, reward=1, next_obs=step + 1, terminated=step == 5, **goal)
    buffer.update_priorities([0, 1, 2, 3, 4, 5], [1e-60, 1, 1, 1, 1, 1])
    for beta in (0.4, 1.0):
        before = buffer._rng.bit_generator.state
        with pytest.raises(ValueError, match=r'nothing would be learned from it.*Pass normalize="batch"'):
            buffer.sample(8, beta)
        assert buffer._rng.bit_generator.state == before
        assert (buffer.sample(8, beta, normalize="batch")["weights"] == 1.0).all()


@pytest.mark.parametrize("scheme", [None, Proportional(), Combined(1, Proportional())])
def test_a_sample_refused_for_tiny_weights_leaves_the_random_state(scheme):
    buffer = PrioritizedReplayBuffer(8, {"obs": NUMBER}, alpha=1.0, eps=0.0, seed=1)
    buffer.add(obs=np.arange(8), priorities=[1e-60, *np.ones(7)])
    next(buffer.epoch(len(buffer)))  # leaves half a number for the next call
    before = buffer._rng.bit_generator.state
    with pytest.raises(ValueError, match="nothing would be learned"):
        buffer.sample(4, 1.0, normalize="buffer", scheme=scheme)
    assert buffer._rng.bit_generator.state == before
