"""The checks of chapters 06 to 08 know the usual mistakes."""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replay_tutorial import SamplesPerInsert
from replay_tutorial.teaching import exercises_apex as apex
from replay_tutorial.teaching import exercises_shared as shared
from replay_tutorial.teaching import exercises_training as training
from replay_tutorial.teaching.drawings import PLACES, draw_roles
from replay_tutorial.teaching.environments import Corridor
from replay_tutorial.teaching.exercises import CheckFailed, NotYet


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


def releases(
    stamps: Any, slot: int, owner_of: Any, is_alive: Any, abandoned: Any, swap: Any, *, fault: str
) -> bool:
    stamp = stamps[slot]
    if stamp % 2 == 0 or owner_of(stamp) == 0:
        return True
    if fault != "asks nobody" and is_alive(owner_of(stamp)):
        return False
    left = 0 if fault == "forgets the index" else abandoned(stamp)
    if fault == "stores":
        stamps[slot] = left
        return True
    return swap(stamps, slot, stamps[slot] if fault == "swaps a later stamp" else stamp, left)


def samples(
    stamps: Any, rows: Any, rng: Any, batch_size: int, *, lowest: int = 1, odd: int = 0,
    checks_again: bool = True, moves_by: int | None = None,
) -> Any:  # fmt: skip
    batch: list[Any] = []
    while len(batch) < batch_size:
        slot = int(rng.integers(4))
        while (stamp := stamps[slot]) < lowest or stamp % 2 > odd:
            slot = int(rng.integers(4)) if moves_by is None else (slot + moves_by) % 4
        row = rows[slot].copy()
        if not checks_again or stamps[slot] == stamp:
            batch.append(row)
    return batch


class IgnoresMinSize(SamplesPerInsert):
    def await_can_sample(self, count: int, timeout: float | None = None) -> bool:
        return self.error - count >= -self.error_buffer


class AdmitsAtTheEdge(SamplesPerInsert):
    def await_can_insert(self, count: int, timeout: float | None = None) -> bool:
        return self.error <= self.error_buffer


class StartsOneRowLate(SamplesPerInsert):
    def await_can_sample(self, count: int, timeout: float | None = None) -> bool:
        return self.inserts > self.min_size and super().await_can_sample(count, timeout)


class RefusesTheFirstRows(SamplesPerInsert):
    def await_can_insert(self, count: int, timeout: float | None = None) -> bool:
        return abs(self.error + count * self.samples_per_insert) <= self.error_buffer


class WaitsForever(SamplesPerInsert):
    def await_can_sample(self, count: int, timeout: float | None = None) -> bool:
        return super().await_can_sample(count, timeout=60.0)


class DoesNotWait(SamplesPerInsert):
    def await_can_insert(self, count: int, timeout: float | None = None) -> bool:
        return super().await_can_insert(count, timeout=0.0)


def forgets_the_last_sums(steps: list[tuple[int, float]], n: int) -> Any:
    windows: dict[int, deque[float]] = {}
    for environment, reward in steps[:-1]:
        window = windows.setdefault(environment, deque(maxlen=n))
        window.append(reward)
        if len(window) == n:
            yield environment, sum(window)


class Unscaled(Corridor):
    def observe(self) -> Any:
        return np.array([self.position], np.float32)


class EndsAtItsTimeLimit(Corridor):
    steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: np.int64) -> Any:
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or self.steps == 50, truncated, info


class WithoutWall(Corridor):
    def step(self, action: np.int64) -> Any:
        self.position += 1 if action == 1 else -1
        return self.observe(), -1.0, self.position == 5, False, {}


def without_random_state(replay: training.SmallReplay) -> dict[str, Any]:
    return {"numbers": replay.numbers.copy(), "added": replay.added}


def whole_state(replay: training.SmallReplay) -> dict[str, Any]:
    return without_random_state(replay) | {"rng": replay.rng.bit_generator.state}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_corridor_of_the_package_passes_its_check() -> None:
    training.check_corridor(Corridor)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("check", "wrong", "message"),
    [
        (shared.check_release, partial(releases, fault="stores"), "should be"),
        (shared.check_release, partial(releases, fault="swaps a later stamp"), "should be"),
        (shared.check_release, partial(releases, fault="asks nobody"), "should be"),
        (shared.check_release, partial(releases, fault="forgets the index"), "should be"),
        (shared.check_sampler, partial(samples, lowest=0), "never written"),
        (shared.check_sampler, partial(samples, odd=1), "half-written"),
        (shared.check_sampler, partial(samples, checks_again=False), "torn"),
        (shared.check_sampler, partial(samples, moves_by=1), "equally often"),
        (shared.check_sampler, partial(samples, moves_by=0), "wait for"),
        (apex.check_limiter, IgnoresMinSize, "sampled"),
        (apex.check_limiter, AdmitsAtTheEdge, "inserted"),
        (apex.check_limiter, StartsOneRowLate, "after 20 inserts, 5 rows may be sampled"),
        (apex.check_limiter, RefusesTheFirstRows, "inserted"),
        (apex.check_limiter, DoesNotWait, "should wait"),
        (apex.check_limiter, WaitsForever, "has not returned"),
        (apex.check_error, ..., "write a number"),
        (apex.check_error, 512, "a single actor can reach 512"),
        (apex.check_error, 1024, "too large"),
        (apex.check_error, 895, "not 895"),
        (
            apex.check_epsilons,
            lambda n: 0.4 ** (7 * np.arange(n) / max(1, n - 1)),
            "its exponent should be 1",
        ),
        (apex.check_epsilons, lambda n: 0.4 ** (1 + 7 * np.arange(n) / n), "its exponent should be 8"),
        (apex.check_epsilons, lambda n: np.linspace(0.4, 0.4**8, n), "not evenly spaced"),
        (apex.check_epsilons, lambda n: [0.4 ** (1 + 7 * i / (n - 1)) for i in range(n)], "division by zero"),
        (apex.check_sums, forgets_the_last_sums, "sums, not"),
        (training.check_corridor, Unscaled, "observation"),
        (training.check_corridor, EndsAtItsTimeLimit, "terminated"),
        (training.check_corridor, WithoutWall, "observation"),
        (
            training.check_state,
            lambda small: whole_state(small) | {"added": min(small.added, 8)},
            "are missing",
        ),
        (training.check_state, without_random_state, "what determines the draws"),
    ],
)
def test_a_wrong_answer_fails_with_its_hint(check: Callable[[Any], None], wrong: Any, message: str) -> None:
    with pytest.raises(NotYet, match=message):
        check(wrong)
