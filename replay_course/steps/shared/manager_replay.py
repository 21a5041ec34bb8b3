"""A manager: one process holds the rows, and all other processes access them over sockets.

Improvement over the queue: the sampler no longer unpacks rows; it only requests batches. A writer that is
killed leaves a closed socket behind, and the manager process, the only one that uses the lock, keeps running.

Remaining problem: one process does the work for all others. Each row crosses a socket twice, on its way in
and on its way out. In addition, every call, however small, costs the round trip of a request message and a
reply message.
"""

import multiprocessing
import threading
from collections import deque
from collections.abc import Mapping
from multiprocessing.managers import BaseManager
from typing import Any

import numpy as np

spawn = multiprocessing.get_context("spawn")  # the start method available on every system


class Keeper:
    """Holds the rows in the manager process, which serves each client in a separate thread."""

    def __init__(self, capacity: int, seed: int) -> None:
        """Create an empty buffer."""
        self.memory: deque[tuple[Any, ...]] = deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)
        self.lock = threading.Lock()

    def add(self, columns: list[np.ndarray]) -> None:
        """Store the rows of one message."""
        with self.lock:
            self.memory.extend(zip(*columns, strict=True))

    def sample(self, batch_size: int) -> list[np.ndarray]:
        """Draw rows: an array for each field."""
        with self.lock:
            if not self.memory:
                raise ValueError(
                    f"sample({batch_size}) requires at least 1 row; no rows have been added yet."
                )
            places = self.rng.integers(len(self.memory), size=batch_size)
            rows = [self.memory[place] for place in places.tolist()]
        return [np.stack(column) for column in zip(*rows, strict=True)]


class KeeperManager(BaseManager):
    """Starts the process that holds the keeper."""


KeeperManager.register("Keeper", Keeper)


class ManagerReplay:
    """The newest rows of many processes, in the memory of a manager process."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Start the manager process.

        Args:
            capacity: Number of rows kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": float}}`.
            seed: Seed for sampling.
        """
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        self.manager = KeeperManager(ctx=spawn)
        self.manager.start()
        self.keeper: Any = getattr(self.manager, "Keeper")(capacity, seed)  # noqa: B009 - made by `register`

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the connection to the keeper, but not the manager."""
        return {"dtypes": self.dtypes, "keeper": self.keeper}

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]."""
        self.keeper.add([np.array(rows[name], dtype) for name, dtype in self.dtypes.items()])

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Request rows, drawn uniformly, with replacement."""
        return dict(zip(self.dtypes, self.keeper.sample(batch_size), strict=True))

    def close(self) -> None:
        """Stop the manager process."""
        self.manager.shutdown()
