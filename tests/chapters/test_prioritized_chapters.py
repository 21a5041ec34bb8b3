"""What chapters 03 to 05 rest on: the learner of one value, a ladder without a ceiling, and hints."""

import numpy as np
import pytest

from replay_course.course import check_written
from replay_course.exercises import NotYet
from replay_course.ladder import Ladder, Rung
from replay_course.one_value import learn_value
from replay_course.steps.prioritized import LevelByLevel, LinearScan
from replay_course.timing import Spread

OUTCOMES = [0, 0, 0, 0, 0, 0, 0, 8]


def test_without_a_known_row_beta_1_is_best() -> None:
    none, full, annealed = (  # how far each learner is from the mean, 1, after each update
        np.abs(learn_value(OUTCOMES, first_beta=first, last_beta=last, known_rows=0, runs=100) - 1)
        for first, last in [(0.0, 0.0), (1.0, 1.0), (0.4, 1.0)]
    )
    assert none[-1] > 1
    assert full[-1] < 0.1
    assert full.mean() < annealed.mean() < none.mean()


def test_with_a_known_row_beta_1_ends_closest_and_smaller_betas_stop_where_the_chapter_says() -> None:
    curves = {
        (first, last): learn_value(
            OUTCOMES, first_beta=first, last_beta=last, known_rows=1, runs=100, updates=10_000
        )
        for first, last in [(0.0, 0.0), (0.7, 0.7), (0.4, 1.0), (1.0, 1.0)]
    }
    ends = [abs(curve[-1] - 1) for curve in curves.values()]
    assert ends == sorted(ends, reverse=True)
    assert 1400 < np.argmax(curves[0.7, 0.7] > 1) < 1550
    for beta in (0.0, 0.7):
        assert curves[beta, beta][-500:].mean() == pytest.approx(8 / (1 + 7 ** (1 / (2 - beta))), abs=0.05)


def test_a_skeleton_that_inherits_from_an_empty_one_is_still_empty() -> None:
    class Empty:
        def set(self) -> None: ...

    class Filled(Empty):
        def find(self) -> int:
            return 1

    with pytest.raises(NotYet, match=r"Empty\.set is still empty"):
        check_written(print, Filled)


def test_a_ladder_without_a_ceiling_has_no_column_for_it() -> None:
    spread = Spread(1.0, 2.0, 3.0)
    rungs = [Rung(LinearScan, "–"), Rung(LevelByLevel, "waits overlap")]
    times = {rung.kind.__name__: {"find": spread} for rung in rungs}
    without, with_ceiling = Ladder(rungs, times, {}), Ladder(rungs, times, {"find": spread})
    assert without.medians("find") == with_ceiling.medians("find") == {"LinearScan": 2.0, "LevelByLevel": 2.0}
    assert "ceiling" not in repr(without)
    assert repr(with_ceiling).count("ceiling") == 2
    assert len(repr(without).splitlines()) == len(repr(with_ceiling).splitlines()) - 1
