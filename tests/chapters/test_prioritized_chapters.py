"""What chapters 03 to 05 rest on: the learner of one value, a ladder without a ceiling, the hints of exercises."""

import math

import numpy as np
import pytest

from replay_tutorial.measuring.timing import Spread
from replay_tutorial.steps.prioritized import LevelByLevel, LinearScan
from replay_tutorial.teaching.exercises import NotYet
from replay_tutorial.teaching.exercises_sum_tree import check_minimum, check_path
from replay_tutorial.teaching.ladder import Ladder, Rung
from replay_tutorial.teaching.one_value import learn_value

OUTCOMES = [0, 0, 0, 0, 0, 0, 0, 8]
BETAS = {"beta 0": (0.0, 0.0), "beta 1": (1.0, 1.0), "annealed": (0.4, 1.0)}


def distances(known_rows: int) -> dict[str, np.ndarray]:
    """How far each learner is from the mean, 1, after each update."""
    return {
        name: np.abs(
            learn_value(OUTCOMES, first_beta=first, last_beta=last, known_rows=known_rows, runs=100) - 1
        )
        for name, (first, last) in BETAS.items()
    }


def test_without_a_known_row_beta_1_is_best() -> None:
    found = distances(known_rows=0)
    assert found["beta 0"][-1] > 1
    assert found["beta 1"][-1] < 0.1
    assert found["beta 1"].mean() < found["annealed"].mean() < found["beta 0"].mean()


def test_with_a_known_row_annealing_is_best() -> None:
    found = distances(known_rows=1)
    for figure in (np.mean, lambda curve: curve[-1]):
        assert figure(found["annealed"]) < 0.8 * figure(found["beta 1"]) < figure(found["beta 0"])


def test_a_ladder_without_a_ceiling_has_no_column_for_it() -> None:
    spread = Spread(1.0, 2.0, 3.0)
    rungs = [Rung(LinearScan, "–"), Rung(LevelByLevel, "waits overlap")]
    times = {(rung.kind.__name__, "find"): spread for rung in rungs}
    without, with_ceiling = Ladder(rungs, times), Ladder(rungs, {**times, ("", "find"): spread})
    assert without.medians("find") == with_ceiling.medians("find") == {"LinearScan": 2.0, "LevelByLevel": 2.0}
    assert "ceiling" not in repr(without)
    assert repr(with_ceiling).count("ceiling") == 2
    assert len(repr(without).splitlines()) == len(repr(with_ceiling).splitlines()) - 1


def test_the_hint_about_minima_is_about_the_fault() -> None:
    def set_with_zeros(minima: list[float], slot: int, mass: float) -> None:
        node = len(minima) // 2 + slot
        minima[node] = mass
        while node > 1:
            node //= 2
            minima[node] = min(minima[2 * node], minima[2 * node + 1])

    def set_with_old_masses(minima: list[float], slot: int, mass: float) -> None:
        node = len(minima) // 2 + slot
        minima[node] = mass = mass or math.inf
        while node > 1:
            node //= 2
            minima[node] = min(minima[node], mass)

    with pytest.raises(NotYet, match="A mass of 0 must not count"):
        check_minimum(set_with_zeros)
    with pytest.raises(NotYet, match="from both children"):
        check_minimum(set_with_old_masses)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ([1, 2, 5, 11], "10 is not less than 9"),
        ([1, 3, 7, 14], "less than the 2.5 of node 6"),
        ([1, 3, 6, 12], "not less than the 0.5 of node 12"),
        ([1, 3, 6, 14], "node 6 has the children 12 and 13"),
    ],
)
def test_a_wrong_path_is_told_where_it_went_wrong(path: list[int], hint: str) -> None:
    with pytest.raises(NotYet, match=hint):
        check_path(path)
