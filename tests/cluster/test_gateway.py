"""The gateway: rows enter the replay once, the limiter decides, and replies say what an actor needs."""

import heapq
import math
import pickle
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cluster_parts import (
    assert_numbered,
    gateway_of,
    made_context,
    numbered_chunk,
    numbered_rows,
    open_context,
    report,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from replay_tutorial.apex.messages import Note
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.cluster import gateway as gateway_module
from replay_tutorial.cluster.chunk import ChunkFormat
from replay_tutorial.cluster.gateway import LONGEST_WAIT, SHORTEST_WAIT, PendingReports

only_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only there a pickle leads to memory without a name"
)


def sampled(context):
    return context.replay.sample(64, beta=0.4, timeout=0.0)


def assert_same_replay(context, other):
    """Both draw by the same seed, so what is drawn tells rows, order and priorities."""
    assert context.counters.steps == other.counters.steps
    assert context.replay.next_index == other.replay.next_index
    for _ in range(5):
        batch, expected = sampled(context), sampled(other)
        np.testing.assert_array_equal(batch.indexes, expected.indexes)
        np.testing.assert_array_equal(batch.weights, expected.weights)
        for name, values in expected.rows.items():
            np.testing.assert_array_equal(batch.rows[name], values, name)


def test_rows_lie_in_the_replay_as_if_they_had_been_inserted_there():
    context, other = open_context(capacity=70), open_context(capacity=70)
    gateway, _ = gateway_of(context)
    for first, count in [(0, 1), (1, 30), (31, 12), (43, 50)]:  # the last ones meet the ring's end
        assert gateway.send(numbered_chunk(context, first, count), 0, report()).accepted
        other.replay.insert(*numbered_rows(first, count), timeout=0.0)
    assert_same_replay(context, other)


@only_linux
def test_rows_of_several_gateways_are_there_once():
    context = open_context()
    gateways = [gateway_of(pickle.loads(pickle.dumps(context)))[0] for _ in range(3)]
    for number in range(30):
        gateways[number % 3].send(numbered_chunk(context, 10 * number, 10), 0, report())
    stored = context.replay.buffer[:]
    assert sorted(stored["reward"].ravel().tolist()) == list(range(300))
    assert_numbered(stored)
    assert context.counters.steps == 300


def narrow():
    """A context whose limiter admits 10 rows, and 31 more before a row is sampled; and its gateway."""
    context = made_context(slack=15, send_interval=12)
    return context, gateway_of(context)[0]


def state_of(context, gateway):
    """All that a call may change."""
    counters = context.replay.next_index, context.counters.steps, context.counters.samples
    rows = context.replay.buffer[:]
    return counters, {name: values.tolist() for name, values in rows.items()}, pickle.dumps(gateway.pending)


def fill(context, gateway, count=5):
    """Send chunks until one is refused; return it, and the reply."""
    for first in range(0, 10_000, count):
        chunk = numbered_chunk(context, first, count)
        reply = gateway.send(chunk, 0, report())
        if not reply.accepted:
            return chunk, reply
    raise AssertionError("the limiter has admitted all")


def test_chunk_that_the_limiter_refuses_changes_nothing_and_what_comes_with_it_counts():
    context, gateway = narrow()
    chunk, _ = fill(context, gateway)
    assert context.counters.steps == 40
    before = state_of(context, gateway)
    assert not gateway.send(chunk, 0, report()).accepted
    assert state_of(context, gateway) == before
    seconds = [math.inf]
    while min(seconds) >= 0.001 and len(seconds) < 1000:  # the machine may stop a test
        began = time.perf_counter()
        gateway.send(chunk, 0, report(actor=1, restart_count=2, rows_lost=7))
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.001 < SHORTEST_WAIT, "it does not wait for the learner"
    gateway.send(chunk, 0, report(actor=1, restart_count=2, rows_lost=7, messages=[Note("here")]))
    assert gateway.collect() == PendingReports([Note("here")], {(0, 0): 0, (1, 2): 7}, {})
    sampled(context)
    assert gateway.send(chunk, 0, report()).accepted
    stored = context.replay.buffer[:]
    assert stored["reward"].ravel().tolist() == list(range(45))


@pytest.fixture
def clock(monkeypatch):
    """The gateway's clock, which stands still unless it is told to go on."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(gateway_module, "time", clock)
    return clock


@pytest.mark.parametrize("count", [1, 5, 15])
@pytest.mark.parametrize("pace", [64, 640, 6_400])
def test_actor_is_told_to_wait_until_the_learner_has_made_room(clock, pace, count):
    context, gateway = narrow()
    limiter = context.replay.limiter
    chunk, _ = fill(context, gateway, count)
    clock.now += 2.0
    limiter.sampled(2 * pace)
    limiter.inserted(int(2 * pace / limiter.samples_per_insert))  # actors have kept up with it
    reply = gateway.send(chunk, 0, report())
    assert not reply.accepted
    needed = limiter.error + count * limiter.samples_per_insert - limiter.error_buffer
    assert needed > 0
    assert reply.wait == pytest.approx(np.clip(needed / pace, SHORTEST_WAIT, LONGEST_WAIT))
    if SHORTEST_WAIT < reply.wait < LONGEST_WAIT:
        limiter.sampled(int(np.floor(reply.wait * pace)) - 1)  # a moment too early
        assert not gateway.send(chunk, 0, report()).accepted
        limiter.sampled(2)
        assert gateway.send(chunk, 0, report()).accepted


def test_actors_that_wait_are_told_to_come_one_after_the_other(clock):
    """If all came when there is room for one, the others would have sent their rows in vain."""
    context, gateway = narrow()
    limiter, pace, actors = context.replay.limiter, 2000, 20
    chunk, _ = fill(context, gateway)
    calls, taken, sampled_until = 0, 0, clock.now
    turns = [(clock.now + 0.001 * actor, actor) for actor in range(actors)]
    while clock.now < 1010.0:
        clock.now, actor = heapq.heappop(turns)
        limiter.sampled(samples := int((clock.now - sampled_until) * pace))
        sampled_until += samples / pace
        reply = gateway.send(chunk, 0, report(actor))
        calls, taken = calls + 1, taken + reply.accepted
        heapq.heappush(turns, (clock.now + max(reply.wait, 0.002), actor))
    assert taken == pytest.approx(10 * pace / limiter.samples_per_insert / 5, rel=0.02), "the learner's pace"
    assert calls < 3 * taken


def test_who_only_asks_for_news_takes_no_turn(clock):
    (context, gateway), (other, undisturbed) = narrow(), narrow()
    chunk, _ = fill(context, gateway)
    fill(other, undisturbed)
    for each in (context, other):
        each.replay.limiter.sampled(6000)
        each.replay.limiter.inserted(1500)
    clock.now += 2.0
    assert [gateway.send(None, 0, report()).wait for _ in range(50)] == [0.0] * 50
    wait = gateway.send(chunk, 0, report()).wait
    assert SHORTEST_WAIT < wait < LONGEST_WAIT
    assert wait == undisturbed.send(chunk, 0, report()).wait


def test_wait_is_no_promise_before_the_replay_has_its_first_rows():
    """Until `replay_start` rows are there, the limiter admits all, however narrow its band."""
    context = made_context(slack=15, send_interval=12, replay_start=100)
    gateway, _ = gateway_of(context)
    waits = [gateway.send(numbered_chunk(context, 10 * i, 10), 0, report()).wait for i in range(9)]
    assert waits == [0.0] * 9


@settings(max_examples=10)
@given(st.data())
def test_limiters_bound_holds_and_somebody_may_always_go_on(data):
    context, gateway = narrow()
    limiter, gateways = context.replay.limiter, [gateway, gateway_of(context)[0]]
    for _ in range(60):
        count, gateway = data.draw(st.integers(1, 15)), data.draw(st.sampled_from(gateways))
        taken = (
            data.draw(st.booleans()) and gateway.send(numbered_chunk(context, 0, count), 0, report()).accepted
        )
        drawn = data.draw(st.booleans()) and sampled(context) is not None
        assert abs(limiter.error) <= limiter.error_buffer or limiter.inserts < limiter.min_size
        if not taken and not drawn:
            chunk = numbered_chunk(context, 0, 15)
            assert gateway.send(chunk, 0, report()).accepted or sampled(context) is not None


@only_linux
def test_gateways_that_ask_at_once_may_pass_the_band_by_one_chunk_each_but_one():
    context, _ = narrow()
    limiter = context.replay.limiter
    gateways = [gateway_of(pickle.loads(pickle.dumps(context)))[0] for _ in range(3)]
    chunk, worst, over = numbered_chunk(context, 0, 5), [], threading.Event()

    def push(gateway):
        while not over.is_set():
            gateway.send(chunk, 0, report())
            worst.append(limiter.error)

    threads = [threading.Thread(target=push, args=(gateway,)) for gateway in gateways]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline or context.replay.next_index <= 100:
        sampled(context)
    over.set()
    for thread in threads:
        thread.join()
    assert max(worst) <= limiter.error_buffer + 2 * 5 * limiter.samples_per_insert
    assert limiter.inserts == context.replay.next_index


def test_reply_says_how_far_the_learner_is_and_whether_the_run_is_over():
    context = open_context()
    gateway, _ = gateway_of(context)
    first = gateway.send(None, 0, report())
    assert first == (True, 0.0, False, 0, None)
    context.counters.count_updates(17)
    context.stop.request()
    assert gateway.send(None, 0, report()) == (True, 0.0, True, 17, None)
    assert context.counters.steps == 0


def test_parameters_are_given_to_those_who_have_older_ones_and_shared_once():
    context = open_context()
    gateway, shared = gateway_of(context)
    assert gateway.send(None, 0, report()).newest is None
    context.parameters.publish(parameters_of(context, 1.0), 25)
    assert gateway.send(None, 0, report(actor=0)).newest == (1, 25, [0])
    assert gateway.send(None, 0, report(actor=1)).newest == (1, 25, [0])
    assert gateway.send(None, 1, report(actor=0)).newest is None
    context.parameters.publish(parameters_of(context, 2.0), 50)
    context.parameters.publish(parameters_of(context, 3.0), 75)
    assert gateway.send(None, 1, report(actor=0)).newest == (3, 75, [1])
    assert gateway.send(None, 2, report(actor=1)).newest == (3, 75, [1])
    assert gateway.send(None, 4, report(actor=1)).newest is None, "another gateway has seen newer ones"
    assert [np.unique(each).tolist() for each in shared] == [[1.0], [3.0]]


def parameters_of(context, value):
    return np.full(make_policy(context.config, context.spaces).parameter_count, value, np.float32)


def test_what_was_told_is_collected_once():
    context = open_context()
    gateway, _ = gateway_of(context)
    assert gateway.collect() == PendingReports([], {}, {})
    gateway.send(None, 0, report(actor=3, restart_count=0, rows_lost=2, messages=[Note("a"), Note("b")]))
    gateway.send(None, 0, report(actor=3, restart_count=0, rows_lost=5))
    gateway.send(None, 0, report(actor=3, restart_count=1, rows_lost=1, messages=[Note("c")]))
    assert gateway.collect() == PendingReports([Note("a"), Note("b"), Note("c")], {(3, 0): 5, (3, 1): 1}, {})
    assert gateway.collect() == PendingReports([], {}, {})


def spoiled(context, value):
    rows, priorities = numbered_rows(0, 5)
    priorities[2] = value
    return ChunkFormat(context.config, context.spaces).pack(rows, priorities)


BAD_CHUNKS = {
    "another run's": lambda context: numbered_chunk(other_run(context), 0, 5),
    "no rows": lambda context: numbered_chunk(context, 0, 0),
    "more rows than the band holds": lambda context: numbered_chunk(context, 0, 500),
    "not a number": lambda context: spoiled(context, np.nan),
    "an infinite priority": lambda context: spoiled(context, np.inf),
    "a negative priority": lambda context: spoiled(context, -1.0),
}


def other_run(context):
    space = context.spaces.observation
    wider = type(space)(space.low, space.high, dtype=np.float64)
    return replace(context, spaces=context.spaces._replace(observation=wider))


@pytest.mark.parametrize("kind", BAD_CHUNKS)
def test_bad_chunk_raises_and_changes_nothing(kind):
    context = made_context(slack=15, send_interval=12)
    gateway, shared = gateway_of(context)
    context.parameters.publish(parameters_of(context, 1.0), 25)
    gateway.send(numbered_chunk(context, 0, 20), 1, report())
    before = state_of(context, gateway)
    with pytest.raises(ValueError):
        gateway.send(BAD_CHUNKS[kind](context), 0, report(rows_lost=9, messages=[Note("lost")]))
    assert state_of(context, gateway) == before
    assert len(shared) == 1
    assert gateway.send(numbered_chunk(context, 20, 5), 1, report()).accepted
    assert_numbered(context.replay.buffer[:])
