"""A ring of records: all values of a row are contiguous in memory.

Improvement over the ring of arrays: a row is one record, like a row in a database table or a `struct` in C.
Copying it takes one memory access, however many fields it has.

The next version is the package's `ReplayBuffer`. It also validates its input, accepts whole batches, samples
and copies in compiled code, and never reuses an index.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class RingOfRecords:
    """The newest transitions, as one array of records."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Allocate memory for `capacity` rows.

        Args:
            capacity: Number of transitions kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seed for sampling.
        """
        self.capacity = capacity
        record = np.dtype([(name, field["dtype"], field.get("shape", ())) for name, field in fields.items()])
        self.rows = np.zeros(capacity, record)  # [capacity], each record has all fields
        self.names = list(fields)
        self.added = 0  # number of rows added
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, **transition: Any) -> None:
        """Add one transition; a full buffer overwrites the oldest."""
        self.rows[self.added % self.capacity] = tuple([transition[name] for name in self.names])
        self.added += 1

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        batch = self.rows.take(self.rng.integers(len(self), size=batch_size))
        return {name: batch[name] for name in self.names}
