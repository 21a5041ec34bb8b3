"""Reverb's side: how its users write trajectories, draw batches and update priorities.

Steps go through a `TrajectoryWriter` whose `flush` leaves 20 items on their way, batches come from a
`TrajectoryDataset` with three of them ahead: its fastest ways.

Left out: this package, which Reverb's Python doesn't have.
"""

import importlib
import itertools
from collections.abc import Callable
from typing import Any

ON_THEIR_WAY = 20  # items
AHEAD = 3  # batches

reverb: Any = importlib.import_module("reverb")
tensorflow: Any = importlib.import_module("tensorflow")


def version() -> str:
    """Return that of Reverb."""
    metadata: Any = importlib.import_module("importlib.metadata")
    return str(metadata.version("dm-reverb"))


class Writer:
    """Writes steps, and an item with each but the first."""

    def __init__(self, writer: Any, table: str, steps: list[dict[str, Any]]) -> None:
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
        writer.flush(ON_THEIR_WAY)

    def flush(self) -> None:
        """Wait until all items are in."""
        self.writer.flush()


class ReverbTable:
    """One table, and the calls of its client."""

    queued = True  # batches are drawn ahead

    def __init__(self, address: str, table: str, steps: list[dict[str, Any]], server: Any = None) -> None:
        """Call a server."""
        self.address = address
        self.table = table
        self.steps = steps
        self.server = server
        self.client: Any = reverb.Client(address)

    def writer(self) -> Writer:
        """Return a writer of its own episode."""
        return Writer(self.client.trajectory_writer(num_keep_alive_refs=2), self.table, self.steps)

    def sampler(self, size: int, timeout: float | None = None) -> Callable[[], object]:
        """Return what draws a batch; None when none has come for so many seconds."""
        dataset = reverb.TrajectoryDataset(
            server_address=self.address,
            table=self.table,
            dtypes={name: tensorflow.float32 for name in self.steps[0]},
            shapes={name: tensorflow.TensorShape([2, *value.shape]) for name, value in self.steps[0].items()},
            max_in_flight_samples_per_worker=AHEAD * size,
            rate_limiter_timeout_ms=-1 if timeout is None else int(1000 * timeout),
        )
        batches = iter(dataset.batch(size))
        return lambda: next(batches, None)

    def updater(self, size: int) -> Callable[[], object]:
        """Return what gives this many items new priorities."""
        keys = [sample[0].info.key for sample in self.client.sample(self.table, size)]
        updates = itertools.cycle([dict.fromkeys(keys, p) for p in (0.5, 1.0, 1.5)])
        return lambda: self.client.mutate_priorities(self.table, updates=next(updates))

    def counts(self) -> tuple[int, int]:
        """Return how many items have been inserted and sampled."""
        limiter = self.client.server_info()[self.table].rate_limiter_info
        return limiter.insert_stats.completed, limiter.sample_stats.completed

    def waited(self) -> tuple[float, float]:
        """Return no numbers: threads hand over to others, and those wait."""
        return float("nan"), float("nan")

    def close(self) -> None:
        """Let the server end."""
        if self.server is not None:
            self.server.stop()


def make(
    table: str, max_size: int, limit: tuple[float, int, float] | None, steps: list[dict[str, Any]], serve: str
) -> ReverbTable:
    """Make a server with one table; it chooses where it listens, whether others will call it or not."""
    samplers = {"uniform": reverb.selectors.Uniform, "prioritized": lambda: reverb.selectors.Prioritized(0.6)}
    limiters = reverb.rate_limiters
    server = reverb.Server(
        [
            reverb.Table(
                table,
                samplers[table](),
                reverb.selectors.Fifo(),
                max_size,
                limiters.MinSize(1) if limit is None else limiters.SampleToInsertRatio(*limit),
            )
        ]
    )
    return connect(f"localhost:{server.port}", table, steps, server)


def connect(address: str, table: str, steps: list[dict[str, Any]], server: Any = None) -> ReverbTable:
    """Call a server."""
    return ReverbTable(address, table, steps, server)
