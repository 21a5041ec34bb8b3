"""Rank-based sampling of a shared buffer: the ranks include every row that is published, and every update."""

import numpy as np
import pytest
from shared_rows import row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer, PrioritizedReplayBuffer
from replay_tutorial.buffers.rank_based import RankBased
from replay_tutorial.shared.protocol import NEXT_INDEX, add_to_counter, write_rows


def probabilities_by_index(buffer):
    """P(row) of every row; the segment of each is longer than the distance of two draws."""
    sample = buffer.sample(1000, scheme=RankBased())
    return dict(zip(sample["indexes"].tolist(), sample["probabilities"].tolist(), strict=True))


@pytest.mark.parametrize("capacity", [1, 7, 40])
def test_probabilities_are_those_of_the_single_process_buffer(capacity):
    rng = np.random.default_rng(capacity)
    buffers = [
        kind(capacity, row_fields(), alpha=0.5, eps=0.0, seed=0)
        for kind in (MPPrioritizedReplayBuffer, PrioritizedReplayBuffer)
    ]
    first = 0
    for turn in range(40):
        count = int(rng.integers(1, 2 * capacity + 2))
        priorities = np.exp(rng.normal(scale=3.0, size=count)) * (rng.random(count) < 0.9) + (turn == 0)
        if turn == 30:
            for buffer in buffers:
                buffer.clear()
        if turn % 3 == 0:
            for buffer in buffers:
                assert buffer.add(**rows_of(1, first, count), priorities=priorities) == first
            first += count
        else:
            indexes = rng.integers(max(0, first - 2 * capacity), first, count)
            for buffer in buffers:
                buffer.update_priorities(indexes, priorities)
        if buffers[1].total_mass > 0.0:
            shared, single = map(probabilities_by_index, buffers)
            assert shared == pytest.approx(single, rel=1e-12)


def test_row_that_was_reserved_at_a_draw_is_ranked_when_it_is_there():
    buffer = MPPrioritizedReplayBuffer(16, row_fields(), seed=0)
    ring = buffer._ring
    reserved = add_to_counter(ring.counters, NEXT_INDEX, 4)  # a writer that is held up here
    assert buffer.add(**rows_of(1, 4, 8)) == 4
    for _ in range(3):  # the first draw ranks all rows anew, and the second marks all
        assert set(probabilities_by_index(buffer)) == set(range(4, 12))
    owner = ring.writers.writer_number()
    late = ring.rows[4:8].copy()
    assert write_rows(ring.stamps, ring.rows, ring.masses, late, np.full(4, 9.0), reserved, 0, owner) == 4
    ranked = probabilities_by_index(buffer)
    assert set(ranked) == set(range(12)) and min(ranked[i] for i in range(4)) > ranked[4]
