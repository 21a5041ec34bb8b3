"""`len` of a shared buffer counts the rows that can be read, after whatever step a writer was killed."""

import copy
import subprocess
import sys

import numpy as np
import pytest
from shared_rows import every_buffer, row_fields, rows_of

from replay_tutorial import MPReplayBuffer
from replay_tutorial.shared import shared_ring
from replay_tutorial.shared.processes import pack_identity, start_time
from replay_tutorial.shared.protocol import NEXT_INDEX, PUBLISHED, add_to_counter, held_stamp, published_stamp

SIZE, KILLED = 5, 7


@pytest.fixture(scope="module")
def dead_process():
    """The name of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return pack_identity(process.pid, start_time(process.pid))


def killed_after(step, ring, rows):
    """Leave a ring as a writer leaves it that is killed after a step of adding rows."""
    first = add_to_counter(ring.counters, NEXT_INDEX, rows)
    if step == "reserved":
        return
    if step != "first row held":
        ring.stamps[first % SIZE] = published_stamp(first)  # and not counted
        first += 1
    if step != "first row published":
        ring.stamps[first % SIZE] = held_stamp(first, KILLED)


def assert_exact(*buffers):
    there = {len(buffer.get_all_transitions()["obs"]) for buffer in buffers}
    assert {len(buffer) for buffer in buffers} == there


@every_buffer
@pytest.mark.parametrize("step", ["reserved", "first row held", "first row published", "second row held"])
@pytest.mark.parametrize("stored", [0, 2, 4, 5, 8])
def test_len_counts_what_can_be_read_after_a_kill_at_any_step(buffer_class, step, stored, dead_process):
    buffer = buffer_class(SIZE, row_fields())
    ring = buffer._ring
    buffer._block["owners"][KILLED] = dead_process
    for number in range(stored):
        buffer.add(**rows_of(1, number, 1))
        assert len(buffer) == min(number + 1, SIZE)
    for number in range(stored, stored + 3 * SIZE):
        if number in (stored, stored + SIZE + 1):
            killed_after(step, ring, rows=3)
            assert_exact(buffer, copy.copy(buffer))
        buffer.add(**rows_of(1, number, 1))
        assert_exact(buffer, copy.copy(buffer))
    assert len(buffer) == SIZE


@every_buffer
def test_len_does_not_count_a_row_reserved_before_clear_and_published_after_it(buffer_class):
    buffer = buffer_class(SIZE, row_fields())
    ring = buffer._ring
    buffer.add(**rows_of(1, 0, 7))
    index = add_to_counter(ring.counters, NEXT_INDEX, 1)
    for _ in range(2):
        buffer.clear()
        assert_exact(buffer)
    ring.stamps[index % SIZE] = published_stamp(index)
    add_to_counter(ring.counters, PUBLISHED, 1)
    assert len(buffer) == 0
    for number in range(2 * SIZE):
        buffer.add(**rows_of(1, number, 1))
        assert_exact(buffer)


def test_len_looks_at_many_new_rows_in_pieces(monkeypatch):
    monkeypatch.setattr(shared_ring, "SLOTS_PER_CHECK", 4)
    buffer, rng = MPReplayBuffer(20, row_fields()), np.random.default_rng(0)
    for count in rng.integers(1, 30, 40).tolist():
        buffer.add(**rows_of(1, 0, count))
        if count % 3 == 0:
            add_to_counter(buffer._ring.counters, NEXT_INDEX, 2)  # of a writer that was killed
        assert_exact(buffer)
