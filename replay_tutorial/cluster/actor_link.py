"""The link: an actor's way to the gateways.

Two sends are on their way at a time, so that the actor plays while they travel. A send is made at most once:
if no answer comes, nobody knows whether the rows were taken, so they are dropped and counted, never sent
again; a row that is lost costs little, one that is there twice is sampled twice as often. Only rows that a
gateway has refused are sent again, when it said. After a loss the actor asks the next gateway, and sends rows
only when that has answered.

Left out: what carries the calls; a function that returns a Future is all that is needed.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from typing import Any, NamedTuple

from replay_tutorial.apex.messages import Message
from replay_tutorial.cluster.chunk import Chunk
from replay_tutorial.cluster.gateway import ParametersReference, Reply, Report

IN_FLIGHT = 2  # chunks that were sent or refused; more would only wait
POLL_SECONDS = 0.5  # after which an actor that has nothing to send asks for news
GATEWAY_ANSWER_SECONDS = 10.0  # after which an answer won't come any more

Send = Callable[[Any, int, Report], Future[Reply]]  # chunk or None, version of the parameters, report


class Call(NamedTuple):
    """A call on its way."""

    answer: Future[Any]
    chunk: Chunk | None
    since: float  # time.monotonic()
    turn: int  # of the gateway that was called


class ActorLink:
    """Sends chunks, and keeps the newest answer.

    Args:
        gateways: How to call each of them.
        actor: Number of the actor; it begins with another gateway than the actor before it.
        life: Which of its lives this is.
        is_lost: Whether an error says that the call did not get through, not that it was wrong.
    """

    def __init__(
        self,
        gateways: Sequence[Send],
        actor: int,
        restart_count: int,
        is_lost: Callable[[BaseException], bool],
    ) -> None:
        self.gateways = gateways
        self.actor, self.restart_count = actor, restart_count
        self.is_lost = is_lost
        self.turn = actor  # gateways take turns, a loss begins the next one
        self.answers = False  # whether the gateway has answered in this turn
        self.stopped = False
        self.updates = 0
        self.version = 0  # of the parameters that the actor has
        self.newest: ParametersReference | None = None  # newer ones, not fetched yet
        self.rows_lost = 0
        self.messages: list[Message] = []
        self._in_flight: list[Call] = []
        self._queued: deque[Chunk] = deque()
        self._not_before = 0.0
        self._held_back = False  # by the limiter, at the last answer
        self._last_call = -POLL_SECONDS

    def has_room(self, timeout: float) -> bool:
        """Return whether another chunk may be sent, after at most `timeout` seconds.

        Raises:
            Exception: What a gateway failed with.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.pump()
            sent = sum(call.chunk is not None for call in self._in_flight)
            if len(self._queued) + sent < IN_FLIGHT and self.answers:
                return True
            left = deadline - time.monotonic()
            if left <= 0.0:
                return False
            self._wait(left)

    def send(self, chunk: Chunk) -> None:
        """Send a chunk as soon as the gateway wants it."""
        self._queued.append(chunk)
        self.pump()

    def pump(self) -> None:
        """Take in what has come, and send what is due.

        Raises:
            Exception: What a gateway failed with.
        """
        now = time.monotonic()
        for call in list(self._in_flight):
            if call.answer.done():
                self._in_flight.remove(call)
                self._handle_answer(call, now)
            elif now - call.since >= GATEWAY_ANSWER_SECONDS:
                self._in_flight.remove(call)
                self._drop(call)
        while self._may_send() and now >= self._not_before:
            self._call(self._queued.popleft(), now)
        if not self._is_asking() and now - self._last_call >= POLL_SECONDS:
            self._call(None, now)

    def _may_send(self) -> bool:
        """Return whether a chunk waits, and only for its time."""
        # Of two chunks on their way the second would be refused: while the limiter rules, there is one.
        most = 1 if self._held_back else IN_FLIGHT
        return self.answers and bool(self._queued) and len(self._in_flight) < most

    def _is_asking(self) -> bool:
        """Return whether the gateway owes an answer; what those before it owe tells no news."""
        return any(call.turn == self.turn for call in self._in_flight)

    def _call(self, chunk: Chunk | None, now: float) -> None:
        report = Report(self.actor, self.restart_count, self.rows_lost, tuple(self.messages))
        self.messages.clear()
        answer = self.gateways[self.turn % len(self.gateways)](chunk, self.version, report)
        self._in_flight.append(Call(answer, chunk, now, self.turn))
        self._last_call = now

    def _handle_answer(self, call: Call, now: float) -> None:
        error = call.answer.exception()
        if error is not None:
            if not self.is_lost(error):
                raise error
            return self._drop(call)
        reply = call.answer.result()
        self.answers |= call.turn == self.turn
        self.stopped |= reply.stopped
        self.updates = max(self.updates, reply.updates)
        known = self.version if self.newest is None else self.newest.version
        if reply.newest is not None and reply.newest.version > known:
            self.newest = reply.newest
        if call.chunk is not None:
            self._not_before, self._held_back = now + reply.wait, reply.wait > 0.0
            if not reply.accepted:
                self._queued.appendleft(call.chunk)

    def _drop(self, call: Call) -> None:
        if call.chunk is not None:
            self.rows_lost += len(call.chunk.records)
        if call.turn == self.turn:  # two calls to one dead gateway would lead past the next one
            self.turn += 1
            self.answers = False

    def _wait(self, seconds: float) -> None:
        """Wait for an answer, or until something may be sent."""
        now = time.monotonic()
        due = [call.since + GATEWAY_ANSWER_SECONDS for call in self._in_flight]
        due += [] if self._is_asking() else [self._last_call + POLL_SECONDS]
        due += [self._not_before] if self._may_send() else []
        seconds = max(0.0, min(now + seconds, *due) - now)
        if self._in_flight:
            futures.wait([call.answer for call in self._in_flight], seconds, futures.FIRST_COMPLETED)
        else:
            time.sleep(seconds)
