"""The prioritized buffer that several processes share: draws follow the masses, whoever added the rows."""

import multiprocessing

import numpy as np
import pytest
import shared_rows
from histories import as_bytes
from shared_rows import START_METHODS, add_rows, assert_whole, in_child, row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer, PrioritizedReplayBuffer
from replay_tutorial.buffers.priorities import write_weights
from replay_tutorial.buffers.schemes import RankBased
from replay_tutorial.shared.protocol import (
    NEXT_INDEX,
    add_to_counter,
    held_stamp,
    published_stamp,
    write_rows,
)
from replay_tutorial.shared.sampler import AWAITED, draw_rows

impatience = shared_rows.impatience


def add_with_priorities(buffer, first, priorities, answers):
    answers.put(buffer.add(**rows_of(1, first, len(priorities)), priorities=priorities))


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 100])
def test_samples_are_those_of_the_single_process_buffer(capacity):
    rng = np.random.default_rng(capacity)
    oracle, buffer = (
        kind(capacity, row_fields(), alpha=0.5, eps=0.0, seed=3)
        for kind in (PrioritizedReplayBuffer, MPPrioritizedReplayBuffer)
    )
    first = 0
    for turn in range(12):
        count = int(rng.integers(1, 2 * capacity + 2))
        priorities = None if turn % 4 == 3 else rng.uniform(0.5, 2, count) * (rng.random(count) < 0.9)
        chosen = rng.integers(max(0, first + count - capacity - 3), first + count, 5)  # some are replaced
        for each in (buffer, oracle):
            each.add(**rows_of(1, first, count), priorities=priorities)
            each.update_priorities(chosen, np.arange(5) / 3)
        first += count
        assert buffer.max_priority == oracle.max_priority
        assert buffer.stale_updates == oracle.stale_updates
        assert (buffer.total_mass, buffer.min_mass) == pytest.approx((oracle.total_mass, oracle.min_mass))
        for size, normalize in ((5 * capacity, "buffer"), (2, "batch")) if oracle.total_mass else ():
            ours, oracles = (each.sample(size, 0.7, normalize=normalize) for each in (buffer, oracle))
            assert as_bytes(ours) == as_bytes(oracles)


def test_rows_without_priority_get_the_highest_seen_from_any_process():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), eps=0.0, alpha=1.0)
    assert buffer.max_priority == 1.0
    buffer.add(**rows_of(1, 0, 1))
    in_child(context, add_with_priorities, buffer, 1, np.array([3.0]))
    assert buffer.max_priority == 3.0
    in_child(context, add_rows, buffer, 1, 2, 1)
    batch = buffer.sample(400, beta=1.0)
    weights = dict(zip(batch["indexes"].tolist(), batch["weights"].tolist(), strict=True))
    assert weights == pytest.approx({0: 1, 1: 1 / 3, 2: 1 / 3})


def write_late(ring, reserved, count, mass):
    """Write rows, copies of the first ones, under the first indexes that a writer reserved long ago."""
    late, owner = ring.rows[:count].copy(), ring.writers.writer_number()
    masses = np.full(count, mass)
    assert write_rows(ring.stamps, ring.rows, ring.masses, late, masses, reserved, 0, owner) == count


@pytest.mark.parametrize("scheme", [None, RankBased()])
def test_row_that_was_reserved_and_not_begun_at_a_draw_is_drawn_when_it_is_there(scheme):
    """In the first lap such a slot was taken for one with a known row, and its row never drawn."""
    buffer = MPPrioritizedReplayBuffer(16, row_fields(), seed=0)
    reserved = add_to_counter(buffer._ring.counters, NEXT_INDEX, 4)  # a writer that is held up here
    assert buffer.add(**rows_of(1, 4, 8)) == 4
    for _ in range(3):  # the first draw ranks all rows anew, and the second marks all
        assert set(buffer.sample(200, scheme=scheme)["indexes"].tolist()) == set(range(4, 12))
    write_late(buffer._ring, reserved, 4, mass=9.0)
    drawn = buffer.sample(1000, beta=1.0, scheme=scheme)
    assert set(drawn["indexes"].tolist()) == set(range(12))
    weights = dict(zip(drawn["indexes"].tolist(), drawn["weights"].tolist(), strict=True))
    assert max(weights[i] for i in range(4)) < weights[4], "they have more mass"


def test_row_that_was_reserved_at_a_draw_over_one_without_mass_is_drawn_when_it_is_there():
    buffer = MPPrioritizedReplayBuffer(4, row_fields(), eps=0.0, seed=0)
    buffer.add(**rows_of(1, 0, 4), priorities=[0, 1, 1, 1])
    reserved = add_to_counter(buffer._ring.counters, NEXT_INDEX, 1)  # a writer that is held up here
    assert set(buffer.sample(50)["indexes"].tolist()) == {1, 2, 3}
    write_late(buffer._ring, reserved, 1, mass=1.0)
    assert set(buffer.sample(50)["indexes"].tolist()) == {1, 2, 3, 4}


def test_no_weight_is_above_1_though_the_least_mass_rose_after_the_draw():
    min_in_buffer = 0.5  # when the last of several draws is done
    masses = np.array([0.1, 0.5, 1.0])  # of the rows that were drawn
    weights = np.zeros(3, np.float32)
    write_weights(masses, 1.0, min_in_buffer, True, weights)
    assert weights.tolist() == [1.0, 1.0, 0.5]


def test_new_sampler_looks_at_no_row_from_before_clear_twice(tmp_path):
    buffer = MPPrioritizedReplayBuffer(1000, row_fields(), seed=0)
    buffer.add(**rows_of(1, 0, 500))
    buffer.clear()
    buffer.add(**rows_of(1, 0, 8))
    buffer.save(tmp_path / "rows")
    again = MPPrioritizedReplayBuffer(1000, row_fields(), seed=0)
    again.load(tmp_path / "rows")
    again.sample(8)
    assert again._sampler.arrays.progress[AWAITED] == 0


def test_bad_update_is_refused_before_anything_changes():
    buffer = MPPrioritizedReplayBuffer(16, row_fields(), eps=0.0)
    buffer.add(**rows_of(1, 0, 8), priorities=np.array([0, 0, 1, 0, 0, 0, 0, 0]))
    for indexes, priorities, error in (
        ([0, 1, 2], [1.0, 1.0], ValueError),
        ([0, 1], np.nan, ValueError),
        ([0, 1], [1.0, -1.0], ValueError),
        ([0, 1], [1.0, np.inf], ValueError),
        ([0, 8], [1.0, 1.0], IndexError),
        ([0, -1], [1.0, 1.0], IndexError),
        ([0.0, 1.0], [1.0, 1.0], TypeError),
    ):
        with pytest.raises(error):
            buffer.update_priorities(np.array(indexes), np.array(priorities))
    assert set(buffer.sample(32)["indexes"]) == {2}
    assert buffer.stale_updates == 0


def test_bad_priorities_on_add_are_refused_before_anything_changes():
    buffer = MPPrioritizedReplayBuffer(8, row_fields())
    for priorities in ([1.0, np.nan], [1.0, -1.0], [np.inf, 1.0], [-1.0], [1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match="priorit"):
            buffer.add(**rows_of(1, 0, 2), priorities=np.array(priorities))
    assert len(buffer) == buffer.next_index == 0
    assert buffer.max_priority == 1.0
    buffer.add(**rows_of(1, 0, 2))
    assert_whole(buffer.sample(4))


def test_rows_that_are_replaced_between_the_look_and_the_copy_are_drawn_again():
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), seed=0)
    buffer.add(**rows_of(1, 0, 8))
    buffer.sample(8)
    ring, sampler = buffer._ring, buffer._sampler
    # the tree knows nothing of it: no index was reserved yet
    ring.stamps[[2, 5]] = held_stamp(10, 1), published_stamp(13)
    indexes, masses, failed = np.empty(16, np.int64), np.empty(16), np.empty(16, np.int64)
    copies, rejected = ring.empty_words(16), buffer.statistics().rows_rejected
    failures = draw_rows(tuple(sampler.arrays), np.full(16, 0.5), indexes, masses, copies, failed)
    assert indexes.tolist() == np.repeat(np.arange(8), 2).tolist()
    assert failed[:failures].tolist() == [4, 5, 10, 11]
    assert buffer.statistics().rows_rejected == rejected + 4
    add_to_counter(ring.counters, NEXT_INDEX, 6)
    assert set(buffer.sample(64)["indexes"]) == {0, 1, 3, 4, 6, 7, 13}
