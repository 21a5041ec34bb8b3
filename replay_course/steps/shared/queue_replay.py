"""A queue: writers put their rows into it, and the sampler moves them to a deque of its own.

The shortest way to bring the rows of many processes to one: the standard library does the work. No memory is
shared, so no row can be torn.

Remaining problems: each row is serialised, sent through a pipe and deserialised, and the sampler deserialises
between two batches. And the queue contains a lock, which a writer holds while it sends. If the writer is
killed meanwhile, the lock is never released.
"""

import multiprocessing
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

TAKEN = 64  # maximum number of batches per `sample` call, because writers may be faster
spawn = multiprocessing.get_context("spawn")  # the start method available on every system


class QueueReplay:
    """The newest rows of many processes, in the memory of the sampler."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Create an empty buffer.

        Args:
            capacity: Number of rows kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": float}}`.
            seed: Seed for sampling.
        """
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        # SimpleQueue.put sends immediately. Queue.put leaves that to a thread, which could change the order
        # of rows from two writers.
        self.waiting = spawn.SimpleQueue()
        self.memory: deque[tuple[Any, ...]] = deque(maxlen=capacity)  # the sampler's own
        self.rng = np.random.default_rng(seed)

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]. Blocks while the pipe is full."""
        self.waiting.put([np.asarray(rows[name], dtype) for name, dtype in self.dtypes.items()])

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Move new rows to the deque, and draw rows uniformly, with replacement."""
        for _ in range(TAKEN):
            if self.waiting.empty():
                break
            self.memory.extend(zip(*self.waiting.get(), strict=True))
        if not self.memory:
            raise ValueError(f"sample({batch_size}) requires at least 1 row; no rows have been added yet.")
        places = self.rng.integers(len(self.memory), size=batch_size)
        columns = zip(*(self.memory[place] for place in places.tolist()), strict=True)
        return {name: np.stack(column) for name, column in zip(self.dtypes, columns, strict=True)}

    def close(self) -> None:
        """Close the queue."""
        self.waiting.close()
