"""The link over a network that loses, delays and refuses: nothing arrives twice or is lost in silence.

Time is simulated: the network passes it while the link waits.
"""

import heapq
import random
from concurrent.futures import Future
from itertools import count
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay_tutorial.apex.messages import Note
from replay_tutorial.cluster import actor_link as link_module
from replay_tutorial.cluster.actor_link import GATEWAY_TIMEOUT_SECONDS, IN_FLIGHT, POLL_SECONDS, ActorLink
from replay_tutorial.cluster.chunk import NO_FRAMES, Chunk
from replay_tutorial.cluster.gateway import ParametersReference, Reply

WAIT = 0.1  # seconds that the actor waits at a time
NEVER = 10**6


class Lost(Exception):
    """A call that did not get through."""


class Fate(NamedTuple):
    """What happens to a call. A failed one is known as one after both times."""

    there: float = 0.001  # seconds
    back: float = 0.001
    refused: bool = False
    wait: float = 0.0
    failure: str | None = None  # "call", "answer"


class Network:
    """The clock, the gateways, and what happens to each call: number of the call, gateway → Fate."""

    def __init__(self, fate):
        self.fate = fate
        self.now = 0.0
        self.events, self.numbers = [], count()
        self.calls = []
        self.processed = []  # numbers of chunks
        self.idle = 0  # waits of less than a millisecond, one after the other
        self.stopped_at = float(NEVER)

    def pass_time(self, seconds, until=lambda: False):
        """Let things happen for so long, at most until something is true."""
        end = self.now + max(seconds, 1e-6)
        while self.events and self.events[0][0] <= end and not until():
            self.now, _, happen = heapq.heappop(self.events)
            happen()
        self.now = self.now if until() else end

    def wait(self, answers, seconds, _):
        self.count_idle(seconds)
        self.pass_time(seconds, lambda: any(answer.done() for answer in answers))

    def sleep(self, seconds):
        self.count_idle(seconds)
        self.pass_time(seconds)

    def count_idle(self, seconds):
        self.idle = self.idle + 1 if seconds < 0.001 else 0
        assert self.idle < 20, "the link keeps the processor busy while it waits"

    def after(self, seconds, happen):
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), happen))

    def call(self, gateway, chunk, version, report):
        there, back, refused, wait, failure = self.fate(len(self.calls), gateway)
        call = SimpleNamespace(answer=Future(), chunk=chunk, since=self.now, gateway=gateway, report=report)
        self.calls.append(call)

        def arrive():
            if chunk is not None and not refused and failure != "call":
                self.processed.append(number_of(chunk))
            newest = int(self.now)  # a version each second
            reply = Reply(
                accepted=chunk is None or not refused,
                wait=wait,
                stopped=self.now >= self.stopped_at,
                updates=int(10 * self.now),
                newest=ParametersReference(newest, 0, None) if newest > version else None,
            )
            self.after(back, (lambda: call.answer.set_result(reply)) if failure is None else fail)

        def fail():
            call.answer.set_exception(Lost(failure))

        self.after(there, arrive)
        return call.answer


class WatchedLink(ActorLink):
    """Before each pump it notes which calls have ended, and how; after it, it checks what must hold."""

    def __init__(self, network, gateways, actor=0):
        sends = [
            lambda chunk, version, report, gateway=gateway: self.watch_call(gateway, chunk, version, report)
            for gateway in range(gateways)
        ]
        super().__init__(sends, actor, 0, lambda error: isinstance(error, Lost))
        self.network = network
        self.handed = {}  # number → chunk
        self.taken, self.lost, self.refused = {}, {}, {}  # number → chunk, by replies and by losses
        self.open_calls = []
        self.losses = []  # moments at which one was known
        self.latest = {}  # gateway → the last of its calls that was answered
        self.unproven = []  # lost calls whose gateway has not answered since
        self.news = (False, 0, 0)
        self.most_pending = 0

    def send(self, chunk):
        self.handed[number_of(chunk)] = chunk
        super().send(chunk)

    def pump(self):
        for call in list(self.open_calls):
            self.note_end(call)
        super().pump()
        self.check()

    def note_end(self, call):
        if not call.answer.done() and self.network.now - call.since < GATEWAY_TIMEOUT_SECONDS:
            return
        self.open_calls.remove(call)
        reply = call.answer.result() if call.answer.done() and not call.answer.exception() else None
        if reply is None:
            self.losses.append(self.network.now)
            self.unproven.append(call)
        elif call.gateway not in self.latest or self.latest[call.gateway].since <= call.since:
            self.latest[call.gateway] = call
        if call.chunk is not None:
            ends = self.lost if reply is None else self.taken if reply.accepted else self.refused
            ends[number_of(call.chunk)] = call.chunk

    def check(self):
        assert len(set(self.network.processed)) == len(self.network.processed), "processed twice"
        assert self.taken.keys() <= set(self.network.processed)
        assert not self.lost.keys() & self.taken.keys()
        assert self.rows_lost == sum(len(chunk.records) for chunk in self.lost.values())
        pending = self.handed.keys() - self.lost.keys() - self.taken.keys()
        assert len(pending) <= IN_FLIGHT
        self.most_pending = max(self.most_pending, len(pending))
        news = (self.requested, self.updates, self.version if self.newest is None else self.newest.version)
        assert all(new >= old for new, old in zip(news, self.news, strict=True)), "news go backwards"
        self.news = news

    def watch_call(self, gateway, chunk, version, report):
        if chunk is not None:
            assert sum(call.chunk is not None for call in self.open_calls) < IN_FLIGHT
            assert gateway in self.latest, "a chunk is sent to a gateway that has never answered"
            for call in [call for call in self.unproven if call.gateway == gateway]:
                known = next(moment for moment in self.losses if moment >= call.since)
                assert self.latest[gateway].since >= known, "the gateway was lost and has not answered since"
                self.unproven.remove(call)
        assert report[:3] == (self.actor, self.restart_count, self.rows_lost)
        answer = self.network.call(gateway, chunk, version, report)
        self.open_calls.append(self.network.calls[-1])
        return answer


def chunk_of(number, rows=1):
    return Chunk(np.full(rows, number), NO_FRAMES)


def number_of(chunk):
    return int(chunk.records[0])


def begin(patch, fate, gateways=1, actor=0):
    """A network whose clock is the link's, and a link."""
    network = Network(fate)
    patch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: network.now, sleep=network.sleep))
    patch.setattr(link_module, "futures", SimpleNamespace(wait=network.wait, FIRST_COMPLETED=None))
    return network, WatchedLink(network, gateways, actor)


def play(network, link, chunks, playing=lambda: 0.01, rows=lambda: 1):
    """What an actor does: pull, play, send; at last wait until nothing is pending."""
    for number in range(chunks):
        link.pump()
        pull(link)
        network.pass_time(playing())
        until(network, lambda: link.has_room(WAIT))
        link.send(chunk_of(number, rows()))
    settle(network, link)


def pull(link):
    """As `RemoteParameters` does."""
    newest, link.newest = link.newest, None
    if newest is not None:
        assert newest.version > link.version
        link.version = newest.version


def settle(network, link):
    """Wait until nothing is pending."""
    until(network, lambda: link.taken.keys() | link.lost.keys() == link.handed.keys() or look(network, link))


def look(network, link):
    link.pump()
    network.pass_time(0.01)


def until(network, condition, seconds=300.0):
    deadline = network.now + seconds
    while not condition():
        assert network.now < deadline, "waited in vain"


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    gateways=st.integers(1, 3),
    faults=st.sampled_from([0.0, 0.02, 0.2, 0.6]),
    refusals=st.sampled_from([0.0, 0.3, 0.9]),
    bad_seconds=st.sampled_from([1.0, 30.0]),
)
def test_no_chunk_arrives_twice_and_each_is_taken_pending_or_counted_as_lost(
    seed, gateways, faults, refusals, bad_seconds
):
    chance = random.Random(seed)
    down = [(start := chance.uniform(0, 30), start + chance.uniform(0, 30)) for _ in range(gateways)]

    def fate(_, gateway):
        good = network.now > bad_seconds
        since, to = down[gateway]
        if not good and since < network.now < to:
            return Fate(back=chance.choice([0.001, 2.0, NEVER]), failure=chance.choice(["call", "answer"]))
        failure = chance.choice(["call", "answer"]) if not good and chance.random() < faults else None
        delays = [0.001, 0.05, 1.0, 11.0, NEVER] if chance.random() < faults and not good else [0.001, 0.05]
        refused = chance.random() < refusals
        wait = chance.choice([0.0, 0.005, 0.5])
        return Fate(chance.choice(delays), chance.choice(delays), refused, wait, failure)

    with pytest.MonkeyPatch.context() as patch:
        network, link = begin(patch, fate, gateways, chance.randrange(5))
        seconds = [0.0, 0.01, 0.3, 0.3, 15.0]
        play(network, link, 40, lambda: chance.choice(seconds), lambda: chance.randint(1, 5))
    missing = link.handed.keys() - set(network.processed)
    assert missing <= link.lost.keys()


@pytest.mark.parametrize("gateways", [1, 2, 3])
def test_without_faults_all_arrive_in_their_order_and_two_travel_at_a_time(monkeypatch, gateways):
    network, link = begin(monkeypatch, lambda *_: Fate(0.05, 0.05), gateways)
    play(network, link, 50)
    assert network.processed == list(range(50))
    assert (link.rows_lost, link.most_pending) == (0, IN_FLIGHT)
    assert network.now < 50 * 0.1


@pytest.mark.parametrize("seed", range(10))
def test_only_a_chunk_that_was_refused_is_overtaken(monkeypatch, seed):
    chance = random.Random(seed)

    def fate(*_):
        return Fate(refused=chance.random() < 0.5, wait=chance.choice([0.0, 0.02]))

    network, link = begin(monkeypatch, fate)
    play(network, link, 50)
    refused = link.refused.keys()
    assert sorted(network.processed) == list(range(50))
    for place, number in enumerate(network.processed):
        assert {other for other in network.processed[place:] if other < number} <= refused
    assert len(refused) > 10


def test_refused_chunk_is_sent_again_when_the_gateway_said(monkeypatch):
    network, link = begin(monkeypatch, lambda *_: Fate(refused=network.now < 1.0, wait=0.3))
    play(network, link, 1)
    sent = [call.since for call in network.calls if call.chunk]
    assert sent[1] == pytest.approx(sent[0] + 0.302, abs=0.011)
    assert network.processed == [0]


@pytest.mark.parametrize("seconds", [0.0, 0.5, 5.0, NEVER])
@pytest.mark.parametrize("gateways", [2, 3])
def test_two_calls_to_a_dead_gateway_lead_to_the_next_one_and_not_past_it(monkeypatch, gateways, seconds):
    """Gateway 0 answers for half a second; later calls are known as lost after so many seconds."""

    def fate(_, gateway):
        return Fate(0.0, seconds, failure="call") if gateway == 0 and network.now >= 0.5 else Fate()

    network, link = begin(monkeypatch, fate, gateways)
    play(network, link, 100)
    lost = link.lost.keys()
    assert 1 <= len(lost) <= IN_FLIGHT
    assert network.processed == [number for number in range(100) if number not in lost]
    known = 0.6 + min(seconds, GATEWAY_TIMEOUT_SECONDS)
    assert {call.gateway for call in network.calls if call.since > known} == {1}


def test_only_gateway_is_asked_again_until_it_answers(monkeypatch):
    network, link = begin(
        monkeypatch, lambda *_: Fate(failure="call") if 0.5 < network.now < 20.0 else Fate()
    )
    play(network, link, 100)
    looks = [call.since for call in network.calls if call.chunk is None and 1.0 < call.since < 20.0]
    assert np.diff(looks) == pytest.approx(POLL_SECONDS, abs=0.01)
    assert network.now < 22.0
    assert 1 <= link.rows_lost <= IN_FLIGHT


def test_call_that_hangs_does_not_keep_from_asking_the_next_gateway(monkeypatch):
    """Of two calls to a gateway that dies, one is known to be lost at once, the other much later."""

    def fate(number, gateway):
        if gateway == 0 and number > 0:
            return Fate(0.0, 0.01 if number == 1 else NEVER, failure="call")
        return Fate()

    network, link = begin(monkeypatch, fate, 2)
    assert link.has_room(WAIT)
    link.send(chunk_of(0))
    link.send(chunk_of(1))
    assert link.has_room(300.0)
    assert network.now < 2 * POLL_SECONDS
    assert network.calls[-1].gateway == 1


def test_answer_that_never_comes_is_given_up_in_time_however_long_one_is_ready_to_wait(monkeypatch):
    network, link = begin(monkeypatch, lambda _, gateway: Fate(back=0.001 if gateway else NEVER), 2)
    assert link.has_room(60.0)
    assert GATEWAY_TIMEOUT_SECONDS <= network.now < GATEWAY_TIMEOUT_SECONDS + 0.1


@pytest.mark.parametrize("waits_for", ["room", "nothing"])
def test_stop_is_heard_soon_by_an_actor_that_waits(monkeypatch, waits_for):
    network, link = begin(monkeypatch, lambda *_: Fate(refused=True, wait=0.5))
    until(network, lambda: link.has_room(WAIT))
    if waits_for == "room":
        link.send(chunk_of(0))
        link.send(chunk_of(1))
    network.stopped_at = 5.03
    while not link.requested:
        link.has_room(0.01)
        network.pass_time(0.01)
    assert 5.03 <= network.now < 5.03 + POLL_SECONDS + 0.02


def test_error_that_is_no_loss_is_raised():
    failed = Future()
    failed.set_exception(ValueError("a bad chunk"))
    for ask in (ActorLink.pump, lambda link: link.has_room(0.1), lambda link: link.send(chunk_of(0))):
        link = ActorLink([lambda *_: failed], 0, 0, lambda error: isinstance(error, Lost))
        link.pump()  # the call
        with pytest.raises(ValueError, match="a bad chunk"):
            ask(link)
        assert link.rows_lost == 0


def test_actors_begin_with_different_gateways(monkeypatch):
    for actor in range(5):
        network, link = begin(monkeypatch, lambda *_: Fate(), 3, actor)
        play(network, link, 3)
        assert {call.gateway for call in network.calls} == {actor % 3}


def test_each_message_is_told_once_and_in_order(monkeypatch):
    network, link = begin(monkeypatch, lambda *_: Fate(refused=network.now < 3, wait=0.1))
    for number in range(20):
        link.messages.append(Note(str(number)))
        network.pass_time(0.07)
        link.pump()
        if number in (3, 8):
            link.send(chunk_of(number))
    settle(network, link)
    told = [message.text for call in network.calls for message in call.report.messages]
    assert told == [str(number) for number in range(20)]
