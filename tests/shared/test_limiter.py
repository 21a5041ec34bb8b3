"""The limiter keeps samples per insert inside a band, from both sides and between processes."""

import json
import multiprocessing
import threading
import time

import numpy as np
import pytest
from shared_rows import POLL_SECONDS, START_METHODS, running

from replay_tutorial import SamplesPerInsert


def insert_while_allowed(limiter, count=1):
    inserts = 0
    while limiter.await_can_insert(count, timeout=0.0):
        limiter.inserted(count)
        inserts += 1
    return inserts


def sample_while_allowed(limiter, timeout=0.0):
    samples = 0
    while limiter.await_can_sample(1, timeout=timeout):
        limiter.sampled(1)
        samples += 1
    return samples


def test_both_sides_are_stopped_where_reverbs_limiter_stops_them():
    # Seen on Reverb 0.14: 2 samples an insert, minimum 10, buffer 4.
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    assert insert_while_allowed(limiter) == 12
    assert sample_while_allowed(limiter) == 8
    assert insert_while_allowed(limiter) == 4
    assert sample_while_allowed(limiter) == 8


def test_inserts_up_to_the_minimum_size_are_always_allowed():
    limiter = SamplesPerInsert(8.0, min_size=100, error_buffer=16.0)
    assert limiter.await_can_insert(100, timeout=0.0), "though 100 at once would be too many later"
    assert insert_while_allowed(limiter, 2) == 51, "the minimum size, and what the band allows beyond it"


@pytest.mark.parametrize(("ratio", "buffer"), [(0.5, 1.0), (1.0, 3.0), (3.5, 10.0), (64.0, 64.0)])
@pytest.mark.parametrize(("insert_count", "sample_count"), [(1, 1), (3, 2), (1, 8)])
def test_error_stays_in_the_band_and_somebody_may_always_go_on(ratio, buffer, insert_count, sample_count):
    buffer *= max(insert_count, sample_count)
    limiter = SamplesPerInsert(ratio, min_size=10, error_buffer=buffer)
    inserts = samples = 0
    rng = np.random.default_rng(0)
    for _ in range(3000):
        can_insert = limiter.await_can_insert(insert_count, timeout=0.0)
        can_sample = limiter.await_can_sample(sample_count, timeout=0.0)
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


REFUSED = {
    "samples_per_insert": [(0.0, 10, 4.0), (-1.0, 10, 4.0), (np.nan, 10, 4.0)],
    "min_size": [(2.0, 0, 4.0), (2.0, 1.5, 4.0), (2.0, np.inf, 4.0)],
    "error_buffer": [(2.0, 10, 1.9), (0.5, 10, 0.9), (2.0, 10, np.nan)],
}


@pytest.mark.parametrize(("named", "arguments"), [(name, each) for name in REFUSED for each in REFUSED[name]])
def test_settings_that_would_stop_both_sides_are_refused(named, arguments):
    with pytest.raises(ValueError, match=named):
        SamplesPerInsert(*arguments)


def test_counts_that_are_none_or_too_large_for_the_band_and_endless_timeouts_are_refused():
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    limiter.inserted(10)
    for wait in (limiter.await_can_insert, limiter.await_can_sample):
        for count in (0, -1, 5):
            with pytest.raises(ValueError, match=str(count)):
                wait(count, timeout=0)
        with pytest.raises(ValueError, match="timeout must be a number of seconds, or None"):
            wait(2, timeout=float("nan"))
    for call in (limiter.await_can_insert, limiter.await_can_sample, limiter.inserted, limiter.sampled):
        for count in (float("nan"), 2.0, "2"):
            with pytest.raises(TypeError, match="integer"):
                call(count)
    for call in (limiter.inserted, limiter.sampled):
        with pytest.raises(ValueError, match="at least 0, not -5"):
            call(-5)
        call(0)
    assert (limiter.inserts, limiter.samples) == (10, 0)


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_counters_never_overflow(side):
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1.0)
    count = {"insert": limiter.inserted, "sample": limiter.sampled}[side]
    count(2**62)
    with pytest.raises(ValueError, match=r"4611686018427387904 \+ 1"):
        count(1)
    assert limiter.inserts + limiter.samples == 2**62


def test_band_of_many_inserters_is_as_wide_as_documented():
    """16 that insert 32 rows of 15 samples each: the measured error of 7,680, where error_buffer is 500."""
    limiter = SamplesPerInsert(15.0, min_size=1, error_buffer=500.0)
    limiter.inserted(2)
    assert all(limiter.await_can_insert(32, timeout=0.0) for _ in range(16))
    for _ in range(16):
        limiter.inserted(32)
    assert 500.0 + 14 * 32 * 15.0 < limiter.error <= 500.0 + 15 * 32 * 15.0
    assert not limiter.await_can_insert(1, timeout=0.0)
    limiter.sampled(int(limiter.error) - 485)
    assert limiter.await_can_insert(1, timeout=0.0)
    assert "(k - 1) · n · samples_per_insert" in (SamplesPerInsert.__init__.__doc__ or "")


def test_waiting_ends_at_its_timeout():
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1.0)
    for wait in (limiter.await_can_sample, limiter.await_can_insert):
        start = time.monotonic()
        assert wait(1, timeout=0.2) is False
        assert 0.15 < time.monotonic() - start < POLL_SECONDS
        insert_while_allowed(limiter)


def count_up(limiter, count, together):
    together.wait(POLL_SECONDS)
    for _ in range(count):
        limiter.inserted(3)
        limiter.sampled(2)


def test_no_count_is_lost_between_processes():
    context = multiprocessing.get_context(START_METHODS[0])
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1.0)
    together = context.Barrier(3)
    with running(context, count_up, [(limiter, 10_000, together)] * 3):
        pass
    assert (limiter.inserts, limiter.samples) == (90_000, 60_000)


def insert_many(limiter, count):
    for _ in range(count):
        if not limiter.await_can_insert(1, timeout=POLL_SECONDS):
            raise TimeoutError("the sampler did not go on")
        limiter.inserted(1)


def test_inserter_and_sampler_in_two_processes_wait_for_each_other():
    context = multiprocessing.get_context("spawn")
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    samples, has_ended = 0, False
    with running(context, insert_many, [(limiter, 200)]) as (inserter,):
        while not has_ended:
            has_ended = not inserter.is_alive()  # it gives up by itself
            samples += sample_while_allowed(limiter, timeout=0.05)
    assert samples == 384  # 200 inserts at 2 samples each, and 16 = 2 · 10 - 4 that stay behind


def used(inserts=30, samples=40):
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    limiter.inserted(inserts)
    limiter.sampled(samples)
    return limiter


def test_restored_limiter_continues_where_the_saved_one_was():
    saved, restored = used(), SamplesPerInsert(2.0, min_size=10, error_buffer=8.0)
    restored.restore(json.loads(json.dumps(saved.state())))
    assert restored.state() == saved.state()
    assert restored.error == saved.error == 0.0
    assert [insert_while_allowed(limiter) for limiter in (saved, restored)] == [2, 4], "another band is valid"
    again = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    again.restore(restored.state())
    assert again.state() == restored.state(), "a state of a restored limiter"
    new = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    new.restore(used(0, 0).state())
    assert new.state() == used(0, 0).state(), "saved before the first insert"


STATE = used().state()
WRONG_STATES = [
    (TypeError, "dict", [30, 40]),
    (TypeError, "dict", None),
    (KeyError, "samples", {name: STATE[name] for name in STATE if name != "samples"}),
    (KeyError, "extra", {**STATE, "extra": 1}),
    *((TypeError, "inserts.*integer", {**STATE, "inserts": wrong}) for wrong in (30.0, "30", None, np.nan)),
    (ValueError, "inserts.*at least 0, not -1", {**STATE, "inserts": -1}),
    (ValueError, "samples.*below", {**STATE, "samples": 2**62 + 1}),
    (ValueError, "40 samples, but only 9 inserts", {**STATE, "inserts": 9}),
    (ValueError, "samples_per_insert = 4.0, this one has 2.0", {**STATE, "samples_per_insert": 4.0}),
    (ValueError, "samples_per_insert = nan", {**STATE, "samples_per_insert": np.nan}),
    (ValueError, "min_size = 20, this one has 10", {**STATE, "min_size": 20}),
]


@pytest.mark.parametrize(("error", "text", "state"), WRONG_STATES)
def test_wrong_state_is_refused_and_changes_nothing(error, text, state):
    limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
    with pytest.raises(error, match=text):
        limiter.restore(state)
    assert (limiter.inserts, limiter.samples) == (0, 0)
    limiter.restore(STATE)


@pytest.mark.parametrize("before", [(5, 0), (0, 5), (30, 40)])
def test_limiter_that_has_counted_rows_is_not_restored(before):
    limiter = used(*before)
    with pytest.raises(RuntimeError, match=f"already counted {before[0]} inserts and {before[1]} samples"):
        limiter.restore(STATE)
    assert (limiter.inserts, limiter.samples) == before


def test_limiter_is_restored_only_once():
    for state in (STATE, used(30, 0).state()):
        limiter = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0)
        limiter.restore(state)
        with pytest.raises(RuntimeError, match="already counted 30 inserts"):
            limiter.restore(state)
        assert limiter.state() == state


def test_sampler_that_already_waits_goes_on_after_a_restore():
    limiter, admitted = SamplesPerInsert(2.0, min_size=10, error_buffer=4.0), []
    waiting = threading.Thread(target=lambda: admitted.append(limiter.await_can_sample(1, POLL_SECONDS)))
    waiting.start()
    limiter.restore(STATE)
    waiting.join()
    assert admitted == [True]
