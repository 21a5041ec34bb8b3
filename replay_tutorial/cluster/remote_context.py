"""The ends of an actor on another host: the protocols of `apex.context`, as far as an actor needs them.

An actor inserts rows, pulls parameters, and asks how far the learner is and whether the run is over. It asks
often; what it is answered is what the last reply of a gateway said.

Left out: everything that learner and evaluator do, whose host has the real ones.
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

SEND_SECONDS = 0.05  # between two chunks of an actor, at least

# Follows a reference that a gateway gave out; None if what it names is gone.
Fetch = Callable[[Any], NDArray[np.float32] | None]


class RemoteReplay:
    """Takes rows, and sends them on, a moment's rows in one chunk: a call costs the same for few or many.

    Args:
        link: The way to the gateways.
        chunk_format: Of the run.
        most_rows: Of a chunk that is not one `insert` alone; the limiter admits all of a chunk or none.
    """

    def __init__(self, link: ActorLink, chunk_format: ChunkFormat, most_rows: int) -> None:
        self.link = link
        self.format = chunk_format
        self.most_rows = most_rows
        self._kept: list[dict[str, NDArray[Any]]] = []
        self._sent = 0.0  # when, by time.monotonic()

    def insert(self, rows: Mapping[str, Any], priorities: NDArray[np.float32], timeout: float) -> bool:
        """Take rows, as `Replay.insert` does; True says that they go their way, not that they arrived."""
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
    """The parameters of the last reply."""

    def __init__(self, link: ActorLink, fetch: Fetch) -> None:
        self.link = link
        self.fetch = fetch

    def pull(self, known_version: int = 0) -> Published | None:
        """Return newer parameters, as `Parameters.pull` does; if they can't be had, there are none yet."""
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
        # What comes from another process is read-only, and torch takes only what it may write to.
        return Published(newest.version, newest.update, np.array(parameters))


class RemoteStatus:
    """What the last reply said: an actor's `RunCounters` and `StopFlag`."""

    def __init__(self, link: ActorLink) -> None:
        self.link = link

    @property
    def updates(self) -> int:
        """Updates of the learner."""
        return self.link.updates

    @property
    def requested(self) -> bool:
        """Whether the run is over."""
        return self.link.stopped


def remote_context(config: Config, spaces: Spaces, link: ActorLink, fetch: Fetch) -> Context:
    """Return what an actor on another host is given.

    Args:
        config: Of the run.
        spaces: Of its environment.
        link: The way to the gateways.
        fetch: Follows the references in replies.
    """
    news = RemoteStatus(link)
    return Context(
        config,
        spaces,
        cast(Replay, RemoteReplay(link, ChunkFormat(config, spaces), config.slack // 2)),
        cast(Parameters, RemoteParameters(link, fetch)),
        cast(RunCounters, news),
        cast(StopFlag, news),
        send_message=link.messages.append,
    )
