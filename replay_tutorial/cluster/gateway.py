"""The gateway: inserts rows from other hosts into the shared memory of the learner's host.

Each reply states whether the actor's rows were inserted, when to send the next ones, and whether the run is
over. It contains newer parameters if there are any. A gateway never blocks: if the limiter doesn't admit
rows, the actor waits on its own host. The replay is a lock-free ring, so a gateway can be killed at any
instruction; a new one opens the same memory.

The transport is in `workers` and `ray_processes`; a gateway itself is a plain object.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from replay_tutorial.apex.context import Context
from replay_tutorial.apex.messages import Message
from replay_tutorial.cluster.chunk import Chunk, ChunkFormat
from replay_tutorial.shared.limiter import SamplesPerInsert

# Minimum and maximum seconds that an actor is asked to wait for the limiter before it polls again.
SHORTEST_WAIT, LONGEST_WAIT = 0.005, 0.5
RATE_SECONDS = 0.2  # over which the learner's sampling rate is measured

Share = Callable[[NDArray[Any]], Any]  # parameters → a reference that any host can resolve


class Report(NamedTuple):
    """The report that an actor sends with each call."""

    actor: int
    restart_count: int
    rows_lost: int  # sent by this process and never acknowledged
    messages: tuple[Message, ...]  # since the last call


class ParametersReference(NamedTuple):
    """A reference to the newest parameters."""

    version: int
    update: int  # the update that produced them
    reference: Any  # returned by `Share`


class Reply(NamedTuple):
    """The reply of a gateway."""

    accepted: bool  # whether the rows were inserted; if not, the actor sends them again
    wait: float  # seconds until the next chunk of this size may be sent; 0 without rows
    stopped: bool  # whether the run is over
    updates: int  # updates of the learner
    newest: ParametersReference | None  # None if the actor has the newest parameters


class PendingReports(NamedTuple):
    """Reports of actors that the driver has not collected yet."""

    messages: list[Message]
    rows_lost: dict[tuple[int, int], int]  # (actor, restart_count) → rows; the numbers only grow
    hosts: dict[tuple[int, int], str]  # (actor, restart_count) → host that it starts on


class Gateway:
    """Inserts chunks into the replay in shared memory and replies to actors.

    `limiter` is that of the replay; `share` makes parameters available to other hosts.
    """

    def __init__(self, context: Context, limiter: SamplesPerInsert, share: Share) -> None:
        self.context = context
        self.limiter = limiter
        self.share = share
        self.format = ChunkFormat(context.config, context.spaces)
        self.newest: ParametersReference | None = None
        self.pending = PendingReports([], {}, {})
        self.samples_a_second = 0.0
        self._measured = time.monotonic(), limiter.samples
        self._next_slot = 0.0  # time until which admissions have been scheduled

    def send(self, chunk: Chunk | None, known_version: int, report: Report) -> Reply:
        """Insert rows if the limiter admits them, and reply; with None instead of a chunk, only reply.

        Raise ValueError if the chunk doesn't belong to this run; nothing has been changed then.
        """
        taken, wait = True, 0.0
        if chunk is not None:
            rows, priorities = self.format.unpack(chunk)
            taken = self.context.replay.insert(rows, priorities, timeout=0.0)
            wait = self._seconds_until_room(len(priorities))
        self.pending.messages.extend(report.messages)
        self.pending.rows_lost[report.actor, report.restart_count] = report.rows_lost
        return Reply(
            accepted=taken,
            wait=wait,
            stopped=self.context.stop.requested,
            updates=self.context.counters.updates,
            newest=self._newer_than(known_version),
        )

    def record_start(self, actor: int, restart_count: int, host: str) -> None:
        """Record the host of an actor that starts; its first rows arrive only after its imports."""
        self.pending.hosts[actor, restart_count] = host

    def collect(self) -> PendingReports:
        """Return the reports since the last call."""
        pending, self.pending = self.pending, PendingReports([], {}, {})
        return pending

    def _seconds_until_room(self, count: int) -> float:
        """Return the time at which the limiter will admit `count` rows, given the learner's sampling rate."""
        limiter = self.limiter
        (then, before), now, samples = self._measured, time.monotonic(), limiter.samples
        if now - then >= RATE_SECONDS:
            self.samples_a_second = (samples - before) / (now - then)
            self._measured = now, samples
        excess = limiter.error + count * limiter.samples_per_insert - limiter.error_buffer
        if excess <= 0:
            return 0.0
        rate = max(self.samples_a_second, 1.0)
        # Each delayed actor gets a later time than the previous one. With equal times, all would poll at once
        # and only one would be admitted.
        moment = max(now + excess / rate, self._next_slot + count * limiter.samples_per_insert / rate)
        self._next_slot = min(max(moment, now + SHORTEST_WAIT), now + LONGEST_WAIT)
        return self._next_slot - now

    def _newer_than(self, version: int) -> ParametersReference | None:
        """Return the newest parameters if they are newer than `version`; each version is shared once."""
        known = 0 if self.newest is None else self.newest.version
        published = self.context.parameters.pull(known)
        if published is not None:
            self.newest = ParametersReference(
                published.version, published.update, self.share(published.parameters)
            )
        return self.newest if self.newest is not None and self.newest.version > version else None
