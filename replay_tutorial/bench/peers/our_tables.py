"""Our tables, called from a helper process: items travel in messages of twenty, all else has no queue."""

import importlib.metadata
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.bench.peers.program import ON_THEIR_WAY
from replay_tutorial.tables import (
    Client,
    Endpoint,
    Fifo,
    MinSize,
    Prioritized,
    RemoteServer,
    SampleToInsertRatio,
    Server,
    Table,
    TrajectoryWriter,
    Uniform,
)
from replay_tutorial.tables.remote.local_socket import read_key

KEPT = 256  # steps that writers and items that leave may hold beside those of the table


def version() -> str:
    """Return that of this package."""
    return importlib.metadata.version("replay_tutorial")


class OurTable:
    """One table, and the calls of its client."""

    queued = flushes = False

    def __init__(self, server: Server | RemoteServer, name: str, endpoint: Endpoint | None = None) -> None:
        """Call a server, here or in another process."""
        self.address = "" if endpoint is None else endpoint.address
        self.name, self.client = name, Client(server)

    def trajectory_writer(self) -> TrajectoryWriter:
        """Return a writer of its own episode."""
        return self.client.writer(num_keep_alive_refs=2, max_in_flight_items=ON_THEIR_WAY)

    def sampler(self, size: int, timeout: float | None = None) -> Callable[[], object]:
        """Return what draws a batch; None when none has come for so many seconds."""

        def sample() -> object:
            try:
                return self.client.sample(self.name, size, timeout, partial=True)
            except TimeoutError:
                return None

        return sample

    def updater(self, size: int, priorities: Sequence[float]) -> Callable[[], object]:
        """Return what gives this many items one of the priorities after the other."""
        keys = self.client.sample(self.name, size).info.keys
        arrays = itertools.cycle([np.full(size, priority) for priority in priorities])
        return lambda: self.client.mutate_priorities(self.name, (keys, next(arrays)))

    def counts(self) -> tuple[int, int]:
        """Return how many items have been inserted and sampled."""
        info = self.client.info()[self.name]
        return info.inserts, info.samples

    def close(self) -> None:
        """End the server, or the connection to it."""
        self.client.server.close()


def make(
    name: str, max_size: int, limit: tuple[float, int, float] | None, step: dict[str, Any], serve: str
) -> OurTable:
    """Make a server with one table; let others call it if there is an address to listen at."""
    described = Table(
        name,
        sampler={"uniform": Uniform(), "prioritized": Prioritized(0.6)}[name],
        remover=Fifo(),
        max_size=max_size,
        rate_limiter=MinSize(1) if limit is None else SampleToInsertRatio(*limit),
    )
    env_dict = {field: {"shape": value.shape} for field, value in step.items()}
    server = Server([described], env_dict, max_size + KEPT)
    return OurTable(server, name, Endpoint(server, serve, read_key()) if serve else None)


def connect(address: str, name: str, step: dict[str, Any]) -> OurTable:
    """Call the server of another process."""
    return OurTable(RemoteServer(address), name)
