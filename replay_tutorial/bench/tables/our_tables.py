"""Our side: how trajectories are written, batches drawn and priorities updated.

Items travel in messages of twenty. Every other call has done its work when it returns.

Left out: what is called ahead.
"""

import importlib.metadata
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

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

ON_THEIR_WAY = 20  # items of a writer, at most
KEPT = 256  # steps that writers and items that leave may hold beside those of the table


def version() -> str:
    """Return that of this package."""
    return importlib.metadata.version("replay_tutorial")


class TimedServer(Server):
    """A server that knows how long its callers have stood in a line.

    Attributes:
        waited: Seconds, by side.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Begin with no seconds."""
        self.waited = {"insert": 0.0, "sample": 0.0}
        super().__init__(*arguments, **options)

    def _wait(self, side: str, *arguments: Any, **options: Any) -> None:
        start = time.perf_counter()
        try:
            super()._wait(side, *arguments, **options)
        finally:
            self.waited[side] += time.perf_counter() - start


class Writer:
    """Writes steps, and an item with each but the first."""

    def __init__(self, writer: TrajectoryWriter, table: str, steps: list[dict[str, Any]]) -> None:
        """Begin an episode."""
        self.writer = writer
        self.table = table
        self.steps = itertools.cycle(steps)
        self.priorities = itertools.cycle([0.5, 1.0, 1.5])
        writer.append(next(self.steps))

    def step(self) -> None:
        """Append a step, and make an item of it and the one before."""
        writer = self.writer
        writer.append(next(self.steps))
        history = writer.history
        trajectory = {
            "obs": history["obs"][-2:],
            "act": history["act"][-2:],
            "rew": history["rew"][-2:],
            "done": history["done"][-2:],
        }
        writer.create_item(self.table, next(self.priorities), trajectory)

    def flush(self) -> None:
        """Wait until all items are in."""
        self.writer.flush()


class OurTable:
    """One table, and the calls of its client."""

    queued = False

    def __init__(
        self,
        server: Server | RemoteServer,
        table: str,
        steps: list[dict[str, Any]],
        endpoint: Endpoint | None = None,
    ) -> None:
        """Call a server, here or in another process."""
        self.address = "" if endpoint is None else endpoint.address
        self.table = table
        self.steps = steps
        self.client = Client(server)

    def writer(self) -> Writer:
        """Return a writer of its own episode."""
        writer = self.client.writer(num_keep_alive_refs=2, max_in_flight_items=ON_THEIR_WAY)
        return Writer(writer, self.table, self.steps)

    def sampler(self, size: int, timeout: float | None = None) -> Callable[[], object]:
        """Return what draws a batch; None when none has come for so many seconds."""

        def sample() -> object:
            try:
                return self.client.sample(self.table, size, timeout, partial=True)
            except TimeoutError:
                return None

        return sample

    def updater(self, size: int) -> Callable[[], object]:
        """Return what gives this many items new priorities."""
        keys = self.client.sample(self.table, size).info.keys
        priorities = itertools.cycle([np.full(size, p) for p in (0.5, 1.0, 1.5)])
        return lambda: self.client.mutate_priorities(self.table, (keys, next(priorities)))

    def counts(self) -> tuple[int, int]:
        """Return how many items have been inserted and sampled."""
        info = self.client.info()[self.table]
        return info.inserts, info.samples

    def waited(self) -> tuple[float, float]:
        """Return the seconds that inserts and samples have waited for each other."""
        server = self.client.server
        assert isinstance(server, TimedServer)
        return server.waited["insert"], server.waited["sample"]

    def close(self) -> None:
        """End the server, or the connection to it."""
        self.client.server.close()


def make(
    table: str, max_size: int, limit: tuple[float, int, float] | None, steps: list[dict[str, Any]], serve: str
) -> OurTable:
    """Make a server with one table; let others call it if there is an address to listen at."""
    described = Table(
        table,
        sampler={"uniform": Uniform(), "prioritized": Prioritized(0.6)}[table],
        remover=Fifo(),
        max_size=max_size,
        rate_limiter=MinSize(1) if limit is None else SampleToInsertRatio(*limit),
    )
    env_dict = {name: {"shape": value.shape} for name, value in steps[0].items()}
    server = TimedServer([described], env_dict, max_size + KEPT)
    endpoint = Endpoint(server, serve, read_key()) if serve else None
    return OurTable(server, table, steps, endpoint)


def connect(address: str, table: str, steps: list[dict[str, Any]]) -> OurTable:
    """Call the server of another process."""
    return OurTable(RemoteServer(address), table, steps)
