"""The checks of chapters 06 to 08 know the usual mistakes."""

from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replay_course import exercises_apex as apex
from replay_course import exercises_shared as shared
from replay_course import exercises_training as training
from replay_course.drawings import PLACES, draw_roles
from replay_course.environments import Corridor
from replay_course.exercises import CheckFailed


class Script:
    """A mailbox that hands out what is written in a list."""

    def __init__(self, *vectors: list[float]) -> None:
        self.vectors, self.version = list(vectors), 0

    def pull(self, known_version: int) -> tuple[int, Any] | None:
        if self.version == len(self.vectors):
            return None
        self.version += 1
        return self.version, np.array(self.vectors[self.version - 1])


def test_one_place_gives_torn_vectors() -> None:
    with pytest.raises(CheckFailed, match="of the vector is"):
        apex.check_mailbox(apex.OnePlace, seconds=20)


def test_a_torn_vector_and_an_older_one_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()  # a millisecond passes at each look, so that 10 ms are a number of pulls
    monkeypatch.setattr(apex, "time", SimpleNamespace(monotonic=lambda: next(clock) / 1_000))
    assert apex.pull_for(Script([1, 1], [2, 2]), 0.01) == (2, 0)
    with pytest.raises(CheckFailed, match=r"pull 2: 50% of the vector is 2"):
        apex.pull_for(Script([1, 1], [2, 1]), 0.01)
    with pytest.raises(CheckFailed, match="returned 1 after 2"):
        apex.pull_for(Script([2, 2], [1, 1]), 0.01)


def test_every_role_can_be_lit_and_no_other() -> None:
    assert draw_roles(*PLACES).svg().count("fill-opacity") == len(PLACES)
    with pytest.raises(ValueError, match="no 'teacher'"):
        draw_roles("teacher")


def checks_once(stamps: Any, rows: Any, slot: int) -> Any:
    return None if stamps[slot] == 0 or stamps[slot] % 2 else rows[slot].copy()


def test_two_writers_tear_a_row_that_is_checked_once() -> None:
    with pytest.raises(shared.Torn):
        shared.check_shared(partial(shared.RowsReadBy, checks_once), seconds=20)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_corridor_of_the_package_passes_its_check() -> None:
    training.check_corridor(Corridor)
