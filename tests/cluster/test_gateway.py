"""The gateway: rows enter the replay once, the limiter decides, and replies say what an actor needs."""

import heapq
import itertools
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import get_context
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


def sampled(context, count=64):
    return context.replay.sample(count, beta=0.4, timeout=0.0)


def assert_same_replay(context, other):
    """Both draw by the same seed, so what is drawn tells rows, order and priorities."""
    assert context.pace.steps == other.pace.steps
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
        assert gateway.send(numbered_chunk(context, first, count), 0, report()).taken
        other.replay.insert(*numbered_rows(first, count), timeout=0.0)
    assert_same_replay(context, other)


@only_linux
def test_rows_of_several_gateways_are_there_once():
    context = open_context()
    gateways = [gateway_of(pickle.loads(pickle.dumps(context)))[0] for _ in range(3)]
    for number in range(30):
        gateways[number % 3].send(numbered_chunk(context, 10 * number, 10), 0, report())
    stored = context.replay.buffer.get_all_transitions()
    assert sorted(stored["rew"].ravel().tolist()) == list(range(300))
    assert_numbered(stored)
    assert context.pace.steps == 300


def test_images_arrive_whole():
    context, other = (made_context("small_environments:StackedPictures-v0", slack=10**9) for _ in range(2))
    chunks, (rng, fields) = ChunkFormat(context.config, context.spaces), (np.random.default_rng(0), {})
    images = rng.integers(0, 255, (30, 40, 60), np.uint8)
    fields["obs"] = np.stack([images[i : i + 4] for i in range(20)])
    fields["next_obs"] = np.stack([images[i : i + 4] for i in range(3, 23)])
    fields |= {name: np.arange(20) for name in ("act", "rew", "discount")}
    fields |= {name: np.arange(20) % 2 for name in ("terminated", "truncated")}
    priorities = rng.random(20, np.float32)
    chunk = chunks.pack(fields, priorities)
    for array in chunk:
        array.flags.writeable = False
    gateway_of(context)[0].send(chunk, 0, report())
    other.replay.insert(fields, priorities, timeout=0.0)
    assert_same_replay(context, other)


def narrow_context():
    """Its limiter admits 10 rows, and 31 more before a row is sampled."""
    return made_context(slack=15, send_interval=12)


def state_of(context, gateway):
    """All that a call may change."""
    counters = context.replay.next_index, context.pace.steps, context.pace.samples
    rows = context.replay.buffer.get_all_transitions()
    return counters, {name: values.tolist() for name, values in rows.items()}, pickle.dumps(gateway.told)


def fill(context, gateway, count=5):
    """Send chunks until one is refused; return it, and the reply."""
    for first in range(0, 10_000, count):
        chunk = numbered_chunk(context, first, count)
        reply = gateway.send(chunk, 0, report())
        if not reply.taken:
            return chunk, reply
    raise AssertionError("the limiter has admitted all")


def test_chunk_that_the_limiter_refuses_changes_nothing_and_may_be_sent_again():
    context = narrow_context()
    gateway, _ = gateway_of(context)
    chunk, _ = fill(context, gateway)
    assert context.pace.steps == 40
    before = state_of(context, gateway)
    assert not gateway.send(chunk, 0, report()).taken
    assert state_of(context, gateway) == before
    sampled(context)
    assert gateway.send(chunk, 0, report()).taken
    stored = context.replay.buffer.get_all_transitions()
    assert stored["rew"].ravel().tolist() == list(range(45))


def test_what_an_actor_says_counts_even_if_its_rows_are_refused():
    context = narrow_context()
    gateway, _ = gateway_of(context)
    chunk, _ = fill(context, gateway)
    gateway.send(chunk, 0, report(actor=1, life=2, rows_lost=7, messages=[Note("here")]))
    assert gateway.collect() == PendingReports([Note("here")], {(0, 0): 0, (1, 2): 7}, {})


def test_gateway_does_not_wait_for_the_learner():
    context = narrow_context()
    gateway, _ = gateway_of(context)
    chunk, _ = fill(context, gateway)
    seconds = [math.inf]
    while min(seconds) >= 0.001 and len(seconds) < 1000:  # the machine may stop a test
        before = time.perf_counter()
        gateway.send(chunk, 0, report())
        seconds.append(time.perf_counter() - before)
    assert min(seconds) < 0.001 < SHORTEST_WAIT


@pytest.fixture
def clock(monkeypatch):
    """The gateway's clock, which stands still unless it is told to go on."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(gateway_module, "time", clock)
    return clock


@pytest.mark.parametrize("count", [1, 5, 15])
@pytest.mark.parametrize("pace", [64, 640, 6_400])
def test_actor_is_told_to_wait_until_the_learner_has_made_room(clock, pace, count):
    context = narrow_context()
    gateway, _ = gateway_of(context)
    limiter = context.replay.limiter
    chunk, _ = fill(context, gateway, count)
    clock.now += 2.0
    limiter.sampled(2 * pace)
    limiter.inserted(int(2 * pace / limiter.samples_per_insert))  # actors have kept up with it
    reply = gateway.send(chunk, 0, report())
    assert not reply.taken
    needed = limiter.error + count * limiter.samples_per_insert - limiter.error_buffer
    assert needed > 0
    assert reply.wait == pytest.approx(np.clip(needed / pace, SHORTEST_WAIT, LONGEST_WAIT))
    if SHORTEST_WAIT < reply.wait < LONGEST_WAIT:
        limiter.sampled(int(np.floor(reply.wait * pace)) - 1)  # a moment too early
        assert not gateway.send(chunk, 0, report()).taken
        limiter.sampled(2)
        assert gateway.send(chunk, 0, report()).taken


def test_actors_that_wait_are_told_to_come_one_after_the_other(clock):
    """If all came when there is room for one, the others would have sent their rows in vain."""
    context = narrow_context()
    gateway, _ = gateway_of(context)
    limiter, pace, actors = context.replay.limiter, 2000, 20
    chunk, _ = fill(context, gateway)
    calls, taken, sampled_until = 0, 0, clock.now
    turns = [(clock.now + 0.001 * actor, actor) for actor in range(actors)]
    while clock.now < 1010.0:
        clock.now, actor = heapq.heappop(turns)
        limiter.sampled(samples := int((clock.now - sampled_until) * pace))
        sampled_until += samples / pace
        reply = gateway.send(chunk, 0, report(actor))
        calls, taken = calls + 1, taken + reply.taken
        heapq.heappush(turns, (clock.now + max(reply.wait, 0.002), actor))
    assert taken == pytest.approx(10 * pace / limiter.samples_per_insert / 5, rel=0.02), "the learner's pace"
    assert calls < 3 * taken


def test_who_only_asks_for_news_takes_no_turn(clock):
    context, other = narrow_context(), narrow_context()
    (gateway, _), (undisturbed, _) = gateway_of(context), gateway_of(other)
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


def test_actor_looks_now_and_then_at_a_learner_that_stands_still(clock):
    context = narrow_context()
    gateway, _ = gateway_of(context)
    chunk, reply = fill(context, gateway)
    assert reply.wait == LONGEST_WAIT, "before the pace is known"
    clock.now += 100.0
    assert gateway.send(chunk, 0, report()).wait == LONGEST_WAIT


def test_nobody_waits_where_there_is_room():
    context = open_context()
    gateway, _ = gateway_of(context)
    for first in range(0, 500, 50):
        reply = gateway.send(numbered_chunk(context, first, 50), 0, report())
        assert reply.taken and reply.wait == 0.0


def test_wait_is_no_promise_before_the_replay_has_its_first_rows():
    """Until `replay_start` rows are there, the limiter admits all, however narrow its band."""
    context = made_context(slack=15, send_interval=12, replay_start=100)
    gateway, _ = gateway_of(context)
    waits = [gateway.send(numbered_chunk(context, 10 * i, 10), 0, report()).wait for i in range(9)]
    assert waits == [0.0] * 9


@settings(max_examples=10)
@given(st.data())
def test_limiters_bound_holds_and_somebody_may_always_go_on(data):
    context = narrow_context()
    limiter = context.replay.limiter
    gateways = [gateway_of(context)[0] for _ in range(2)]
    for _ in range(60):
        count, gateway = data.draw(st.integers(1, 15)), data.draw(st.sampled_from(gateways))
        taken = (
            data.draw(st.booleans()) and gateway.send(numbered_chunk(context, 0, count), 0, report()).taken
        )
        drawn = data.draw(st.booleans()) and sampled(context) is not None
        assert abs(limiter.error) <= limiter.error_buffer or limiter.inserts < limiter.min_size
        if not taken and not drawn:
            chunk = numbered_chunk(context, 0, 15)
            assert gateway.send(chunk, 0, report()).taken or sampled(context) is not None


@only_linux
def test_gateways_that_ask_at_once_may_pass_the_band_by_one_chunk_each_but_one():
    context = narrow_context()
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
    context.pace.count_updates(17)
    context.stop.ask()
    assert gateway.send(None, 0, report()) == (True, 0.0, True, 17, None)
    assert context.pace.steps == 0


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


def test_rows_and_parameters_travel_in_one_call():
    context = open_context()
    gateway, _ = gateway_of(context)
    context.parameters.publish(parameters_of(context, 1.0), 25)
    reply = gateway.send(numbered_chunk(context, 0, 5), 0, report())
    assert (reply.taken, reply.newest.version, context.pace.steps) == (True, 1, 5)


def test_what_was_told_is_collected_once():
    context = open_context()
    gateway, _ = gateway_of(context)
    assert gateway.collect() == PendingReports([], {}, {})
    gateway.send(None, 0, report(actor=3, life=0, rows_lost=2, messages=[Note("a"), Note("b")]))
    gateway.send(None, 0, report(actor=3, life=0, rows_lost=5))
    gateway.send(None, 0, report(actor=3, life=1, rows_lost=1, messages=[Note("c")]))
    assert gateway.collect() == PendingReports([Note("a"), Note("b"), Note("c")], {(3, 0): 5, (3, 1): 1}, {})
    assert gateway.collect() == PendingReports([], {}, {})


def spoiled(context, *, name, value):
    rows, priorities = numbered_rows(0, 5)
    columns = rows | {"priorities": priorities}
    columns[name] = columns[name].copy()
    columns[name][2] = value
    priorities = columns.pop("priorities")
    return ChunkFormat(context.config, context.spaces).pack(columns, priorities)


BAD_CHUNKS = {
    "another run's": lambda context: numbered_chunk(other_run(context), 0, 5),
    "no rows": lambda context: numbered_chunk(context, 0, 0),
    "more rows than the band holds": lambda context: numbered_chunk(context, 0, 500),
    "not a number": lambda context: spoiled(context, name="priorities", value=np.nan),
    "an infinite priority": lambda context: spoiled(context, name="priorities", value=np.inf),
    "a negative priority": lambda context: spoiled(context, name="priorities", value=-1.0),
}


def other_run(context):
    space = context.spaces.observation
    wider = type(space)(space.low, space.high, dtype=np.float64)
    return replace(context, spaces=context.spaces._replace(observation=wider))


@pytest.mark.parametrize("kind", BAD_CHUNKS)
def test_bad_chunk_raises_and_changes_nothing(kind):
    context = narrow_context()
    gateway, shared = gateway_of(context)
    context.parameters.publish(parameters_of(context, 1.0), 25)
    gateway.send(numbered_chunk(context, 0, 20), 1, report())
    before = state_of(context, gateway)
    with pytest.raises(ValueError):
        gateway.send(BAD_CHUNKS[kind](context), 0, report(rows_lost=9, messages=[Note("lost")]))
    assert state_of(context, gateway) == before
    assert len(shared) == 1
    assert gateway.send(numbered_chunk(context, 20, 5), 1, report()).taken
    assert_numbered(context.replay.buffer.get_all_transitions())


PICTURES = "small_environments:StackedPictures-v0"
CHUNK = 40  # rows


def pictures_context():
    return made_context(PICTURES, slack=10**9, capacity=200)


def pictures(first, count):
    """Rows of images, all new, that tell the row's number: most of the time of a `send` is spent on them."""
    numbers = np.arange(first, first + count)
    spread = (numbers[:, None] * 8 + np.arange(8)).astype(np.uint32)
    images = spread[:, :, None].repeat(600, axis=2).view(np.uint8).reshape(count, 8, 40, 60)
    rows = {"obs": images[:, :4], "next_obs": images[:, 4:], "rew": numbers, "act": numbers % 2}
    rows |= {name: numbers % 2 for name in ("terminated", "truncated", "discount")}
    return rows, np.ones(count, np.float32)


def assert_pictures(rows):
    for i, number in enumerate(np.asarray(rows["rew"]).ravel().astype(int)):
        expected, _ = pictures(number, 1)
        for name, values in expected.items():
            np.testing.assert_array_equal(np.asarray(rows[name][i]).squeeze(), values[0].squeeze(), name)


def send_forever(pickled):
    """A life of a gateway, with chunks as fast as it takes them."""
    context = pickle.loads(pickled)
    gateway, _ = gateway_of(context)
    chunk = ChunkFormat(context.config, context.spaces).pack
    chunks = [chunk(*pictures(first, CHUNK)) for first in range(0, 1000, CHUNK)]
    while True:
        for each in chunks:
            gateway.send(each, 0, report())


def assert_replay_is_whole(context, lives):
    """What is drawn is whole, and the next gateway may write to every slot."""
    for _ in range(20):
        assert_pictures(sampled(context, 32).rows)
    assert 0 <= context.replay.next_index - context.pace.steps <= lives * CHUNK
    gateway, _ = gateway_of(context)
    chunks = ChunkFormat(context.config, context.spaces)
    for first in range(0, 400, CHUNK):  # two laps
        gateway.send(chunks.pack(*pictures(first, CHUNK)), 0, report())
    stored = context.replay.buffer.get_all_transitions()
    assert stored["rew"].ravel().tolist() == list(range(200, 400))
    assert_pictures(stored)
    assert_pictures(sampled(context, 64).rows)


def die_in_send(pickled, point):
    """A life of a gateway that is killed inside its second `send`, at some call or return of Python."""
    context = pickle.loads(pickled)
    gateway, _ = gateway_of(context)
    chunks = [
        ChunkFormat(context.config, context.spaces).pack(*pictures(first, CHUNK)) for first in (0, CHUNK)
    ]
    gateway.send(chunks[0], 0, report())
    points = itertools.count()

    def kill_me(*_):
        if next(points) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(kill_me)
    gateway.send(chunks[1], 0, report())
    sys.setprofile(None)


@only_linux
def test_gateways_are_killed_at_every_point_of_a_send_and_the_replay_stays_whole():
    context = pictures_context()
    context.replay.insert(*pictures(0, CHUNK), timeout=0.0)
    pickled, lives, added_only = pickle.dumps(context), 0, set()
    for lives in itertools.count():
        before = context.replay.next_index - context.pace.steps
        process = get_context("fork").Process(target=die_in_send, args=(pickled, 7 * lives), daemon=True)
        process.start()
        process.join()
        assert_pictures(sampled(context, 32).rows)
        added_only.add(context.replay.next_index - context.pace.steps - before)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert added_only == {0, CHUNK}, "some were killed between adding and counting"
    assert_replay_is_whole(context, lives)


@only_linux
def test_gateways_are_killed_at_random_moments_and_the_replay_stays_whole():
    context, chance = pictures_context(), random.Random(0)
    context.replay.insert(*pictures(0, CHUNK), timeout=0.0)
    pickled, lives = pickle.dumps(context), 6
    for _ in range(lives):
        process = get_context("fork").Process(target=send_forever, args=(pickled,), daemon=True)
        before = context.replay.next_index
        process.start()
        wait_until(lambda before=before: context.replay.next_index > before + 200)  # a lap
        assert_pictures(sampled(context, 32).rows)
        time.sleep(chance.uniform(0.0, 0.02))
        process.kill()
        process.join()
        assert_pictures(sampled(context, 32).rows)
    assert_replay_is_whole(context, lives)


@only_linux
def test_gateway_of_an_unrelated_process_is_killed_and_the_replay_stays_whole():
    context = pictures_context()
    program = "import sys, test_gateway; test_gateway.send_forever(sys.stdin.buffer.read())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env=environment) as process:
        process.stdin.write(pickle.dumps(context))
        process.stdin.close()
        wait_until(lambda: context.replay.next_index > 1000 or process.poll() is not None)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert_replay_is_whole(context, 1)


def wait_until(condition):
    deadline = time.monotonic() + 300.0
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)
