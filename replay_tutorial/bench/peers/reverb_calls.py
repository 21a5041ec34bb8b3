"""Reverb, called from a helper process: rows for the buffers' benchmarks, trajectories for the tables'.

Its users have two ways to add rows and two to sample them. Trajectories take its fastest ways: a
`TrajectoryWriter` whose `flush` leaves 20 items on their way, and a `TrajectoryDataset` with three batches
ahead.

Left out: this package, which Reverb's Python doesn't have.
"""

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ROWS = "rows"  # the table of rows
AHEAD = 3  # batches of a dataset of trajectories

reverb: Any = importlib.import_module("reverb")
tensorflow: Any = importlib.import_module("tensorflow")
Calls: Any = importlib.import_module("program").Calls  # the script beside this one


def version() -> str:
    """Return that of Reverb."""
    metadata: Any = importlib.import_module("importlib.metadata")
    return str(metadata.version("dm-reverb"))


class Rows:
    """A server with a table of single rows, full."""

    def __init__(self, capacity: int, alpha: float, fields: dict[str, int]) -> None:
        """Make it, with a uniform table if alpha is 0, and fill it by one writer."""
        selectors, limiters = reverb.selectors, reverb.rate_limiters
        draw = selectors.Prioritized(alpha) if alpha else selectors.Uniform()
        table = reverb.Table(ROWS, draw, selectors.Fifo(), capacity, limiters.MinSize(1))
        self.server: Any = reverb.Server([table])
        self.client: Any = reverb.Client(f"localhost:{self.server.port}")
        rng = np.random.default_rng(0)
        self.row = {name: rng.random(shape, dtype=np.float32) for name, shape in fields.items()}
        self.write(rng.exponential(size=capacity).tolist())

    def made(self) -> dict[str, Any]:
        """Return what there is to know of it."""
        return {}

    def write(self, priorities: Sequence[float]) -> None:
        """Write rows by a writer."""
        with self.client.writer(max_sequence_length=1) as writer:
            for priority in priorities:
                writer.append(self.row)
                writer.create_item(ROWS, 1, priority)

    def insert(self, count: int) -> None:
        """Write rows by the client."""
        for _ in range(count):
            self.client.insert(self.row, {ROWS: 1.0})

    def calls(self, do: str, size: int) -> Any:
        """Return calls that add or sample this many rows in one of the four ways."""
        if do == "insert":
            return Calls(lambda: self.insert(size))
        if do == "writer":
            return Calls(lambda: self.write([1.0] * size))
        if do == "sample":
            return Calls(lambda: list(self.client.sample(ROWS, num_samples=size)))
        dataset = reverb.TimestepDataset(  # made as in the documentation
            server_address=f"localhost:{self.server.port}",
            table=ROWS,
            dtypes={name: tensorflow.float32 for name in self.row},
            shapes={name: tensorflow.TensorShape(value.shape) for name, value in self.row.items()},
            max_in_flight_samples_per_worker=2 * size,
        )
        batches = iter(dataset.batch(size))
        return Calls(lambda: next(batches), queued=True)


class ReverbTable:
    """A table of trajectories, and the calls of its client."""

    queued = flushes = True  # batches are drawn ahead, and a writer says how many items may be on their way

    def __init__(self, address: str, name: str, step: dict[str, Any], server: Any = None) -> None:
        """Call a server."""
        self.address, self.name, self.step, self.server = address, name, step, server
        self.client: Any = reverb.Client(address)

    def trajectory_writer(self) -> Any:
        """Return a writer of its own episode."""
        return self.client.trajectory_writer(num_keep_alive_refs=2)

    def sampler(self, size: int, timeout: float | None = None) -> Callable[[], object]:
        """Return what draws a batch; None when none has come for so many seconds."""
        dataset = reverb.TrajectoryDataset(
            server_address=self.address,
            table=self.name,
            dtypes={name: tensorflow.float32 for name in self.step},
            shapes={name: tensorflow.TensorShape([2, *value.shape]) for name, value in self.step.items()},
            max_in_flight_samples_per_worker=AHEAD * size,
            rate_limiter_timeout_ms=-1 if timeout is None else int(1000 * timeout),
        )
        batches = iter(dataset.batch(size))
        return lambda: next(batches, None)

    def updater(self, size: int, priorities: Sequence[float]) -> Callable[[], object]:
        """Return what gives this many items one of the priorities after the other."""
        keys = [sample[0].info.key for sample in self.client.sample(self.name, size)]
        updates = itertools.cycle([dict.fromkeys(keys, priority) for priority in priorities])
        return lambda: self.client.mutate_priorities(self.name, updates=next(updates))

    def counts(self) -> tuple[int, int]:
        """Return how many items have been inserted and sampled."""
        limiter = self.client.server_info()[self.name].rate_limiter_info
        return limiter.insert_stats.completed, limiter.sample_stats.completed

    def close(self) -> None:
        """Let the server end."""
        if self.server is not None:
            self.server.stop()


def make(
    name: str, max_size: int, limit: tuple[float, int, float] | None, step: dict[str, Any], serve: str
) -> ReverbTable:
    """Make a server with one table; it chooses where it listens, whether others will call it or not."""
    samplers = {"uniform": reverb.selectors.Uniform, "prioritized": lambda: reverb.selectors.Prioritized(0.6)}
    limiters = reverb.rate_limiters
    limiter = limiters.MinSize(1) if limit is None else limiters.SampleToInsertRatio(*limit)
    table = reverb.Table(name, samplers[name](), reverb.selectors.Fifo(), max_size, limiter)
    server = reverb.Server([table])
    return ReverbTable(f"localhost:{server.port}", name, step, server)


connect = ReverbTable
"""Call the server of another process."""
