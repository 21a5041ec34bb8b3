"""The link between an actor and the gateways.

Up to two chunks are in flight, so that the actor doesn't wait for each reply. A chunk is delivered at most
once: if no reply arrives, its rows may or may not have been inserted, so they are dropped and counted. A lost
row costs little; a duplicated row would be sampled twice as often. Only chunks that a gateway has refused are
sent again, after the delay that the gateway requested. After a loss, the actor polls the next gateway, and
sends rows only once that gateway has replied.

The transport is not part of this module: it needs only functions that return a Future.
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

IN_FLIGHT = 2  # maximum number of chunks sent or refused
POLL_SECONDS = 0.5  # interval at which an actor without rows to send polls the gateway
GATEWAY_TIMEOUT_SECONDS = 10.0  # timeout of a call

Send = Callable[[Any, int, Report], Future[Reply]]  # chunk or None, version of the parameters, report


class Call(NamedTuple):
    """A call in flight."""

    answer: Future[Any]
    chunk: Chunk | None
    since: float  # time.monotonic()
    turn: int  # `ActorLink.turn` when the call was made


class ActorLink:
    """Sends an actor's chunks, and keeps the newest reply; actors start with different gateways.

    `gateways` has a function for each gateway that calls it. `is_lost` returns whether an exception means
    that the call was lost, not that it failed.
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
        self.turn = actor  # modulo the number of gateways, it selects one; a loss increments it
        self.gateway_replied = False  # whether the gateway has replied in this turn
        # From the last replies, under the names of `RunCounters` and `StopFlag`:
        self.updates = 0
        self.requested = False
        self.version = 0  # of the actor's parameters
        self.newest: ParametersReference | None = None  # newer parameters, not fetched yet
        self.rows_lost = 0
        self.messages: list[Message] = []
        self._in_flight: list[Call] = []
        self._queued: deque[Chunk] = deque()
        self._not_before = 0.0
        self._was_delayed = False  # whether the limiter delayed the last chunk
        self._last_call = -POLL_SECONDS

    def has_room(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until another chunk may be sent; return whether it may."""
        deadline = time.monotonic() + timeout
        while True:
            self.pump()
            sent = sum(call.chunk is not None for call in self._in_flight)
            if len(self._queued) + sent < IN_FLIGHT and self.gateway_replied:
                return True
            left = deadline - time.monotonic()
            if left <= 0.0:
                return False
            self._wait(left)

    def send(self, chunk: Chunk) -> None:
        """Queue a chunk, which is sent as soon as the gateway accepts it."""
        self._queued.append(chunk)
        self.pump()

    def pump(self) -> None:
        """Handle the replies that have arrived, and make the calls that are due.

        `pump`, and `has_room` and `send`, which call it, raise the exception of a call that failed.
        """
        now = time.monotonic()
        for call in list(self._in_flight):
            if call.answer.done():
                self._in_flight.remove(call)
                self._handle_answer(call, now)
            elif now - call.since >= GATEWAY_TIMEOUT_SECONDS:
                self._in_flight.remove(call)
                self._drop(call)
        while self._may_send() and now >= self._not_before:
            self._call(self._queued.popleft(), now)
        if not self._is_polling() and now - self._last_call >= POLL_SECONDS:
            self._call(None, now)

    def _may_send(self) -> bool:
        """Return whether a queued chunk may be sent, apart from the delay that the gateway requested."""
        # While the limiter delays this actor, the second of two chunks in flight would be refused.
        most = 1 if self._was_delayed else IN_FLIGHT
        return self.gateway_replied and bool(self._queued) and len(self._in_flight) < most

    def _is_polling(self) -> bool:
        """Return whether a call to the current gateway is in flight; those of earlier turns don't count."""
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
        self.gateway_replied |= call.turn == self.turn
        self.requested |= reply.stopped
        self.updates = max(self.updates, reply.updates)
        known = self.version if self.newest is None else self.newest.version
        if reply.newest is not None and reply.newest.version > known:
            self.newest = reply.newest
        if call.chunk is not None:
            self._not_before, self._was_delayed = now + reply.wait, reply.wait > 0.0
            if not reply.accepted:
                self._queued.appendleft(call.chunk)

    def _drop(self, call: Call) -> None:
        if call.chunk is not None:
            self.rows_lost += len(call.chunk.records)
        if call.turn == self.turn:  # two lost calls to one gateway must advance the turn only once
            self.turn += 1
            self.gateway_replied = False

    def _wait(self, seconds: float) -> None:
        """Block until a reply arrives, or until a call is due."""
        now = time.monotonic()
        due = [call.since + GATEWAY_TIMEOUT_SECONDS for call in self._in_flight]
        due += [] if self._is_polling() else [self._last_call + POLL_SECONDS]
        due += [self._not_before] if self._may_send() else []
        seconds = max(0.0, min(now + seconds, *due) - now)
        if self._in_flight:
            futures.wait([call.answer for call in self._in_flight], seconds, futures.FIRST_COMPLETED)
        else:
            time.sleep(seconds)
