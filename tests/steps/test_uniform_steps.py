"""The uniform rungs: one check for all of them and for the package's buffer, and it finds what is wrong."""

from typing import Any

import numpy as np
import pytest

from replay_tutorial import ReplayBuffer
from replay_tutorial.steps.uniform import DequeOfTuples, ListOfTuples, RingOfArrays, RingOfRecords
from replay_tutorial.teaching.chi_square import fairness
from replay_tutorial.teaching.exercises import CheckFailed
from replay_tutorial.teaching.exercises_uniform import OtherRing, check_uniform


@pytest.mark.parametrize("kind", [ListOfTuples, DequeOfTuples, RingOfArrays, RingOfRecords, ReplayBuffer])
def test_every_rung_is_right(kind: Any) -> None:
    check_uniform(kind)


class DrawsEmptySlots(RingOfRecords):
    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        batch = self.rows.take(self.rng.integers(self.capacity, size=batch_size))
        return {name: batch[name] for name in self.names}


class KeepsOneTooFew(RingOfRecords):
    def __init__(self, capacity: int, fields: Any, seed: int = 0) -> None:
        super().__init__(max(capacity - 1, 1), fields, seed)


class MixesFields(RingOfArrays):
    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        return {
            name: column[self.rng.integers(len(self), size=batch_size)]
            for name, column in self.columns.items()
        }


class KeepsTheCallersArrays(ListOfTuples):
    def add(self, **transition: Any) -> None:
        super().add(**transition)
        self.memory[-1] = (transition["obs"], *self.memory[-1][1:])


class PrefersTheFirst(RingOfRecords):
    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        slots = self.rng.integers(len(self), size=batch_size)
        slots[: batch_size // 20] = 0
        batch = self.rows.take(slots)
        return {name: batch[name] for name in self.names}


class SamplesInOrder(RingOfRecords):
    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        slots = (self.rng.integers(len(self)) + np.arange(batch_size)) % len(self)
        batch = self.rows.take(slots)
        return {name: batch[name] for name in self.names}


class NeverTheSameTwice(RingOfRecords):
    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        batch = self.rows.take(np.resize(self.rng.permutation(len(self)), batch_size))
        return {name: batch[name] for name in self.names}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (DrawsEmptySlots, "capacity 2, after 1 row: sampled a row of zeros, although no such row was added"),
        (KeepsOneTooFew, "len"),
        (MixesFields, "of row"),
        (KeepsTheCallersArrays, "when the caller wrote to the array"),
        (PrefersTheFirst, "times in"),
        (OtherRing, "was sampled 0 times"),
        (SamplesInOrder, "sample each row independently"),
        (NeverTheSameTwice, "the same row was drawn twice running"),
    ],
)
def test_the_check_finds_what_is_wrong(kind: Any, message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_uniform(kind)


def test_chi_square_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for cells in (2, 5, 50, 1000):
        probabilities = rng.dirichlet(np.ones(cells) * 5)
        counts = rng.multinomial(1000 * cells, probabilities)
        ours = fairness(counts, probabilities)
        exact = stats.chi2.isf(stats.norm.sf(ours.deviations), ours.freedom)
        assert exact == pytest.approx(ours.chi_square, rel=0.05, abs=0.2)


def test_what_can_not_be_drawn_is_never_fair() -> None:
    assert not fairness([10, 1], [1, 0]).is_fair
