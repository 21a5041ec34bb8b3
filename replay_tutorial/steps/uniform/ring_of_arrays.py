"""A ring of arrays, one per field: the replay buffer of most libraries.

What it fixes of the deque: every place of an array is reached in the same time. The arrays are as long as the
buffer is large, and are made once; the oldest row is not taken out, but written over. The slot to write next
goes round and round: that makes it a ring.

    slot      0  1  2  3  4  5  6  7       capacity 8, and 11 rows have been added:
    row       8  9 10  3  4  5  6  7       the next one goes to slot 11 % 8 = 3, where the oldest is

Still wrong with it: a row is scattered. Its five values lie in five arrays, megabytes apart, and each of them
is a visit to the memory.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class RingOfArrays:
    """The newest transitions, as one array for each field."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Reserve memory for `capacity` rows.

        Args:
            capacity: Number of transitions kept.
            fields: The shape and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seeds the drawing.
        """
        self.capacity = capacity
        self.columns = {  # [capacity, *shape]
            name: np.zeros((capacity, *field["shape"]), field["dtype"]) for name, field in fields.items()
        }
        self.added = 0  # rows so far
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, **transition: Any) -> None:
        """Add one transition; the oldest makes room."""
        slot = self.added % self.capacity
        for name, column in self.columns.items():
            column[slot] = transition[name]
        self.added += 1

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        # In a ring that isn't full yet, the slots beyond the last row hold zeros: they must not be drawn.
        slots = self.rng.integers(len(self), size=batch_size)
        return {name: column[slots] for name, column in self.columns.items()}
