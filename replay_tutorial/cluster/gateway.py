"""The gateway: where rows from other hosts enter the shared memory of the learner's host.

It writes what arrives and answers with what an actor has to know: whether the rows were taken, when to send
the next ones, whether the run is over, and newer parameters if there are any. It never waits: for the limiter
the actor waits, on its own host, as long as it is told to. The replay is a ring without locks, so a gateway
may be killed at any instruction; the next one opens the same memory.

Left out: what carries the calls (`workers`). A plain object answers them.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from replay_tutorial.apex.context import Context
from replay_tutorial.apex.messages import Message
from replay_tutorial.cluster.chunk import Chunk, ChunkFormat
from replay_tutorial.shared.limiter import SamplesPerInsert

# Seconds that an actor is asked to wait for the limiter, at least and at most: then it looks whether to stop.
SHORTEST_WAIT, LONGEST_WAIT = 0.005, 0.5
RATE_SECONDS = 0.2  # over which the learner's pace is measured

Share = Callable[[NDArray[Any]], Any]  # parameters → a reference that any host can follow


class Report(NamedTuple):
    """What an actor says of itself with each call."""

    actor: int
    restart_count: int
    rows_lost: int  # in this life: sent, and never answered
    messages: tuple[Message, ...]  # since the last call


class ParametersReference(NamedTuple):
    """The newest parameters, as a gateway passes them on."""

    version: int
    update: int  # that made them
    reference: Any  # made by `Share`


class Reply(NamedTuple):
    """What a gateway answers."""

    accepted: bool  # the rows; if not, they are the actor's to send again
    wait: float  # seconds until as many rows may be sent again; 0 if none came
    stopped: bool  # the run is over
    updates: int  # of the learner
    newest: ParametersReference | None  # if the actor has older ones


class PendingReports(NamedTuple):
    """What actors have told since the driver last asked."""

    messages: list[Message]
    rows_lost: dict[tuple[int, int], int]  # by actor and life; a life's number only grows
    places: dict[tuple[int, int], str]  # the host that a life begins on, likewise


class Gateway:
    """One of the doors to the replay.

    Args:
        context: Of the run, in shared memory.
        limiter: That of its replay.
        share: Puts parameters where other hosts can read them.
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
        self._promised = 0.0  # when the actor that came last may send again

    def send(self, chunk: Chunk | None, known_version: int, report: Report) -> Reply:
        """Take rows in, if the limiter allows them, and answer.

        Args:
            chunk: The rows; None to ask only.
            known_version: Of the parameters that the actor has.
            report: What it says of itself.

        Raises:
            ValueError: If the chunk is not of this run; nothing has changed then.
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

    def begin(self, actor: int, restart_count: int, host: str) -> None:
        """Note on which host a life begins: its first call with rows comes when its imports are done."""
        self.pending.places[actor, restart_count] = host

    def collect(self) -> PendingReports:
        """Return what actors have told since the last call."""
        told, self.pending = self.pending, PendingReports([], {}, {})
        return told

    def _seconds_until_room(self, count: int) -> float:
        """Return when the limiter will admit so many rows, by the pace at which the learner samples."""
        limiter = self.limiter
        (then, before), now, samples = self._measured, time.monotonic(), limiter.samples
        if now - then >= RATE_SECONDS:
            self.samples_a_second = (samples - before) / (now - then)
            self._measured = now, samples
        excess = limiter.error + count * limiter.samples_per_insert - limiter.error_buffer
        if excess <= 0:
            return 0.0
        pace = max(self.samples_a_second, 1.0)
        # The room that others wait for is theirs: if all came at once, one would be let in, again and again.
        moment = max(now + excess / pace, self._promised + count * limiter.samples_per_insert / pace)
        self._promised = min(max(moment, now + SHORTEST_WAIT), now + LONGEST_WAIT)
        return self._promised - now

    def _newer_than(self, version: int) -> ParametersReference | None:
        """Return the newest parameters if they are newer; each version is shared once."""
        known = 0 if self.newest is None else self.newest.version
        published = self.context.parameters.pull(known)
        if published is not None:
            self.newest = ParametersReference(
                published.version, published.update, self.share(published.parameters)
            )
        return self.newest if self.newest is not None and self.newest.version > version else None
