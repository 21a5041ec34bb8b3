"""A sample that is refused leaves the random state as it was, and says what is true."""

import multiprocessing
import os
from types import SimpleNamespace

import numpy as np
import pytest
import shared_rows
from shared_rows import START_METHODS, every_buffer, in_child, row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer, SamplesPerInsert
from replay_tutorial.buffers.schemes import Combined, Proportional, Uniform
from replay_tutorial.local.shared_context import SharedReplay
from replay_tutorial.shared import sampler, shared_ring
from replay_tutorial.shared.protocol import NEXT_INDEX, add_to_counter, held_stamp, published_stamp

impatience = shared_rows.impatience


def refuse(buffer, error, match, *arguments, **options):
    before = buffer._rng.bit_generator.state
    with pytest.raises(error, match=match):
        buffer.sample(*arguments, **options)
    assert buffer._rng.bit_generator.state == before


@every_buffer
def test_a_refused_sample_leaves_the_random_state(buffer_class):
    buffer = buffer_class(8, row_fields(), seed=1)
    for scheme in (None, Uniform()):
        refuse(buffer, ValueError, "is empty", 4, scheme=scheme)
    add_to_counter(buffer._ring.counters, NEXT_INDEX, 1)  # a writer that died before it wrote
    for scheme in (None, Uniform()):
        refuse(buffer, ValueError, "no added row is complete", 4, scheme=scheme)
    buffer.add(**rows_of(1, 0, 4))
    refuse(buffer, ValueError, "at least 1", 0)
    refuse(buffer, TypeError, "integer", "four")
    refuse(buffer, TypeError, "integer", 1.5)
    refuse(buffer, ValueError, "requires a batch_size above 1", 1, scheme=Combined())
    refuse(buffer, TypeError, "must be a scheme", 4, scheme=Combined)
    buffer.clear()
    refuse(buffer, ValueError, "is empty", 4)


def test_a_sample_refused_for_its_weights_or_masses_leaves_the_random_state():
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), eps=0.0, seed=1)
    buffer.add(**rows_of(1, 0, 8), priorities=np.zeros(8))
    for _ in range(2):
        refuse(buffer, ValueError, "Every mass is 0", 4)
    buffer.add(**rows_of(1, 8, 1), priorities=[1.0])
    assert set(buffer.sample(5)["indexes"].tolist()) == {8}
    refuse(buffer, ValueError, "beta", 4, beta=2.0)
    refuse(buffer, ValueError, "normalize", 4, normalize="both")
    buffer.update_priorities([8], [0.0])
    refuse(buffer, ValueError, "Every mass is 0", 4)
    buffer.add(**rows_of(1, 9, 1), priorities=[1.0])
    buffer.sample(1)
    buffer.add(**rows_of(1, 10, 8), priorities=np.zeros(8))  # over the one with mass, unknown to the tree
    refuse(buffer, ValueError, "Every mass is 0", 4)


@pytest.mark.parametrize("options", [{}, {"dedupe_next": "obs"}, {"count_samples": True}])
def test_a_sample_refused_for_tiny_weights_leaves_the_random_state_and_the_counts(options):
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), alpha=1.0, eps=0.0, seed=1, **options)
    following = {"next_obs": np.ones((8, 8))} if "dedupe_next" in options else {}
    buffer.add(**rows_of(1, 0, 8), **following, priorities=[1e-60, *np.ones(7)])
    buffer._rng.integers(9, dtype=np.int32)  # leaves half a number for the next call
    for scheme in (None, Proportional(), Combined(1, Proportional())):
        refuse(buffer, ValueError, "nothing would be learned", 4, 1.0, normalize="buffer", scheme=scheme)
        assert buffer.statistics().rows_sampled == 0
    assert len(buffer.sample(4, 1.0, normalize="batch")["obs"]) == buffer.statistics().rows_sampled == 4


@every_buffer
def test_a_sample_that_gives_up_beside_fast_writers_leaves_the_random_state(buffer_class, monkeypatch):
    buffer = buffer_class(8, row_fields(), seed=1)
    buffer.add(**rows_of(1, 0, 8))
    buffer.sample(4)
    draws = []

    def overwritten(arrays, *others):
        draws.append(1)
        others[-1][:] = np.arange(len(others[-1]))
        return len(others[-1])

    for module, kernel in ((shared_ring, "read_slots"), (sampler, "draw_rows")):
        monkeypatch.setattr(module, kernel, overwritten)
        monkeypatch.setattr(module, "MAX_DRAWS", 5)
    refuse(buffer, RuntimeError, "5 draws read no row", 4)
    assert len(draws) == 6


def refused_beside_the_updater(buffer, answers):
    for _ in range(2):
        refuse(buffer, RuntimeError, f"Process {os.getppid()} is this buffer's updater", 2)
        with pytest.raises(RuntimeError, match=f"before process {os.getpid()} does it"):
            buffer.update_priorities([3], [1.0])
    answers.put("refused")


@pytest.mark.parametrize("start_method", START_METHODS[:2])
def test_a_counted_sample_refused_beside_the_updater_leaves_the_random_state(start_method):
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), seed=1, count_samples=True)
    buffer.add(**rows_of(1, 0, 8))
    buffer.sample(2)
    context = multiprocessing.get_context(start_method)
    assert in_child(context, refused_beside_the_updater, buffer) == "refused"


@every_buffer
def test_a_buffer_whose_rows_lost_their_frames_says_so_each_time(buffer_class, monkeypatch):
    monkeypatch.setattr("replay_tutorial.shared.shared_frames.MAX_DRAWS", 5)
    buffer = buffer_class(400, row_fields(), dedupe_next="obs")
    buffer.add(**rows_of(1, 0, 1), next_obs=np.ones((1, 8)))
    buffer._stages.rings[0].ring.stamps[:] = 0  # as if all of them had been replaced
    for _ in range(3):
        refuse(buffer, RuntimeError, "frames of the stored rows were overwritten", 4)


def test_rows_that_find_no_slot_do_not_count_as_inserts():
    limiter = SamplesPerInsert(8.0, min_size=1, error_buffer=800.0)
    buffer = MPPrioritizedReplayBuffer(2, row_fields())
    assert buffer.rows_dropped == 0
    replay, ring = SharedReplay(buffer, limiter), buffer._ring
    first = add_to_counter(ring.counters, NEXT_INDEX, 2)
    for slot in range(2):  # two threads of this process were stopped here
        ring.stamps[slot] = held_stamp(first + slot, ring.writers.writer_number())
    row = rows_of(1, 0, 1), np.ones(1, np.float32), 1.0
    assert replay.insert(*row)
    assert (buffer.statistics().rows_dropped, buffer.rows_dropped, limiter.inserts) == (1, 1, 0)
    ring.stamps[1] = 0
    assert replay.insert(*row)
    assert limiter.inserts == 1
    assert buffer._episode_len() == 2, "however often a row was offered a slot"


@every_buffer
def test_a_sample_outlasts_a_writer_that_the_system_stops_for_a_moment(buffer_class, monkeypatch):
    buffer = buffer_class(2, row_fields())
    buffer.add(**rows_of(1, 0, 2))
    buffer.sample(2)
    ring = buffer._ring
    first = add_to_counter(ring.counters, NEXT_INDEX, 2)
    for slot in range(2):
        ring.stamps[slot] = held_stamp(first + slot, ring.writers.writer_number())

    def sleep(_):
        ring.stamps[:] = published_stamp(first), published_stamp(first + 1)

    for module in (shared_ring, sampler):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    assert len(buffer.sample(2)["obs"]) == 2
