"""The link of an actor whose rows go to shards: the limiter is still asked at a gateway.

    chunk ──▶ gateway: may so many rows come? ── taken ──▶ a shard, in turns ── stored ──▶ the next report

Rows count when a shard has stored them. So nothing is counted that got lost, and the price is that all actors
may be let in before any of their rows counts: the error ends above the limiter's band by two sends of each
actor at most. The next ones wait until it is inside again.

A shard that owes an answer is passed over, as long as another doesn't; one that is being filled from a
checkpoint takes nothing, and the chunk goes on to another.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from replay_tutorial.cluster.chunk import Chunk
from replay_tutorial.cluster.gateway import Reply, Report
from replay_tutorial.cluster.link import IN_FLIGHT, Call, Link, Send

PAUSE_SECONDS = 0.05  # after a shard took nothing

Add = Callable[[Chunk], Future[int]]  # a chunk → how many of its rows were stored


class ShardedLink(Link):
    """Sends the rows to shards, and their count to gateways; a shard's calls have turns below 0.

    Args:
        gateways: As for `Link`.
        actor: As for `Link`; it begins with another shard than the actor before it, too.
        life: As for `Link`.
        is_lost: As for `Link`.
        shards: How to add to each of them.
    """

    def __init__(
        self,
        gateways: Sequence[Send],
        actor: int,
        life: int,
        is_lost: Callable[[BaseException], bool],
        shards: Sequence[Add],
    ) -> None:
        super().__init__([partial(self._ask, send) for send in gateways], actor, life, is_lost)
        self.shards = shards
        self._next_shard = actor
        self._rows_stored = 0  # and not reported

    def _ask(self, send: Send, chunk: Chunk | None, version: int, report: Report) -> Future[Reply]:
        """Ask a gateway for room, and report what was stored."""
        stored, self._rows_stored = self._rows_stored, 0
        count = None if chunk is None else len(chunk.records)
        return send(count, version, report._replace(rows_stored=stored))

    def _take_in(self, call: Call, now: float) -> None:
        error, chunk = call.answer.exception(), call.chunk
        if call.turn >= 0:
            super()._take_in(call, now)
            if chunk is not None and error is None and call.answer.result().taken:
                self._add(chunk, now)
        elif chunk is not None and error is None:
            stored: int = call.answer.result()
            self._rows_stored += stored
            if stored:
                self.rows_lost += len(chunk.records) - stored
            else:
                self._keep(chunk, now)
        elif error is not None and not self.is_lost(error):
            raise error
        else:
            self._lose(call)

    def _lose(self, call: Call) -> None:
        if call.turn >= 0 and call.chunk is not None:  # only the question is lost: it may be asked again
            self._waiting.appendleft(call.chunk)
            call = call._replace(chunk=None)
        super()._lose(call)

    def _may_send(self) -> bool:
        # What a shard owes holds nobody back: it may be dead.
        asked = sum(call.turn >= 0 for call in self._open)
        return self.answers and bool(self._waiting) and asked < (1 if self._held_back else IN_FLIGHT)

    def _add(self, chunk: Chunk, now: float) -> None:
        """Send a chunk to the next shard; past those that owe an answer, and those that can't be called."""
        count = len(self.shards)
        owing = {call.turn for call in self._open}
        turns = [-1 - (self._next_shard + step) % count for step in range(count)]
        for turn in sorted(turns, key=owing.__contains__):
            answer = self.shards[-1 - turn](chunk)
            error = answer.exception() if answer.done() else None
            if error is None or not self.is_lost(error):
                self._next_shard = -turn
                self._open.append(Call(answer, chunk, now, turn))
                return
        self._keep(chunk, now)

    def _keep(self, chunk: Chunk, now: float) -> None:
        """Keep a chunk that no shard has, for a while."""
        self._waiting.appendleft(chunk)
        self._not_before = now + PAUSE_SECONDS
