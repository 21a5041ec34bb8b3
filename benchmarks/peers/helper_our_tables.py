"""Our tables in a helper process; the writer sends items in messages of twenty, and nothing is prefetched."""

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.peers.helper_program import IN_FLIGHT, main
from replay_tutorial import __version__, tables

VERSION = __version__
KEPT = 256  # extra capacity in steps, for writers and for items that are being removed


class OurTable:
    """A table and a client that calls it."""

    queued = flushes = False

    def __init__(
        self, server: tables.Server | tables.RemoteServer, name: str, endpoint: tables.Endpoint | None = None
    ) -> None:
        """Connect to a server in this or another process."""
        self.address = "" if endpoint is None else endpoint.address
        self.name, self.client = name, tables.Client(server)

    def trajectory_writer(self) -> tables.TrajectoryWriter:
        """Return a new trajectory writer."""
        return self.client.writer(num_keep_alive_refs=2, items_per_message=IN_FLIGHT)

    def sampler(self, size: int, timeout: float | None = None) -> Callable[[], object]:
        """Return a function that samples a batch, or returns None after `timeout` seconds without items."""

        def sample() -> object:
            try:
                return self.client.sample(self.name, size, timeout, partial=True)
            except TimeoutError:
                return None

        return sample

    def prefetching_sampler(self, size: int, batches: int) -> Callable[[], object]:
        """Return a function that returns the next of a number of batches in flight."""
        sampled = iter(
            tables.TrajectoryDataset(self.client, self.name, size, in_flight=batches, workers=batches)
        )
        return lambda: next(sampled)

    def updater(self, size: int, priorities: Sequence[float]) -> Callable[[], object]:
        """Return a function that updates the priorities of `size` items, to another value in each call."""
        keys = self.client.sample(self.name, size).info.keys
        arrays = itertools.cycle([np.full(size, priority) for priority in priorities])
        return lambda: self.client.mutate_priorities(self.name, (keys, next(arrays)))

    def counts(self) -> tuple[int, int]:
        """Return the numbers of inserted and sampled items."""
        info = self.client.info()[self.name]
        return info.inserts, info.samples

    def close(self) -> None:
        """Close the server, or the connection to it."""
        self.client.server.close()


def make(
    name: str, max_size: int, limit: tuple[float, int, float] | None, step: dict[str, Any], serve: str
) -> OurTable:
    """Create a server with one table; `serve` is a socket path for other processes, or ""."""
    described = tables.Table(
        name,
        sampler={"uniform": tables.Uniform(), "prioritized": tables.Prioritized(0.6)}[name],
        remover=tables.Fifo(),
        max_size=max_size,
        rate_limiter=tables.MinSize(1) if limit is None else tables.SampleToInsertRatio(*limit),
    )
    columns = {field: {"shape": value.shape} for field, value in step.items()}
    server = tables.Server([described], columns, max_size + KEPT)
    return OurTable(server, name, tables.Endpoint(server, serve) if serve else None)


def connect(address: str, name: str, step: dict[str, Any]) -> OurTable:
    """Connect to the server of another process."""
    return OurTable(tables.RemoteServer(address), name)


if __name__ == "__main__":
    main(sys.modules[__name__])
