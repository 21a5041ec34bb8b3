"""The link of an actor whose rows go to shards: the limiter is still asked at a gateway.

    chunk ──▶ gateway: may so many rows come? ── taken ──▶ a shard, in turns ── stored ──▶ each later report

Rows count when a shard has stored them. So nothing is counted that got lost, and the price is that all actors
may be let in before any of their rows counts: the error ends above the limiter's band by two sends of each
actor at most, and two more for each shard that is silent. The next ones wait until it is inside again.

A shard that owes an answer is passed over, as long as another doesn't. One that has owed it for long is
silent: it gets nothing more, and what it has holds up nothing else. Its answer counts whenever it comes; Ray
says when there will be none. One that is being filled takes nothing, and the chunk goes on to another.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from replay_tutorial.cluster.actor_link import IN_FLIGHT, ActorLink, Call, Send
from replay_tutorial.cluster.chunk import Chunk
from replay_tutorial.cluster.gateway import Reply, Report

PAUSE_SECONDS = 0.05  # after a shard took nothing
SILENT_SECONDS = 0.5  # that a shard may owe an answer, until it is silent

Add = Callable[[Chunk], Future[int]]  # a chunk → how many of its rows were stored


class ShardedActorLink(ActorLink):
    """Sends the rows to shards, and their count to gateways; a shard's calls have turns below 0.

    Args:
        gateways: As for `ActorLink`.
        actor: As for `ActorLink`; it begins with another shard than the actor before it, too.
        life: As for `ActorLink`.
        is_lost: As for `ActorLink`.
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
        self.rows_stored = 0  # reported with each call, for any of them may be lost
        self._next_shard = actor
        self._silent: set[int] = set()  # turns of shards that were late or lost a call, and nothing since

    def _ask(self, send: Send, chunk: Chunk | None, version: int, report: Report) -> Future[Reply]:
        """Ask a gateway for room, and report what was stored."""
        count = None if chunk is None else len(chunk.records)
        return send(count, version, report._replace(rows_stored=self.rows_stored))

    def _takes_place(self, call: Call) -> bool:
        return call.turn not in self._silent and super()._takes_place(call)

    def _patience(self, call: Call) -> float:
        if call.turn >= 0:
            return super()._patience(call)
        return math.inf if call.turn in self._silent else SILENT_SECONDS

    def _give_up(self, call: Call) -> None:
        if call.turn >= 0:
            super()._give_up(call)
        else:
            self._silent.add(call.turn)

    def _take_in(self, call: Call, now: float) -> None:
        error, chunk = call.answer.exception(), call.chunk
        if call.turn >= 0:
            super()._take_in(call, now)
            if chunk is not None and error is None and call.answer.result().taken:
                self._add(chunk, now)
        elif chunk is not None and error is None:
            self._silent.discard(call.turn)
            stored: int = call.answer.result()
            self.rows_stored += stored
            if not stored:
                self._keep(chunk, now)
        elif error is not None and not self.is_lost(error):
            raise error
        else:
            self._silent.add(call.turn)
            self._lose(call)

    def _lose(self, call: Call) -> None:
        if call.turn >= 0 and call.chunk is not None:  # only the question is lost: it may be asked again
            self._waiting.appendleft(call.chunk)
            call = call._replace(chunk=None)
        super()._lose(call)

    def _may_send(self) -> bool:
        asked = sum(call.turn >= 0 for call in self._open)
        most = 1 if self._held_back else IN_FLIGHT
        return self.answers and bool(self._waiting) and asked < most and bool(self._takers())

    def _takers(self) -> list[int]:
        """Return the turns of shards that may get a chunk, those that owe an answer last."""
        count, owing = len(self.shards), {call.turn for call in self._open}
        turns = [-1 - (self._next_shard + step) % count for step in range(count)]
        return sorted((t for t in turns if t not in owing or t not in self._silent), key=owing.__contains__)

    def _add(self, chunk: Chunk, now: float) -> None:
        """Send a chunk to the next shard; past those that can't be called."""
        for turn in self._takers():
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
