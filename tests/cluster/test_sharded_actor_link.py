"""An actor's rows on their way to shards: none arrives twice, and the limiter counts those that were stored.

Time is simulated: the world passes it while the link waits.
"""

import heapq
import pickle
import random
import sys
from concurrent.futures import Future
from dataclasses import replace
from itertools import count, cycle
from types import SimpleNamespace

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tyro", reason="the configuration needs the extra `train`")

from cluster_parts import made_context

from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.cluster import actor_link as link_file
from replay_tutorial.cluster.actor_link import GATEWAY_ANSWER_SECONDS, IN_FLIGHT
from replay_tutorial.cluster.chunk import NO_FRAMES, Chunk
from replay_tutorial.cluster.gateway import Gateway, Reply, Report
from replay_tutorial.cluster.shards import rows_elsewhere
from replay_tutorial.cluster.shards.rows_elsewhere import RowsElsewhere
from replay_tutorial.cluster.shards.sharded_actor_link import PAUSE_SECONDS, ShardedActorLink
from replay_tutorial.cluster.shards.sharded_learner import batches_of_parcel

ROWS = 3  # of a chunk


class Lost(Exception):
    """A call that did not get through."""


class World:
    """A clock, gateways that let rows in, and shards that keep the numbers of their chunks.

    Args:
        fate: whom ("gateway" or "shard"), number → seconds there, seconds back, how it fails: None, "call",
            "answer", or "at once"; and for gateways whether the rows are let in.
    """

    def __init__(self, patch, fate, shards=2, gateways=1, actor=0):
        self.fate, self.now = fate, 0.0
        self.events, self.numbers = [], count()
        self.stored = [[] for _ in range(shards)]  # numbers of chunks, by shard
        self.filling = set()
        self.let_in, self.counted, self.asked = [], 0, 0
        time = SimpleNamespace(monotonic=lambda: self.now, sleep=self.pass_time)
        patch.setattr(link_file, "time", time)
        patch.setattr(link_file, "futures", SimpleNamespace(wait=self.wait, FIRST_COMPLETED=None))
        sends = [lambda *told, g=g: self.gateway(g, *told) for g in range(gateways)]
        adds = [lambda chunk, s=s: self.shard(s, chunk) for s in range(shards)]
        self.link = ShardedActorLink(sends, actor, 0, lambda error: isinstance(error, Lost), adds)
        self.handed = 0

    def pass_time(self, seconds, until=lambda: False):
        end = self.now + max(seconds, 1e-6)
        while self.events and self.events[0][0] <= end and not until():
            self.now, _, happen = heapq.heappop(self.events)
            happen()
        self.now = self.now if until() else end

    def wait(self, answers, seconds, _):
        self.pass_time(seconds, lambda: any(answer.done() for answer in answers))

    def call(self, do, there, back, failure):
        answer = Future()
        if failure == "at once":
            answer.set_exception(Lost(failure))
            return answer

        def arrive():
            result = do() if failure != "call" else None
            ends = (
                (lambda: answer.set_exception(Lost(failure)))
                if failure
                else lambda: answer.set_result(result)
            )
            heapq.heappush(self.events, (self.now + back, next(self.numbers), ends))

        heapq.heappush(self.events, (self.now + there, next(self.numbers), arrive))
        return answer

    def gateway(self, number, rows, version, report):
        there, back, failure, let_in = self.fate("gateway", number)
        self.asked += rows is not None

        def arrive():
            self.counted = max(self.counted, report.rows_stored)
            return Reply(rows is None or let_in, 0.0 if let_in else 0.05, False, 0, None)

        assert rows in (None, ROWS)
        return self.call(arrive, there, back, failure)

    def shard(self, number, chunk):
        there, back, failure, _ = self.fate("shard", number)

        def arrive():
            if number in self.filling:
                return 0
            self.stored[number].append(int(chunk.records[0]))
            return len(chunk.records)

        return self.call(arrive, there, back, failure)

    def play(self, chunks, seconds=0.01, patience=1000.0):
        deadline = self.now + patience
        for _ in range(chunks):
            self.pass_time(seconds)
            while not self.link.has_room(0.1):
                assert self.now < deadline, "waited in vain"
            self.link.send(Chunk(np.full(ROWS, self.handed), NO_FRAMES))
            self.handed += 1

    def settle(self):
        """Wait until every answer has come or is late, and all is told that was stored."""
        until = self.now + 4 * GATEWAY_ANSWER_SECONDS
        while self.now < until:
            self.link.has_room(0.1)
            self.pass_time(0.1)

    @property
    def all_stored(self):
        return sorted(number for numbers in self.stored for number in numbers)


def swift(*_):
    return 0.001, 0.001, None, True


def test_chunks_take_turns_at_the_shards_and_all_are_counted(monkeypatch):
    world = World(monkeypatch, swift, shards=3, actor=1)
    world.play(30)
    world.settle()
    assert world.all_stored == list(range(30))
    assert [len(numbers) for numbers in world.stored] == [10, 10, 10]
    assert world.stored[1][0] == 0  # actors begin with other shards
    assert (world.counted, world.link.rows_lost) == (30 * ROWS, 0)


def test_rows_that_are_not_let_in_go_to_no_shard(monkeypatch):
    world = World(monkeypatch, lambda *_: (0.001, 0.001, None, world.now > 5.0))
    world.play(2)
    while world.now < 4.9:
        world.link.has_room(0.1)
    assert world.all_stored == []
    assert world.asked < 5.0 / 0.05 + 3, "asked for the second chunk, too, while the first one has to wait"
    world.settle()
    assert world.all_stored == [0, 1]
    assert world.counted == 2 * ROWS


@repeatable(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    shards=st.integers(1, 4),
    faults=st.sampled_from([0.0, 0.05, 0.4]),
    refusals=st.sampled_from([0.0, 0.5]),
)
def test_no_chunk_is_stored_twice_and_each_is_stored_or_lost(seed, shards, faults, refusals):
    chance = random.Random(seed)

    def fate(*_):
        if world.now > 500.0:  # by then not every chunk is through: of what fails so often, each takes 25 s
            return swift()
        failure = chance.choice(["call", "answer", "at once"]) if chance.random() < faults else None
        late = [0.001, 0.05, 1.0, 11.0] if chance.random() < faults else [0.001, 0.05]
        return chance.choice(late), chance.choice(late), failure, chance.random() >= refusals

    with pytest.MonkeyPatch.context() as patch:
        world = World(patch, fate, shards, gateways=2, actor=chance.randrange(4))
        world.play(40)
        world.fate = swift
        world.settle()
    stored = world.all_stored
    assert len(set(stored)) == len(stored)
    missing = set(range(world.handed)) - set(stored)
    assert len(missing) * ROWS <= world.link.rows_lost
    assert world.counted <= len(stored) * ROWS
    assert world.counted + world.link.rows_lost == world.handed * ROWS
    if faults == 0.0:
        assert (world.counted, world.link.rows_lost) == (world.handed * ROWS, 0)


def test_dead_shard_is_passed_over_without_a_loss(monkeypatch):
    world = World(
        monkeypatch, lambda whom, n: (0.001, 0.001, "at once" if (whom, n) == ("shard", 0) else None, True)
    )
    world.play(20)
    world.settle()
    assert world.stored == [[], list(range(20))]
    assert (world.counted, world.link.rows_lost) == (20 * ROWS, 0)


def test_without_any_shard_rows_wait_until_one_is_there(monkeypatch):
    world = World(
        monkeypatch,
        lambda whom, _: (0.001, 0.001, "at once" if whom == "shard" and world.now < 3 else None, True),
    )
    world.play(5)
    world.settle()
    assert world.all_stored == list(range(5))
    assert world.link.rows_lost == 0
    assert world.asked < IN_FLIGHT * (3 / PAUSE_SECONDS + 5)


def test_shard_that_is_being_filled_takes_nothing_and_nothing_is_lost(monkeypatch):
    world = World(monkeypatch, swift)
    world.filling = {0}
    world.play(10)
    world.settle()
    assert world.stored[0] == []
    world.filling = set()
    world.play(10)
    world.settle()
    assert world.all_stored == list(range(20))
    assert len(world.stored[0]) == 5
    assert world.link.rows_lost == 0


def test_shard_that_never_answers_holds_up_one_chunk_at_a_time(monkeypatch):
    """Also while the limiter holds the actor back, and asks for one question at a time."""
    for wait in (0.0, 0.002):
        world = World(
            monkeypatch, lambda whom, n: (1e9 if (whom, n) == ("shard", 0) else 0.001, 0.001, None, True)
        )
        gateway = world.link.gateways[0]
        world.link.gateways = [lambda *told, g=gateway, w=wait: delayed(g(*told), w)]
        world.play(100)
        assert world.now < GATEWAY_ANSWER_SECONDS
        assert world.all_stored[:90] == [n for n in range(100) if n in world.stored[1]][:90]
        world.settle()  # the last ones were on their way
        assert world.stored[1] == list(range(1, 100))


def test_silent_shards_cost_their_own_places_only(monkeypatch):
    """As many of them as an actor has places, and more."""
    for silent in (1, 2, 5):
        world = World(
            monkeypatch,
            lambda whom, n, k=silent: (1e9 if whom == "shard" and n < k else 0.001, 0.001, None, True),
            shards=8,
        )
        world.play(400, seconds=0.05)
        assert world.now < 400 * 0.05 + 3.0
        assert len(world.all_stored) > 400 - 2 * silent - IN_FLIGHT
        assert all(not numbers for numbers in world.stored[:silent])
        assert world.asked < 420


def test_one_shard_that_is_silent_for_a_while_gets_two_chunks_and_the_gateway_few_calls(monkeypatch):
    world = World(monkeypatch, lambda whom, n: (30.0 if whom == "shard" else 0.001, 0.001, None, True), 1)
    with pytest.raises(AssertionError, match="waited in vain"):
        world.play(10, patience=25.0)
    assert world.handed == 2 * IN_FLIGHT
    assert world.asked <= 2 * IN_FLIGHT
    world.fate = swift
    world.settle()
    assert world.all_stored == list(range(2 * IN_FLIGHT))
    assert (world.counted, world.link.rows_lost) == (2 * IN_FLIGHT * ROWS, 0)


def test_answer_that_comes_late_counts_and_the_shard_is_used_again(monkeypatch):
    late = [4 * GATEWAY_ANSWER_SECONDS]
    world = World(
        monkeypatch,
        lambda whom, n: (0.001, late.pop() if late and (whom, n) == ("shard", 0) else 0.001, None, True),
    )
    world.play(10)
    world.settle()
    world.settle()
    assert (world.counted, world.link.rows_lost) == (10 * ROWS, 0)
    world.play(10)
    world.settle()
    assert len(world.stored[0]) > 5


def test_shard_that_was_silent_once_gets_two_chunks_at_a_time_again(monkeypatch):
    late = [2.0]

    def fate(whom, _):
        return 0.001 if whom == "gateway" else late.pop() if late else 0.2, 0.001, None, True

    world = World(monkeypatch, fate, shards=1)
    world.play(10)
    before = world.now
    world.play(20)
    assert world.now - before < 20 * 0.2 * 0.6


def test_shard_that_loses_what_it_gets_gets_one_chunk_at_a_time(monkeypatch):
    def fate(whom, _):
        return (0.001, 0.001, None, True) if whom == "gateway" else (0.1, 0.1, "call", True)

    world = World(monkeypatch, fate, shards=1)
    while world.now < 5.0:
        world.play(1)
    assert world.link.rows_lost <= (5.0 / 0.2 + 2) * ROWS


def test_report_that_is_lost_is_made_again_and_counted_once(monkeypatch):
    """Every second call to a gateway gets lost, on its way there or back."""
    fates = cycle(["call", None, None, "answer", "answer", None, None, "call"])
    world = World(
        monkeypatch,
        lambda whom, _: (0.001, 0.001, next(fates) if whom == "gateway" else None, True),
        gateways=2,
    )
    world.play(12)
    world.settle()
    assert world.counted == len(world.all_stored) * ROWS == 12 * ROWS


def delayed(answer, wait):
    """The same answer, which asks for a pause before the next question."""
    later = Future()
    answer.add_done_callback(lambda done: later.set_result(done.result()._replace(wait=wait)))
    return later


def test_error_of_a_shard_is_an_error(monkeypatch):
    world = World(monkeypatch, swift)
    world.link.shards = [lambda _: 1 / 0]
    with pytest.raises(ZeroDivisionError):
        world.play(2)
    wrong = Future()
    wrong.set_exception(ValueError("of another run"))
    world = World(monkeypatch, swift)
    world.link.shards = [lambda _: wrong]
    with pytest.raises(ValueError, match="of another run"):
        world.play(5)


def test_gateway_lets_rows_in_by_their_number_and_counts_what_was_stored():
    context = sharded_context(slack=1, replay_start=10, samples_per_insert=4.0, batch_size=64)
    limiter = context.replay.limiter
    gateway = Gateway(context, limiter, lambda array: [array])

    def ask(rows, stored):
        return gateway.send(rows, 0, Report(0, 0, 0, (), stored))

    assert ask(12, 0).taken
    assert context.pace.steps == 0  # they are only on their way
    assert ask(None, 12).taken
    assert context.pace.steps == 12
    room = int((limiter.error_buffer - limiter.error) // 4)
    assert ask(room, 0).taken
    refused = ask(1, 12 + room)
    assert not refused.taken
    assert refused.wait > 0.0
    assert context.pace.steps == 12 + room


def test_rows_that_several_gateways_are_told_of_count_once_for_each_life():
    context = sharded_context()
    gateways = [Gateway(context, context.replay.limiter, list) for _ in range(2)]
    told = [(0, 0, 5), (1, 0, 5), (0, 0, 3), (1, 0, 9), (0, 1, 2), (0, 0, 30), (1, 1, 4), (1, 3, 7)]
    steps = []
    for gateway, life, stored in told:
        gateways[gateway].send(None, 0, Report(0, life, 0, (), stored))
        steps.append(context.pace.steps)
    assert steps == [5, 5, 5, 9, 11, 11, 13, 20]
    gateways[0].send(None, 0, Report(1, 0, 0, (), 100))
    assert context.pace.steps == 120


@pytest.mark.parametrize(("told", "others"), [(8, (9, 7)), (9, (5, 7))])
def test_rows_count_once_though_other_gateways_are_told_of_them_at_the_same_moment(monkeypatch, told, others):
    """Between one's look and its swap."""
    replay = sharded_context().replay
    swap, others, most = rows_elsewhere.swap, list(others), max(told, *others)

    def swap_late(*arguments):
        if others:
            replay.count(Report(0, 0, 0, (), others.pop()))
        return swap(*arguments)

    monkeypatch.setattr(rows_elsewhere, "swap", swap_late)
    replay.count(Report(0, 0, 0, (), told))
    assert (others, replay.limiter.inserts) == ([], most)


@pytest.mark.skipif(sys.platform != "linux", reason="gateways are processes of Ray's, on Linux only")
def test_gateway_that_is_killed_leaves_to_the_next_one_what_was_counted():
    context = sharded_context()
    for stored in (5, 5, 9):
        replay = pickle.loads(pickle.dumps(context.replay))  # as a gateway gets it, in each of its lives
        replay.count(Report(1, 2, 0, (), stored))
        assert context.pace.steps == stored


def sharded_context(**changes):
    """That of a learner whose rows lie elsewhere."""
    context = made_context(**changes)
    return replace(context, replay=RowsElsewhere(context.replay.limiter, actors=2))


@pytest.mark.parametrize(
    ("environment", "batch_size", "batches"),
    [("CartPole-v1", 64, 4), ("CartPole-v1", 300_000, 1), ("small_environments:StackedPictures-v0", 512, 3)],
)
def test_parcel_is_for_four_batches_unless_they_are_large(environment, batch_size, batches):
    config = replace(preset(environment), batch_size=batch_size)
    assert batches_of_parcel(config, spaces_of(environment)) == batches
