"""The limiter keeps samples per insert inside a band, from both sides and between processes."""

import multiprocessing
import os
import time

import numpy as np
import pytest

from replay_tutorial import SamplesPerInsert

START_METHODS = ["fork", "spawn", "forkserver"] if os.name == "posix" else ["spawn"]
POLL_SECONDS = 300


def may_insert(limiter, count=1):
    return limiter.await_can_insert(count, timeout=0)


def may_sample(limiter, count=1):
    return limiter.await_can_sample(count, timeout=0)


def insert_while_allowed(limiter, count=1):
    calls = 0
    while may_insert(limiter, count):
        limiter.inserted(count)
        calls += 1
    return calls


def sample_while_allowed(limiter, count=1):
    calls = 0
    while may_sample(limiter, count):
        limiter.sampled(count)
        calls += 1
    return calls


def test_both_sides_are_stopped_where_reverbs_limiter_stops_them():
    # Seen on Reverb 0.14: 2 samples an insert, minimum 10, buffer 4.
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    assert insert_while_allowed(limiter) == 12
    assert sample_while_allowed(limiter) == 8
    assert insert_while_allowed(limiter) == 4
    assert sample_while_allowed(limiter) == 8


def test_nothing_is_sampled_below_the_minimum_size():
    limiter = SamplesPerInsert(1.0, min_size=5, error_buffer=100.0)
    for _ in range(4):
        limiter.inserted(1)
        assert not may_sample(limiter)
    limiter.inserted(1)
    assert may_sample(limiter)


def test_inserts_up_to_the_minimum_size_are_always_allowed():
    limiter = SamplesPerInsert(8.0, min_size=100, error_buffer=16.0)
    assert may_insert(limiter, 100), "though 100 at once would be too many later"
    assert insert_while_allowed(limiter, 2) == 51, "the minimum size, and what the band allows beyond it"


@pytest.mark.parametrize(("ratio", "buffer"), [(0.5, 1.0), (1.0, 3.0), (3.5, 10.0), (64.0, 64.0)])
@pytest.mark.parametrize(("insert_count", "sample_count"), [(1, 1), (3, 2), (1, 8)])
def test_error_stays_in_the_band_and_somebody_may_always_go_on(ratio, buffer, insert_count, sample_count):
    buffer *= max(insert_count, sample_count)
    limiter = SamplesPerInsert(ratio, min_size=10, error_buffer=buffer)
    inserts = samples = 0
    rng = np.random.default_rng(0)
    for _ in range(3000):
        can_insert, can_sample = may_insert(limiter, insert_count), may_sample(limiter, sample_count)
        error = (inserts + insert_count) * ratio - samples
        assert can_insert == (inserts + insert_count <= 10 or error <= ratio * 10 + buffer)
        error = inserts * ratio - samples - sample_count
        assert can_sample == (inserts >= 10 and error >= ratio * 10 - buffer)
        assert can_insert or can_sample, "a deadlock"
        if can_insert and (not can_sample or rng.random() < 0.5):
            limiter.inserted(insert_count)
            inserts += insert_count
        else:
            limiter.sampled(sample_count)
            samples += sample_count
    assert samples / inserts == pytest.approx(ratio, rel=0.2)


@pytest.mark.parametrize("inserters", [1, 2, 8])
def test_several_that_look_at_once_pass_the_band_by_a_share_each(inserters):
    limiter = SamplesPerInsert(4.0, min_size=1, error_buffer=100.0)
    limiter.inserted(1 + 20)  # the last moment at which five rows pass
    for _ in range(inserters):
        assert limiter.await_can_insert(5, timeout=0.0)
    for _ in range(inserters):
        limiter.inserted(5)
    assert limiter.error == 100.0 + (inserters - 1) * 5 * 4.0
    limiter.sampled(int(limiter.error) - 80)
    assert limiter.await_can_insert(5, timeout=0.0)
    limiter.inserted(1)
    assert not limiter.await_can_insert(5, timeout=0.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0.0, 10, 4.0), "samples_per_insert"),
        ((-1.0, 10, 4.0), "samples_per_insert"),
        ((float("nan"), 10, 4.0), "samples_per_insert"),
        ((2.0, 0, 4.0), "min_size"),
        ((2.0, 1.5, 4.0), "min_size"),
        ((2.0, float("inf"), 4.0), "min_size"),
        ((2.0, 10, 1.9), "error_buffer"),
        ((0.5, 10, 0.9), "error_buffer"),
        ((2.0, 10, float("nan")), "error_buffer"),
    ],
)
def test_settings_that_would_stop_both_sides_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        SamplesPerInsert(*arguments)


@pytest.mark.parametrize("count", [0, -1, 5])
def test_counts_that_the_band_cannot_take_at_once_are_refused(count):
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    limiter.inserted(10)
    with pytest.raises(ValueError, match=str(count)):
        limiter.await_can_insert(count, timeout=0)
    with pytest.raises(ValueError, match=str(count)):
        limiter.await_can_sample(count, timeout=0)


@pytest.mark.parametrize("count", [float("nan"), 1.5, 2.0, "2"])
def test_count_that_is_no_integer_is_refused(count):
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    for call in (limiter.await_can_insert, limiter.await_can_sample, limiter.inserted, limiter.sampled):
        with pytest.raises(TypeError, match="integer"):
            call(count)


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_counters_never_overflow(side):
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1.0)
    count = {"insert": limiter.inserted, "sample": limiter.sampled}[side]
    count(2**62)
    with pytest.raises(ValueError, match="1 after 4611686018427387904"):
        count(1)
    assert limiter.inserts + limiter.samples == 2**62


def test_band_of_many_inserters_is_as_wide_as_documented():
    """16 that insert 32 rows of 15 samples each: the measured error of 7,680, where error_buffer is 500."""
    limiter = SamplesPerInsert(15.0, min_size=1, error_buffer=500.0)
    limiter.inserted(2)
    assert all(limiter.await_can_insert(32, timeout=0.0) for _ in range(16))
    for _ in range(16):
        limiter.inserted(32)
    assert limiter.error <= 500.0 + 15 * 32 * 15.0
    assert not limiter.await_can_insert(1, timeout=0.0)
    assert "(k - 1) · n · samples_per_insert" in (SamplesPerInsert.__init__.__doc__ or "")


def test_timeout_that_would_never_end_is_refused():
    limiter = SamplesPerInsert(2.0, min_size=1, error_buffer=4.0)
    for wait in (limiter.await_can_insert, limiter.await_can_sample):
        limiter.inserted(1)
        with pytest.raises(ValueError, match="timeout must be a number of seconds, or None"):
            wait(2, timeout=float("nan"))


def test_waiting_ends_at_its_timeout():
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1.0)
    start = time.monotonic()
    assert limiter.await_can_sample(1, timeout=0.2) is False
    assert 0.15 < time.monotonic() - start < POLL_SECONDS
    insert_while_allowed(limiter)
    start = time.monotonic()
    assert limiter.await_can_insert(1, timeout=0.2) is False
    assert 0.15 < time.monotonic() - start < POLL_SECONDS


def count_up(limiter, count, together):
    together.wait(POLL_SECONDS)
    for _ in range(count):
        limiter.inserted(3)
        limiter.sampled(2)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_no_count_is_lost_between_processes(start_method):
    context = multiprocessing.get_context(start_method)
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1.0)
    together = context.Barrier(3)
    arguments = (limiter, 10_000, together)
    processes = [context.Process(target=count_up, args=arguments, daemon=True) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(POLL_SECONDS)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (limiter.inserts, limiter.samples) == (90_000, 60_000)


def insert_many(limiter, count):
    for _ in range(count):
        if not limiter.await_can_insert(1, timeout=POLL_SECONDS):
            raise TimeoutError("the sampler did not go on")
        limiter.inserted(1)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_inserter_and_sampler_in_two_processes_wait_for_each_other(start_method):
    context = multiprocessing.get_context(start_method)
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    inserter = context.Process(target=insert_many, args=(limiter, 200), daemon=True)
    inserter.start()
    try:
        samples, has_ended = 0, False
        while not has_ended:
            has_ended = not inserter.is_alive()  # it gives up by itself
            while limiter.await_can_sample(1, timeout=0.05):
                limiter.sampled(1)
                samples += 1
        assert inserter.exitcode == 0
        # 200 inserts at 2 samples each, and 16 = 2 · 10 - 4 that stay behind
        assert samples == 384
    finally:
        inserter.kill()
        inserter.join()
