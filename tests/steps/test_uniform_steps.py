"""The uniform rungs: one check for all of them and for the package's buffer, and it finds what is wrong."""

from typing import Any

import numpy as np
import pytest

from replay_course.chi_square import fairness
from replay_course.exercises_uniform import check_uniform
from replay_course.steps.uniform import DequeOfTuples, ListOfTuples, RingOfArrays, RingOfRecords
from replay_tutorial import ReplayBuffer


@pytest.mark.parametrize("kind", [ListOfTuples, DequeOfTuples, RingOfArrays, RingOfRecords, ReplayBuffer])
def test_every_rung_is_right(kind: Any) -> None:
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
