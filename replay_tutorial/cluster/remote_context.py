"""The context of an actor on another host: the part of `apex.context` that an actor uses.

An actor inserts rows, pulls parameters, and reads the learner's progress and the stop flag. Because it reads
these values often, they are those of the gateway's last reply. Learner and evaluator use the real context on
their host.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, Parameters, Published, Replay, RunCounters, StopFlag
from replay_tutorial.cluster.actor_link import ActorLink
from replay_tutorial.cluster.chunk import PRIORITIES, ChunkFormat

SEND_SECONDS = 0.05  # minimum time between two chunks of an actor

# Resolves a reference from a gateway; returns None if the object no longer exists.
Fetch = Callable[[Any], NDArray[np.float32] | None]


class RemoteReplay:
    """Collects rows for some milliseconds and sends them in one chunk, because each call has a fixed cost.

    A chunk of several inserts has at most `most_rows`, because the limiter admits all of a chunk or none.
    """

    def __init__(self, link: ActorLink, chunk_format: ChunkFormat, most_rows: int) -> None:
        self.link = link
        self.format = chunk_format
        self.most_rows = most_rows
        self._kept: list[dict[str, NDArray[Any]]] = []
        self._sent = 0.0  # time of the last chunk, as in time.monotonic()

    def insert(self, rows: Mapping[str, Any], priorities: NDArray[np.float32], timeout: float) -> bool:
        """Queue rows, as `Replay.insert` does; True means that they are queued, not yet inserted."""
        if not self.link.has_room(timeout):
            return False
        now, count = time.monotonic(), len(priorities)
        if sum(len(part[PRIORITIES]) for part in self._kept) + count > self.most_rows:
            self._send(now)
        self._kept.append({**rows, PRIORITIES: priorities})
        if now - self._sent >= SEND_SECONDS:
            self._send(now)
        return True

    def _send(self, now: float) -> None:
        parts, self._kept = self._kept, []
        if parts:
            self._sent = now
            rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            self.link.send(self.format.pack(rows, rows.pop(PRIORITIES)))


class RemoteParameters:
    """The parameters that the last reply refers to."""

    def __init__(self, link: ActorLink, fetch: Fetch) -> None:
        self.link = link
        self.fetch = fetch

    def pull(self, known_version: int = 0) -> Published | None:
        """Return newer parameters, as `Parameters.pull` does; None also if they can't be fetched."""
        link = self.link
        link.version = known_version
        link.pump()
        newest, link.newest = link.newest, None
        if newest is None or newest.version <= known_version:
            return None
        parameters = self.fetch(newest.reference)
        if parameters is None:
            return None
        link.version = newest.version
        # Arrays from other processes are read-only, and torch requires writable ones.
        return Published(newest.version, newest.update, np.array(parameters))


def remote_context(config: Config, spaces: Spaces, link: ActorLink, fetch: Fetch) -> Context:
    """Return the context of an actor on another host; `fetch` resolves the references in replies."""
    return Context(
        config,
        spaces,
        cast(Replay, RemoteReplay(link, ChunkFormat(config, spaces), config.slack // 2)),
        cast(Parameters, RemoteParameters(link, fetch)),
        cast(RunCounters, link),
        cast(StopFlag, link),
        send_message=link.messages.append,
    )
