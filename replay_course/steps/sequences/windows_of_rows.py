"""Windows of consecutive rows of a ring: the shortest way to sample sequences.

`sample` draws the first row of each window and copies the rows after it. All rows of a window are stored, so
a window never continues from the newest row to the oldest one.

    row       7   8   9  10  11  12  13  14        length 4: a window that starts at row 9
    episode   0   0   0   1   1   1   1   1
    window            9  10  11  12

Remaining problem: the row after the last step of an episode is the first step of another episode.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class WindowsOfRows:
    """The newest steps of one environment, sampled as windows of consecutive rows."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], length: int, seed: int = 0) -> None:
        """Allocate memory for `capacity` rows.

        Args:
            capacity: Number of steps kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            length: Number of rows of a window.
            seed: Seed for sampling.
        """
        self.capacity, self.length = capacity, length
        record = np.dtype([(name, field["dtype"], field.get("shape", ())) for name, field in fields.items()])
        self.rows = np.zeros(capacity, record)
        self.names = list(fields)
        self.added = 0  # number of steps added
        self.rng = np.random.default_rng(seed)

    def add(self, *, ends: bool, **step: Any) -> None:
        """Add one step; `ends`, whether it is the last step of its episode, isn't used."""
        self.rows[self.added % self.capacity] = tuple([step[name] for name in self.names])
        self.added += 1

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample windows uniformly: for each field an array [batch_size, length, *shape]."""
        oldest = max(self.added - self.capacity, 0)
        starts = self.rng.integers(oldest, self.added - self.length + 1, batch_size)
        indexes = starts[:, np.newaxis] + np.arange(self.length)  # int64[batch_size, length]
        batch = self.rows.take(indexes % self.capacity)
        return {name: batch[name] for name in self.names}
