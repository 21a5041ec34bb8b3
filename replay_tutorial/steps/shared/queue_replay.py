"""A queue: writers put their rows in, the sampler takes them out and keeps them in a deque of its own.

The shortest way by which the rows of many processes reach one of them: the standard library does the rest.
Nothing is shared, so nothing can be torn.

Still wrong with it: every row is written out as bytes, sent through a pipe and read again, and it is the
sampler who does the reading, between two batches. And there is a lock inside: a writer holds it while it
sends. If the writer is killed then, nobody gives the lock back.
"""

import multiprocessing
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

TAKEN = 64  # batches that `sample` takes out of the queue at most: writers may be faster
spawn = multiprocessing.get_context("spawn")  # the way to start processes that every system has


class QueueReplay:
    """The newest rows of many processes, in the memory of the one that samples."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Begin empty.

        Args:
            capacity: Number of rows kept.
            fields: For each field of a row its shape and dtype, `{"obs": {"shape": (4,), "dtype": float}}`.
            seed: Seeds the drawing.
        """
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        # `put` of a SimpleQueue sends at once; that of a Queue leaves it to a thread, and the rows of two
        # writers may change places
        self.waiting = spawn.SimpleQueue()
        self.memory: deque[tuple[Any, ...]] = deque(maxlen=capacity)  # the sampler's own
        self.rng = np.random.default_rng(seed)

    def add(self, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape]. Waits while the pipe is full."""
        self.waiting.put([np.asarray(rows[name], dtype) for name, dtype in self.dtypes.items()])

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Take in what has come, and draw rows uniformly, with replacement."""
        for _ in range(TAKEN):
            if self.waiting.empty():
                break
            self.memory.extend(zip(*self.waiting.get(), strict=True))
        if not self.memory:
            raise ValueError(f"sample({batch_size}) needs at least 1 row; none has come yet.")
        places = self.rng.integers(len(self.memory), size=batch_size)
        columns = zip(*(self.memory[place] for place in places.tolist()), strict=True)
        return {name: np.stack(column) for name, column in zip(self.dtypes, columns, strict=True)}

    def close(self) -> None:
        """Release the queue."""
        self.waiting.close()
