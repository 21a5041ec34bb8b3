"""The checks of the skeletons of chapters 06 to 08 accept the package's classes, and know usual mistakes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from replay_tutorial import SamplesPerInsert
from replay_tutorial.teaching import exercises_apex, exercises_shared, exercises_training
from replay_tutorial.teaching.environments import Corridor
from replay_tutorial.teaching.exercises import NotYet
from replay_tutorial.teaching.exercises_shared import Torn, check_shared


def checks_once(stamps: Any, rows: Any, slot: int) -> Any:
    return None if stamps[slot] == 0 or stamps[slot] % 2 else rows[slot].copy()


def test_two_writers_tear_a_row_that_is_checked_once() -> None:
    with pytest.raises(Torn):
        check_shared(partial(exercises_shared.RowsReadBy, checks_once), seconds=20)


def releases(stamps: Any, slot: int, owner_of: Any, is_alive: Any, swap: Any) -> bool:
    stamp = stamps[slot]
    return stamp % 2 == 0 or (not is_alive(owner_of(stamp)) and swap(stamps, slot, stamp, 0))


def stores(stamps: Any, slot: int, owner_of: Any, is_alive: Any, swap: Any) -> bool:
    if stamps[slot] % 2 and not is_alive(owner_of(stamps[slot])):
        stamps[slot] = 0
    return stamps[slot] % 2 == 0


def swaps_a_later_stamp(stamps: Any, slot: int, owner_of: Any, is_alive: Any, swap: Any) -> bool:
    if stamps[slot] % 2 == 0:
        return True
    return not is_alive(owner_of(stamps[slot])) and swap(stamps, slot, stamps[slot], 0)


def asks_nobody(stamps: Any, slot: int, owner_of: Any, is_alive: Any, swap: Any) -> bool:
    return stamps[slot] % 2 == 0 or swap(stamps, slot, stamps[slot], 0)


def test_a_slot_is_released_by_a_swap_of_the_stamp_that_was_checked() -> None:
    exercises_shared.check_release(releases)
    for wrong in (stores, swaps_a_later_stamp, asks_nobody):
        with pytest.raises(NotYet):
            exercises_shared.check_release(wrong)


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


def test_a_sampler_draws_complete_rows_equally_often_and_waits_for_no_writer() -> None:
    exercises_shared.check_sampler(samples)
    for wrong, message in (
        ({"lowest": 0}, "never written"),
        ({"odd": 1}, "half-written"),
        ({"checks_again": False}, "torn"),
        ({"moves_by": 1}, "equally often"),
        ({"moves_by": 0}, "wait for"),
    ):
        with pytest.raises(NotYet, match=message):
            exercises_shared.check_sampler(partial(samples, **wrong))


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


def test_a_limiter_keeps_the_band_and_waits() -> None:
    exercises_apex.check_limiter(SamplesPerInsert)
    for wrong, message in (
        (IgnoresMinSize, "sampled"),
        (AdmitsAtTheEdge, "inserted"),
        (StartsOneRowLate, "after 20 inserts, 5 rows may be sampled"),
        (RefusesTheFirstRows, "inserted"),
        (DoesNotWait, "should wait"),
        (WaitsForever, "has not returned"),
    ):
        with pytest.raises(NotYet, match=message):
            exercises_apex.check_limiter(wrong)


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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_environment_is_scaled_has_a_wall_and_does_not_end_at_its_time_limit() -> None:
    exercises_training.check_corridor(Corridor)
    wrongs: list[tuple[Callable[[], Any], str]] = [
        (Unscaled, "observation"),
        (EndsAtItsTimeLimit, "terminated"),
        (WithoutWall, "observation"),
    ]
    for wrong, message in wrongs:
        with pytest.raises(NotYet, match=message):
            exercises_training.check_corridor(wrong)
