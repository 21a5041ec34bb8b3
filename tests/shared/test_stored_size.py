"""`len` of a shared buffer counts the rows that can be read; `test_writer_crash` checks it after kills."""

import numpy as np
import pytest
from shared_rows import every_buffer, row_fields, rows_of

from replay_tutorial import MPReplayBuffer
from replay_tutorial.shared import shared_ring
from replay_tutorial.shared.protocol import NEXT_INDEX, PUBLISHED, add_to_counter, published_stamp

SIZE = 5


def assert_exact(buffer):
    assert len(buffer) == len(buffer[:]["obs"])


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


def test_rows_to_wait_for_that_are_no_count_are_refused():
    buffer = MPReplayBuffer(4, row_fields())
    for rows, error in ((-1, ValueError), (5, ValueError), (None, TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="rows must be"):
            buffer.wait_for(rows, timeout=0.0)
