"""A ring of arrays, one per field: the replay buffer of most libraries.

Improvement over the deque: every element of an array is accessed in the same time. The arrays are as long as
the capacity and are allocated once; the oldest row is not removed but overwritten. The next slot to write
wraps around at the end of the arrays, which makes them a ring.

    slot      0  1  2  3  4  5  6  7       capacity 8, after 11 rows have been added:
    row       8  9 10  3  4  5  6  7       the next row goes to slot 11 % 8 = 3, which holds the oldest

Remaining problem: a row is scattered. Its five values lie in five arrays, megabytes apart, and each of them
costs a separate memory access.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class RingOfArrays:
    """The newest transitions, as one array per field."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Allocate memory for `capacity` rows.

        Args:
            capacity: Number of transitions kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seed for sampling.
        """
        self.capacity = capacity
        self.columns = {  # [capacity, *shape]
            name: np.zeros((capacity, *field.get("shape", ())), field["dtype"])
            for name, field in fields.items()
        }
        self.added = 0  # number of rows added
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, **transition: Any) -> None:
        """Add one transition; a full buffer overwrites the oldest."""
        slot = self.added % self.capacity
        for name, column in self.columns.items():
            column[slot] = transition[name]
        self.added += 1

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        # Until the ring is full, slots after the last row contain zeros and must not be sampled.
        slots = self.rng.integers(len(self), size=batch_size)
        return {name: column[slots] for name, column in self.columns.items()}
