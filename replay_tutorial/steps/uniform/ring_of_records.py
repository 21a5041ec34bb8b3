"""A ring of records: all values of a row side by side in memory.

What it fixes of the ring of arrays: a row is one record, as in a table of a database or a `struct` in C.
To copy one is one visit to the memory, however many fields it has.

The last rung before the package's `ReplayBuffer`. What that one does better: it checks what it is given,
takes whole batches, draws and copies in compiled code, and never uses an index again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class RingOfRecords:
    """The newest transitions, as one array of records."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Reserve memory for `capacity` rows.

        Args:
            capacity: Number of transitions kept.
            fields: The shape and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seeds the drawing.
        """
        self.capacity = capacity
        record = np.dtype([(name, field["dtype"], field["shape"]) for name, field in fields.items()])
        self.rows = np.zeros(capacity, record)  # [capacity], each with all fields
        self.names = list(fields)
        self.added = 0  # rows so far
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, **transition: Any) -> None:
        """Add one transition; the oldest makes room."""
        self.rows[self.added % self.capacity] = tuple([transition[name] for name in self.names])
        self.added += 1

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        batch = self.rows.take(self.rng.integers(len(self), size=batch_size))
        return {name: batch[name] for name in self.names}
