"""What chapter 07 rests on: the check of mailboxes, its drawing, and checks that know the usual mistakes."""

from collections import deque
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replay_tutorial.agents.dqn import epsilon_schedule
from replay_tutorial.teaching import exercises_apex
from replay_tutorial.teaching.drawings import PLACES, draw_roles
from replay_tutorial.teaching.exercises import CheckFailed, NotYet
from replay_tutorial.teaching.exercises_apex import OnePlace, check_mailbox, pull_for


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
        check_mailbox(OnePlace, seconds=20)


def test_a_torn_vector_and_an_older_one_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()  # a millisecond passes at each look, so that 10 ms are a number of pulls
    monkeypatch.setattr(exercises_apex, "time", SimpleNamespace(monotonic=lambda: next(clock) / 1_000))
    assert pull_for(Script([1, 1], [2, 2]), 0.01) == (2, 0)
    with pytest.raises(CheckFailed, match=r"pull 2: 50% of the vector is 2"):
        pull_for(Script([1, 1], [2, 1]), 0.01)
    with pytest.raises(CheckFailed, match="returned 1 after 2"):
        pull_for(Script([2, 2], [1, 1]), 0.01)


def test_every_role_can_be_lit_and_no_other() -> None:
    assert draw_roles(*PLACES).svg().count("fill-opacity") == len(PLACES)
    with pytest.raises(ValueError, match="no 'teacher'"):
        draw_roles("teacher")


def test_the_package_passes_the_exercise_of_epsilons() -> None:
    exercises_apex.check_epsilons(epsilon_schedule)


def without_first_power(actors: int) -> Any:
    return 0.4 ** (7 * np.arange(actors) / max(1, actors - 1))


def divided_by_all(actors: int) -> Any:
    return 0.4 ** (1 + 7 * np.arange(actors) / actors)


def evenly_spaced(actors: int) -> Any:
    return np.linspace(0.4, 0.4**8, actors)


def alone_undefined(actors: int) -> Any:
    return [0.4 ** (1 + 7 * actor / (actors - 1)) for actor in range(actors)]


@pytest.mark.parametrize("wrong", [without_first_power, divided_by_all, evenly_spaced, alone_undefined])
def test_wrong_ladders_of_epsilons_are_not_taken(wrong: Callable[[int], Any]) -> None:
    with pytest.raises(NotYet):
        exercises_apex.check_epsilons(wrong)


@pytest.mark.parametrize("error", [..., 512, 1024, 895])
def test_wrong_errors_of_the_limiter_are_not_taken(error: Any) -> None:
    with pytest.raises(NotYet):
        exercises_apex.check_error(error)


def test_a_window_that_forgets_its_last_sums_is_not_taken() -> None:
    def sums(steps: list[tuple[int, float]], n: int) -> Any:
        windows: dict[int, deque[float]] = {}
        for environment, reward in steps[:-1]:
            window = windows.setdefault(environment, deque(maxlen=n))
            window.append(reward)
            if len(window) == n:
                yield environment, sum(window)

    with pytest.raises(NotYet, match="sums, not"):
        exercises_apex.check_sums(sums)
