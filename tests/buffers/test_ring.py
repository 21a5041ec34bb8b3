"""The ring, through the calls of a buffer: what stays, in which order, under which index."""

from typing import Any

import numpy as np
import pytest
from histories import History, repeatable
from hypothesis import given
from hypothesis import strategies as st
from oracles import CAPACITIES, assert_rows_among, assert_same_columns

from benchmarks.measuring.process_memory import resident_memory
from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.rows import random_below

FIELDS: dict[str, dict[str, Any]] = {
    "obs": {"shape": (3, 4)},
    "action": {"dtype": np.int64},
    "reward": {},
    "done": {"dtype": np.uint8},
}
EVERY_KIND = [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer]


@repeatable(300)
@given(seed=st.integers(0, 2**32 - 1), operations=st.integers(1, 40))
def test_buffer_equals_a_plain_list_in_any_history(seed, operations):
    History(seed, "plain").run(operations)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_buffers_of_a_thousand_equal_a_plain_list(kind):
    for seed in range(3):
        History(seed, "plain", size=1000, kind=kind).run(300, compare_every=50)


def filled(size: int, count: int) -> ReplayBuffer:
    buffer, serials = ReplayBuffer(size, FIELDS, seed=0), np.arange(count)
    obs = np.broadcast_to(serials[:, None, None], (count, 3, 4))
    assert buffer.add(obs=obs, action=serials, reward=serials / 2, done=serials % 2) == 0
    return buffer


@pytest.mark.parametrize("size", CAPACITIES)
def test_shuffle_shows_the_same_rows_in_another_order(size):
    buffer = filled(size, 2 * size + 3)
    shuffled, rows = next(buffer.epoch(len(buffer))), buffer[:]
    indexes = shuffled.pop("indexes")
    assert_same_columns(buffer[indexes], shuffled)
    assert_rows_among(shuffled, rows)
    assert rows["action"].tolist() == sorted(shuffled["action"].tolist()) == [*range(size + 3, 2 * size + 3)]
    if size > 100:
        assert shuffled["action"].tolist() != rows["action"].tolist()
        assert shuffled["action"].tolist() != next(buffer.epoch(len(buffer)))["action"].tolist()


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("size", [1e2, np.int32(100)])
def test_capacity_may_be_a_whole_float(kind, size):
    kept = kind(size, FIELDS).capacity
    assert (kept, type(kept)) == (100, int)


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("size", [0, -1, 2.7, 0.5, float("nan"), float("inf"), -1e9, np.float32(1.5)])
def test_capacity_that_is_no_whole_number_above_zero_is_refused(size, kind):
    with pytest.raises(ValueError, match="capacity"):
        kind(size, FIELDS)


@pytest.mark.parametrize("size", ["8", None, [8], b"8", 8j, {}])
def test_capacity_that_is_no_number_is_refused(size):
    with pytest.raises(TypeError, match="capacity"):
        ReplayBuffer(size, FIELDS)


def test_counts_are_plain_integers():
    buffer = filled(4, 9)
    for count in (len(buffer), buffer.capacity, buffer.next_index, buffer.nbytes):
        assert type(count) is int


def test_memory_is_reported_in_bytes_for_each_transition():
    buffer = ReplayBuffer(1000, FIELDS)
    row = 12 * 4 + 8 + 4 + 1
    assert row <= buffer.bytes_per_transition <= row + 16
    assert buffer.nbytes == buffer.bytes_per_transition * 1000


@pytest.mark.skipif(not resident_memory(), reason="needs a system that tells a process's memory")
def test_huge_buffer_is_made_and_loaded_without_touching_its_memory(tmp_path):
    """A gigabyte is promised at once, and costs nothing until rows are written."""
    before = resident_memory()
    buffer = ReplayBuffer(10_000, {"obs": {"shape": (4, 84, 84)}})
    buffer.add(obs=np.zeros((4, 84, 84)))
    assert buffer.nbytes > 1e9
    buffer.save(tmp_path / "rows")
    buffer.load(tmp_path / "rows")
    assert resident_memory() - before < 1e8


class LargestBelowOne:
    """A source of randomness that draws the largest number below 1, which comes once in 2^53 times."""

    def random(self, count):
        return np.full(count, np.nextafter(1.0, 0.0))


@given(limit=st.integers(1, 2**50))
def test_drawn_numbers_stay_below_the_limit(limit):
    assert random_below(limit, 3, LargestBelowOne()).tolist() == [limit - 1] * 3
