"""Rate limiters: Reverb's arithmetic, walked beside an oracle and checked number by number."""

import math
import sys
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from replay_tutorial import SamplesPerInsert
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack


class Counting:
    """A limiter that counts, as `cc/rate_limiter.cc` reads: the oracle. Exact, in fractions."""

    def __init__(self, samples_per_insert: float, min_size: int, min_diff: float, max_diff: float) -> None:
        self.ratio, self.min_size = Fraction(samples_per_insert), min_size
        self.min_diff, self.max_diff = Fraction(min_diff), Fraction(max_diff)
        self.inserts = self.samples = self.deletes = 0

    def can_insert(self, count: int) -> bool:
        if self.inserts + count - self.deletes <= self.min_size:
            return True
        return (self.inserts + count) * self.ratio - self.samples <= self.max_diff

    def can_sample(self, count: int) -> bool:
        if self.inserts - self.deletes < self.min_size:
            return False
        return self.inserts * self.ratio - self.samples - count >= self.min_diff

    def counts(self) -> tuple[int, int, int]:
        return self.inserts, self.samples, self.deletes


LIMITERS: dict[str, RateLimiter] = {
    "min size": MinSize(7),
    "ratio 2": SampleToInsertRatio(2, 10, 4),
    "ratio 8": SampleToInsertRatio(8.0, 3, 16.0),
    "ratio 1.5": SampleToInsertRatio(1.5, 2, (0.0, 5.0)),
    "ratio 1/4": SampleToInsertRatio(0.25, 12, 1.0),
    "queue": Queue(5),
    "stack": Stack(1),
}


@pytest.mark.parametrize("name", LIMITERS)
def test_a_walk_of_thousands_of_steps_goes_as_the_oracle_says(name: str) -> None:
    limiter = LIMITERS[name]
    numbers = (limiter.samples_per_insert, limiter.min_size, limiter.min_diff, limiter.max_diff)
    oracle, rng = Counting(*numbers), np.random.default_rng(5)
    answers = set()
    for _ in range(10_000):
        counts = oracle.counts()
        most = int(rng.integers(1, 40))
        sampleable = max((n for n in range(1, most + 1) if oracle.can_sample(n)), default=0)
        assert limiter.sampleable(*counts, most) == sampleable
        assert limiter.may_sample(*counts, most) == oracle.can_sample(most)
        assert limiter.may_insert(*counts) == oracle.can_insert(1)
        answers.add((oracle.can_insert(1), sampleable > 0))
        kind = rng.random()
        if kind < 0.48 and oracle.can_insert(1):
            oracle.inserts += 1
        elif kind < 0.96 and sampleable:
            oracle.samples += int(rng.integers(1, sampleable + 1))
        elif kind >= 0.96 and oracle.inserts > oracle.deletes:
            oracle.deletes += 1
    assert len(answers) >= 2, "the walk met no limit"


@pytest.mark.parametrize(
    ("limiter", "numbers"),
    [
        (MinSize(7), (1.0, 7, -sys.float_info.max, sys.float_info.max)),
        (SampleToInsertRatio(2.0, 10, 4.0), (2.0, 10, 16.0, 24.0)),
        (SampleToInsertRatio(2.0, 10, (7.0, 30.0)), (2.0, 10, 7.0, 30.0)),
        (Queue(5), (1.0, 1, 0.0, 5.0)),
        (Stack(5), (1.0, 1, 0.0, 5.0)),
    ],
)
def test_a_limiter_has_the_four_numbers_of_reverb(limiter: RateLimiter, numbers: tuple[float, ...]) -> None:
    """Around samples_per_insert · min_size where the error is one number; as given where it is a pair."""
    shown = (limiter.samples_per_insert, limiter.min_size, limiter.min_diff, limiter.max_diff)
    assert shown == numbers


@pytest.mark.parametrize(
    "ratio, min_size, buffer, accepted",
    [
        (5, 10, 4, False),
        (0.5, 10, 0.9, False),
        (0.5, 10, 1.1, True),
        (5, 10, (8.0, 12.0), False),
        (0.1, 10, (9.5, 10.5), False),
        (1, 10, (11.0, 15.0), False),
        (1, 10, (7.0, 12.0), True),
        (0, 10, 4, False),
        (-1, 10, 4, False),
        (math.nan, 10, 4, False),
        (math.inf, 10, 4, False),
        (1, 0, 4, False),
        (1, 10, math.nan, False),
        (1, 10, math.inf, True),
        (1, 10, (-math.inf, math.inf), True),
        (1, 10, (math.nan, 4.0), False),
    ],
)
def test_a_band_in_which_both_would_wait_is_refused(
    ratio: float, min_size: int, buffer: Any, accepted: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if accepted:
            assert SampleToInsertRatio(ratio, min_size, buffer).min_size == min_size
        else:
            with pytest.raises(ValueError):
                SampleToInsertRatio(ratio, min_size, buffer)


def test_a_band_that_ends_before_sampling_begins_warns() -> None:
    with pytest.warns(UserWarning, match="can deadlock"):
        SampleToInsertRatio(1, 10, (5.0, 9.0))


@pytest.mark.parametrize("make", [MinSize, Queue, Stack])
@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_a_size_is_an_integer_of_at_least_1(make: Any, size: Any, error: Any) -> None:
    with pytest.raises(error, match=r"at least 1|integer"):
        make(size)


def test_a_limit_of_infinity_can_be_counted_up_to() -> None:
    assert SampleToInsertRatio(1, 1, math.inf).sampleable(1, 10**9, 0, 64) == 64
    assert MinSize(1).sampleable(1, 10**15, 0, 64) == 64


def test_limiters_of_the_same_numbers_are_equal() -> None:
    assert MinSize(3) == MinSize(3) != MinSize(4)
    assert SampleToInsertRatio(1, 10, [7.0, 12.0]) == SampleToInsertRatio(1, 10, (7.0, 12.0))


def test_the_limiter_between_processes_says_the_same_while_nothing_is_deleted() -> None:
    ours, theirs = SampleToInsertRatio(4, 20, 24.0), SamplesPerInsert(4, 20, 24.0)
    rng, inserts, samples = np.random.default_rng(0), 0, 0
    for _ in range(2_000):
        if rng.random() < 0.5:
            allowed = ours.may_insert(inserts, samples, 0)
            assert theirs.await_can_insert(1, timeout=0.0) == allowed
            theirs.inserted(int(allowed))
            inserts += allowed
        else:
            count = int(rng.integers(1, 6))
            allowed = ours.may_sample(inserts, samples, 0, count)
            assert theirs.await_can_sample(count, timeout=0.0) == allowed
            theirs.sampled(count * allowed)
            samples += count * allowed
    assert inserts > 100 and samples > 300


@pytest.mark.parametrize("kind", [SamplesPerInsert, SampleToInsertRatio])
@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("4", 10, 99.0), TypeError, "samples_per_insert must be a number, not '4'"),
        ((10**400, 10, 99.0), ValueError, "samples_per_insert must be finite"),
        ((4.0, "a", 99.0), TypeError, "min_size must be .*, not 'a'"),
        ((4.0, 10**400, 99.0), ValueError, "min_size must be .* 2 [*][*] 53, not inf"),
        ((4.0, 1e300, 99.0), (TypeError, ValueError), "min_size must be .*, not 1e[+]300"),
        ((4.0, 10, "99"), TypeError, "error_buffer must be a number, not '99'"),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name(
    kind: Any, arguments: tuple[Any, ...], error: Any, match: str
) -> None:
    with pytest.raises(error, match=match):
        kind(*arguments)


def test_single_precision_arguments_are_not_computed_with() -> None:
    limiter = RateLimiter(np.float32(1), 1, np.float32(0), np.float32(1))
    assert not limiter.may_insert(2**24, 2**24 - 1, 0), "the cursor would be 2; float32 rounds it to 1"
