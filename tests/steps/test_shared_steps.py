"""The shared rungs: one check for them and for the package's buffer, and what a killed writer leaves."""

import multiprocessing
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lossy_replays import KeepsTooLong, LosesRows, MakesRowsUp
from programs import run_python

from replay_course.exercises import CheckFailed
from replay_course.exercises_shared import Torn, check_shared
from replay_course.killed_writer import kill_a_writer
from replay_course.ladder_shared import race
from replay_course.protocol_explorer import SAMPLER, WRITER, explore_protocol
from replay_course.steps.shared import (
    FineLocks,
    ManagerReplay,
    NoLock,
    OneLock,
    QueueReplay,
    StampedPriorities,
    StampedRows,
)
from replay_tutorial import MPReplayBuffer

RIGHT = [QueueReplay, ManagerReplay, OneLock, FineLocks, StampedRows, StampedPriorities, MPReplayBuffer]
# on Windows a pipe takes a message whole or not at all
FREEZE = [OneLock, FineLocks] + [QueueReplay] * (sys.platform != "win32")
GO_ON = [ManagerReplay, StampedRows, MPReplayBuffer]


@pytest.fixture(autouse=True)
def no_process_stays_behind() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("kind", RIGHT)
def test_every_rung_is_right(kind: Any) -> None:
    check_shared(kind)


def test_without_a_lock_rows_are_torn() -> None:
    with pytest.raises(Torn, match="a torn row") as error:
        check_shared(NoLock, seconds=30)  # it ends with the first one
    assert len(set(error.value.values.tolist())) > 1


@pytest.mark.parametrize("kind", FREEZE)
def test_a_killed_writer_freezes_whatever_has_a_lock(kind: Any) -> None:
    # a writer between two calls of `add` leaves no lock behind: one try in thirty
    assert any(kill_a_writer(kind).is_blocked for _ in range(10))


@pytest.mark.parametrize("kind", GO_ON)
def test_a_killed_writer_does_not_stop_the_others(kind: Any) -> None:
    assert not kill_a_writer(kind, patience=60.0).is_blocked


LEAVE = """
from replay_course.steps.shared import NoLock, OneLock
from replay_course.killed_writer import kill_a_writer
from replay_course.exercises_shared import Torn, check_shared
try:
    check_shared(NoLock, seconds=30)
except Torn:
    print(any(kill_a_writer(OneLock).is_blocked for _ in range(10)))
"""


def test_neither_a_frozen_nor_a_torn_buffer_leaves_shared_memory_behind() -> None:
    result = run_python("-c", LEAVE)  # at the end multiprocessing names the memory that is still there
    assert (result.stdout.strip(), result.stderr) == ("True", "")


@pytest.mark.parametrize("which", [1, 3])
def test_no_fence_of_a_protocol_can_be_spared(which: int) -> None:
    assert explore_protocol().violation is None
    for writer, sampler in (
        ([*WRITER[:which], *WRITER[which + 1 :]], SAMPLER),
        (WRITER, [*SAMPLER[:which], *SAMPLER[which + 1 :]]),
    ):
        assert explore_protocol(writer, sampler).violation


@pytest.mark.parametrize(
    ("writer", "sampler", "message"),
    [
        (("hold", "words"), SAMPLER, "'publish' once each"),
        (WRITER, ("check", "check"), "'words' once"),
        (WRITER, ("check", "words", "check", "check"), "'check' once or twice"),
    ],
)
def test_a_protocol_that_can_not_be_explored_is_refused(
    writer: tuple[str, ...], sampler: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        explore_protocol(writer, sampler)


def test_a_race_counts_what_both_sides_get_done() -> None:
    assert min(race(OneLock, writers=1, seconds=2.0)) > 0  # a lock lets one side starve for a while


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (LosesRows, r"missing rows: \d+ \("),
        (KeepsTooLong, r"missing rows: 0, unexpected rows: 1 \(\d+\)"),
        (MakesRowsUp, "empty buffer"),
    ],
)
def test_the_check_finds_what_is_wrong(wrong: Any, message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_shared(wrong, patience=0.5)


def test_stamped_priorities_draw_by_mass_drop_late_updates_and_skip_held_slots() -> None:
    ring = StampedPriorities(8, {"reward": {}, "ended": {"dtype": bool}}, alpha=1.0, eps=0.0, seed=0)
    ring.add(reward=np.arange(11.0), ended=np.zeros(11), priorities=np.arange(1.0, 12.0))
    assert ring[:]["reward"].tolist() == list(range(3, 11))
    ring.update_priorities(np.array([2, 5]), np.array([100.0, 20.0]))
    assert ring.stale_updates == 1
    masses = np.array([4.0, 5, 20, 7, 8, 9, 10, 11])  # of rows 3 to 10
    batch = ring.sample(1_000, beta=0.5)
    assert np.array_equal(batch["reward"], batch["indexes"])
    assert batch["ended"].dtype == bool
    counts = np.bincount(batch["indexes"] - 3, minlength=8)
    assert np.abs(counts - 1_000 * masses / masses.sum()).max() < 2  # stratified
    assert batch["weights"] == pytest.approx((4.0 / masses[batch["indexes"] - 3]) ** 0.5)
    _, stamps, _ = ring.arrays
    stamps[5] += 1  # a writer holds the slot of row 5
    assert 5 not in ring.sample(1_000)["indexes"]
    with pytest.raises(ValueError, match="the buffer is empty"):
        StampedPriorities(8, {"reward": {}}).sample(1)
