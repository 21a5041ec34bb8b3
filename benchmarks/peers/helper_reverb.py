"""Reverb in a helper process: rows for the buffer benchmarks, trajectories for the table benchmark.

Rows are added and sampled in two ways each. Trajectories use Reverb's fastest calls: a `TrajectoryWriter`
whose `flush` allows 20 items in flight, and a `TrajectoryDataset` that prefetches three batches.
"""

import importlib
import importlib.metadata
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.peers.helper_program import Calls, main

VERSION = importlib.metadata.version("dm-reverb")
ROWS = "rows"  # name of the table of rows
PREFETCHED = 3  # batches of a trajectory dataset

reverb: Any = importlib.import_module("reverb")
tensorflow: Any = importlib.import_module("tensorflow")


class Rows:
    """A server with a full table of single rows."""

    def __init__(self, capacity: int, alpha: float, fields: dict[str, int]) -> None:
        """Create the server, with a uniform table if `alpha` is 0, and fill the table with one writer."""
        selectors, limiters = reverb.selectors, reverb.rate_limiters
        draw = selectors.Prioritized(alpha) if alpha else selectors.Uniform()
        table = reverb.Table(ROWS, draw, selectors.Fifo(), capacity, limiters.MinSize(1))
        self.server: Any = reverb.Server([table])
        self.client: Any = reverb.Client(f"localhost:{self.server.port}")
        rng = np.random.default_rng(0)
        self.row = {name: rng.random(shape, dtype=np.float32) for name, shape in fields.items()}
        self.write(rng.exponential(size=capacity).tolist())

    def description(self) -> dict[str, Any]:
        """Return the description for the first response, which is empty."""
        return {}

    def write(self, priorities: Sequence[float]) -> None:
        """Add rows with a writer."""
        with self.client.writer(max_sequence_length=1) as writer:
            for priority in priorities:
                writer.append(self.row)
                writer.create_item(ROWS, 1, priority)

    def insert(self, count: int) -> None:
        """Add rows with `Client.insert`."""
        for _ in range(count):
            self.client.insert(self.row, {ROWS: 1.0})

    def calls(self, do: str, size: int) -> Any:
        """Return calls of `do` ("insert", "writer", "sample" or "dataset") with `size` rows."""
        if do == "insert":
            return Calls(lambda: self.insert(size))
        if do == "writer":
            return Calls(lambda: self.write([1.0] * size))
        if do == "sample":
            return Calls(lambda: list(self.client.sample(ROWS, num_samples=size)))
        dataset = reverb.TimestepDataset(  # as in Reverb's documentation
            server_address=f"localhost:{self.server.port}",
            table=ROWS,
            dtypes={name: tensorflow.float32 for name in self.row},
            shapes={name: tensorflow.TensorShape(value.shape) for name, value in self.row.items()},
            max_in_flight_samples_per_worker=2 * size,
        )
        batches = iter(dataset.batch(size))
        return Calls(lambda: next(batches), queued=True)


class ReverbTable:
    """A table of trajectories and a client that calls it."""

    queued = flushes = True  # batches are prefetched, and `flush` limits the items in flight

    def __init__(self, address: str, name: str, step: dict[str, Any], server: Any = None) -> None:
        self.address, self.name, self.step, self.server = address, name, step, server
        self.client: Any = reverb.Client(address)

    def trajectory_writer(self) -> Any:
        """Return a new trajectory writer."""
        return self.client.trajectory_writer(num_keep_alive_refs=2)

    def sampler(self, size: int, timeout: float | None = None) -> Callable[[], object]:
        """Return a function that samples a batch, or returns None after `timeout` seconds without items."""
        return self.prefetching_sampler(size, PREFETCHED, timeout)

    def prefetching_sampler(
        self, size: int, batches: int, timeout: float | None = None
    ) -> Callable[[], object]:
        """Return a function that returns the next of a number of batches in flight."""
        dataset = reverb.TrajectoryDataset(
            server_address=self.address,
            table=self.name,
            dtypes={name: tensorflow.float32 for name in self.step},
            shapes={name: tensorflow.TensorShape([2, *value.shape]) for name, value in self.step.items()},
            max_in_flight_samples_per_worker=batches * size,
            rate_limiter_timeout_ms=-1 if timeout is None else int(1000 * timeout),
        )
        sampled = iter(dataset.batch(size))
        return lambda: next(sampled, None)

    def updater(self, size: int, priorities: Sequence[float]) -> Callable[[], object]:
        """Return a function that updates the priorities of `size` items, to another value in each call."""
        keys = [sample[0].info.key for sample in self.client.sample(self.name, size)]
        updates = itertools.cycle([dict.fromkeys(keys, priority) for priority in priorities])
        return lambda: self.client.mutate_priorities(self.name, updates=next(updates))

    def counts(self) -> tuple[int, int]:
        """Return the numbers of inserted and sampled items."""
        limiter = self.client.server_info()[self.name].rate_limiter_info
        return limiter.insert_stats.completed, limiter.sample_stats.completed

    def close(self) -> None:
        """Stop the server."""
        if self.server is not None:
            self.server.stop()


def make(
    name: str, max_size: int, limit: tuple[float, int, float] | None, step: dict[str, Any], serve: str
) -> ReverbTable:
    """Create a server with one table; it chooses its port, so `serve` is ignored."""
    samplers = {"uniform": reverb.selectors.Uniform, "prioritized": lambda: reverb.selectors.Prioritized(0.6)}
    limiters = reverb.rate_limiters
    limiter = limiters.MinSize(1) if limit is None else limiters.SampleToInsertRatio(*limit)
    table = reverb.Table(name, samplers[name](), reverb.selectors.Fifo(), max_size, limiter)
    server = reverb.Server([table])
    return ReverbTable(f"localhost:{server.port}", name, step, server)


connect = ReverbTable
"""Connect to the server of another process."""

if __name__ == "__main__":
    main(sys.modules[__name__])
