"""The prioritized buffer that several processes share: draws follow the masses, whoever added the rows."""

import multiprocessing

import numpy as np
import pytest
import shared_rows
from scipy import stats
from shared_rows import SIGNIFICANCE, START_METHODS, add_rows, assert_whole, in_child, row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer, PrioritizedReplayBuffer
from replay_tutorial.buffers.priorities import write_weights
from replay_tutorial.shared.protocol import (
    NEXT_INDEX,
    add_to_counter,
    held_stamp,
    published_stamp,
    write_rows,
)
from replay_tutorial.shared.sampler import PENDING, draw_rows

impatience = shared_rows.impatience


def add_with_priorities(buffer, first, priorities, answers):
    answers.put(buffer.add(**rows_of(1, first, len(priorities)), priorities=priorities))


def test_prioritized_draws_follow_the_masses_of_rows_that_children_added():
    context = multiprocessing.get_context(START_METHODS[0])
    priorities = np.random.default_rng(2).exponential(size=40)
    buffer = MPPrioritizedReplayBuffer(40, row_fields(), ctx=context, alpha=0.7, eps=1e-3, seed=3)
    for first in (0, 20):
        in_child(context, add_with_priorities, buffer, first, priorities[first : first + 20])
    # A batch of one is drawn from the whole total: independent draws, as the test supposes.
    drawn = np.concatenate([buffer.sample(1)["indexes"] for _ in range(20_000)])
    masses = (priorities + 1e-3) ** 0.7
    expected = masses / masses.sum() * len(drawn)
    assert stats.chisquare(np.bincount(drawn, minlength=40), expected).pvalue > SIGNIFICANCE


def weights_by_index(buffer):
    """Index → weight of every row, at beta 1: the least mass over the row's."""
    stored, next_index = buffer.get_stored_size(), buffer.get_next_index()
    weights = {}
    while len(weights) < stored:
        batch = buffer.sample(50 * stored, beta=1.0)
        weights.update(zip(batch["indexes"].tolist(), batch["weights"].tolist(), strict=True))
    assert set(weights) == set(range(next_index - stored, next_index))
    return weights


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 100])
def test_weights_are_those_of_the_single_process_buffer(capacity):
    rng = np.random.default_rng(capacity)
    oracle = PrioritizedReplayBuffer(capacity, row_fields(), alpha=0.5, eps=1e-2)
    buffer = MPPrioritizedReplayBuffer(capacity, row_fields(), alpha=0.5, eps=1e-2)
    first = 0
    for turn in range(12):
        count = int(rng.integers(1, 2 * capacity + 2))
        priorities = None if turn % 4 == 3 else rng.uniform(0.5, 2, count)
        chosen = rng.integers(max(0, first + count - capacity - 3), first + count, 5)  # some are replaced
        for each in (buffer, oracle):
            each.add(**rows_of(1, first, count), priorities=priorities)
            each.update_priorities(chosen, np.arange(1, 6) / 3)
        first += count
        assert buffer.get_max_priority() == oracle.get_max_priority()
        assert buffer.stale_updates == oracle.stale_updates
        assert weights_by_index(buffer) == pytest.approx(weights_by_index(oracle), rel=1e-5)


def test_weights_and_indexes_have_their_dtypes_and_norms():
    buffer = MPPrioritizedReplayBuffer(100, row_fields(), eps=0.0)
    buffer.add(**rows_of(1, 0, 2), priorities=np.array([1e-9, 1.0]))
    batch = buffer.sample(50, beta=0.7)
    assert (batch["weights"].dtype, batch["indexes"].dtype) == (np.float32, np.int64)
    assert batch["weights"] == pytest.approx(np.full(50, 1e-9 ** (0.6 * 0.7)))
    assert buffer.sample(50, beta=0.7, normalize="batch")["weights"] == pytest.approx(np.ones(50))


def test_masses_are_those_of_all_rows_that_were_added_and_updated():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), ctx=context, alpha=0.5, eps=0.0)
    in_child(context, add_with_priorities, buffer, 0, np.array([4.0, 9.0, 0.0]))
    assert (buffer.total_mass, buffer.min_mass) == pytest.approx((5.0, 2.0))
    in_child(context, add_with_priorities, buffer, 3, np.array([1.0]))  # the tree is there; the row is new
    assert (buffer.min_mass, buffer.total_mass) == pytest.approx((1.0, 6.0))
    buffer.update_priorities(np.array([3, 0]), np.array([0.0, 16.0]))
    assert (buffer.min_mass, buffer.total_mass) == pytest.approx((3.0, 7.0))
    in_child(context, add_with_priorities, buffer, 4, np.full(8, 0.25))  # replaces every row
    assert (buffer.min_mass, buffer.total_mass) == pytest.approx((0.5, 4.0))


def refused_masses(buffer, answers):
    for name in ("total_mass", "min_mass"):
        with pytest.raises(RuntimeError, match="is this buffer's sampler"):
            getattr(buffer, name)
    answers.put("refused")


def test_masses_are_refused_to_all_but_the_sampler():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), ctx=context)
    buffer.add(**rows_of(1, 0, 8))
    assert buffer.total_mass == pytest.approx(8 * (1 + 1e-4) ** 0.6)
    assert in_child(context, refused_masses, buffer) == "refused"


def test_draws_are_stratified():
    buffer = MPPrioritizedReplayBuffer(64, row_fields(), seed=5)
    buffer.add(**rows_of(1, 0, 64), priorities=np.ones(64))
    assert buffer.sample(64)["indexes"].tolist() == list(range(64))


def test_rows_without_priority_get_the_highest_seen_from_any_process():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), ctx=context, eps=0.0, alpha=1.0)
    assert buffer.get_max_priority() == 1.0
    buffer.add(**rows_of(1, 0, 1))
    in_child(context, add_with_priorities, buffer, 1, np.array([3.0]))
    assert buffer.get_max_priority() == 3.0
    in_child(context, add_rows, buffer, 1, 2, 1)
    batch = buffer.sample(400, beta=1.0)
    weights = dict(zip(batch["indexes"].tolist(), batch["weights"].tolist(), strict=True))
    assert weights == pytest.approx({0: 1, 1: 1 / 3, 2: 1 / 3})


def test_row_that_was_reserved_and_not_begun_at_a_draw_is_drawn_when_it_is_there():
    """In the first lap such a slot was taken for one with a known row, and its row never drawn."""
    buffer = MPPrioritizedReplayBuffer(16, row_fields(), seed=0)
    ring = buffer._ring
    reserved = add_to_counter(ring.counters, NEXT_INDEX, 4)  # a writer that is held up here
    assert buffer.add(**rows_of(1, 4, 8)) == 4
    assert set(buffer.sample(200)["indexes"].tolist()) == set(range(4, 12))
    owner = ring.writers.writer_number()
    late = ring.rows[4:8].copy()
    assert write_rows(ring.stamps, ring.rows, ring.masses, late, np.ones(4), reserved, 0, owner) == 4
    assert set(buffer.sample(400)["indexes"].tolist()) == set(range(12))


def test_row_that_was_reserved_at_a_draw_over_one_without_mass_is_drawn_when_it_is_there():
    buffer = MPPrioritizedReplayBuffer(4, row_fields(), eps=0.0, seed=0)
    buffer.add(**rows_of(1, 0, 4), priorities=[0, 1, 1, 1])
    ring = buffer._ring
    reserved = add_to_counter(ring.counters, NEXT_INDEX, 1)  # a writer that is held up here
    assert set(buffer.sample(50)["indexes"].tolist()) == {1, 2, 3}
    late, owner = ring.rows[:1].copy(), ring.writers.writer_number()
    assert write_rows(ring.stamps, ring.rows, ring.masses, late, np.ones(1), reserved, 0, owner) == 1
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
    assert again._mapped.sampler.arrays.progress[PENDING] == 0


BAD_UPDATES = [
    ([0, 1, 2], [1.0, 1.0], ValueError),
    ([0, 1], np.nan, ValueError),
    ([0, 1], [1.0, -1.0], ValueError),
    ([0, 1], [1.0, np.inf], ValueError),
    ([0, 8], [1.0, 1.0], IndexError),
    ([0, -1], [1.0, 1.0], IndexError),
    ([0.0, 1.0], [1.0, 1.0], TypeError),
]


def test_bad_update_is_refused_before_anything_changes():
    buffer = MPPrioritizedReplayBuffer(16, row_fields(), eps=0.0)
    buffer.add(**rows_of(1, 0, 8), priorities=np.array([0, 0, 1, 0, 0, 0, 0, 0]))
    for indexes, priorities, error in BAD_UPDATES:
        with pytest.raises(error):
            buffer.update_priorities(np.array(indexes), np.array(priorities))
    assert set(buffer.sample(32)["indexes"]) == {2}
    assert buffer.stale_updates == 0


def test_bad_priorities_on_add_are_refused_before_anything_changes():
    buffer = MPPrioritizedReplayBuffer(8, row_fields())
    for priorities in ([1.0, np.nan], [1.0, -1.0], [np.inf, 1.0], [-1.0], [1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match="priorit"):
            buffer.add(**rows_of(1, 0, 2), priorities=np.array(priorities))
    assert buffer.get_stored_size() == buffer.get_next_index() == 0
    assert buffer.get_max_priority() == 1.0
    buffer.add(**rows_of(1, 0, 2))
    assert_whole(buffer.sample(4))


def test_rows_that_are_replaced_between_the_look_and_the_copy_are_listed_and_looked_at_again():
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), seed=0)
    buffer.add(**rows_of(1, 0, 8))
    buffer.sample(8)
    ring, sampler = buffer._ring, buffer._mapped.sampler
    ring.stamps[[2, 5]] = (
        held_stamp(10, 1),
        published_stamp(13),
    )  # the tree knows nothing of it: no index was reserved
    indexes, masses, failed = np.empty(16, np.int64), np.empty(16), np.empty(16, np.int64)
    copies, rejected = ring.empty_words(16), buffer.statistics().rows_rejected
    failures = draw_rows(tuple(sampler.arrays), np.full(16, 0.5), indexes, masses, copies, failed)
    assert indexes.tolist() == np.repeat(np.arange(8), 2).tolist()
    assert failed[:failures].tolist() == [4, 5, 10, 11]
    assert buffer.statistics().rows_rejected == rejected + 4
    assert sampler.arrays.pending[: sampler.arrays.progress[PENDING]].tolist() == [2, 5]
    assert set(buffer.sample(64)["indexes"]) == {0, 1, 3, 4, 6, 7, 13}
