"""A manager: a process of its own keeps the rows, and all others ask it, by sockets.

What it fixes of the queue: the sampler no longer takes rows in. It asks for a batch, and that is all. A
writer that is killed leaves a closed socket behind, and the manager's process, which alone has the lock,
lives on.

Still wrong with it: one process does everybody's work. Rows cross a socket on their way in and again on their
way out, and each call, however small, is a message there and a message back.
"""

import multiprocessing
import threading
from collections import deque
from collections.abc import Mapping
from multiprocessing.managers import BaseManager
from typing import Any

import numpy as np

spawn = multiprocessing.get_context("spawn")  # the way to start processes that every system has


class Keeper:
    """The rows, in the manager's process, where each caller is served by a thread of its own."""

    def __init__(self, capacity: int, seed: int) -> None:
        """Begin empty."""
        self.memory: deque[tuple[Any, ...]] = deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)
        self.lock = threading.Lock()

    def add(self, columns: list[np.ndarray]) -> None:
        """Keep the rows of one message."""
        with self.lock:
            self.memory.extend(zip(*columns, strict=True))

    def sample(self, batch_size: int) -> list[np.ndarray]:
        """Draw rows, an array for each field."""
        with self.lock:
            if not self.memory:
                raise ValueError(f"sample({batch_size}) needs at least 1 row; none has come yet.")
            places = self.rng.integers(len(self.memory), size=batch_size)
            rows = [self.memory[place] for place in places.tolist()]
        return [np.stack(column) for column in zip(*rows, strict=True)]


class KeeperManager(BaseManager):
    """Starts the process in which a keeper lives."""


KeeperManager.register("Keeper", Keeper)


class ManagerReplay:
    """The newest rows of many processes, in the memory of a process that only keeps them."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Start the manager's process.

        Args:
            capacity: Number of rows kept.
            fields: For each field of a row its shape and dtype, `{"obs": {"shape": (4,), "dtype": float}}`.
            seed: Seeds the drawing.
        """
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        self.manager = KeeperManager(ctx=spawn)
        self.manager.start()
        self.keeper: Any = getattr(self.manager, "Keeper")(capacity, seed)  # noqa: B009 - made by `register`

    def __getstate__(self) -> dict[str, Any]:
        """Pass on the way to the keeper, and not the process."""
        return {"dtypes": self.dtypes, "keeper": self.keeper}

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]."""
        self.keeper.add([np.array(rows[name], dtype) for name, dtype in self.dtypes.items()])

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Ask for rows, drawn uniformly, with replacement."""
        return dict(zip(self.dtypes, self.keeper.sample(batch_size), strict=True))

    def close(self) -> None:
        """End the manager's process."""
        self.manager.shutdown()
