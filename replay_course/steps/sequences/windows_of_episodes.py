"""Windows that end with their episode: the entries after the last step are padding.

Improvement over windows of rows: each row also stores the index of the first step of its episode. Two rows
belong to the same episode if these indexes are equal, so one comparison finds the padding of a whole batch:

    index     7   8   9  10  11  12  13  14        length 4: the window that starts at index 8
    first     4   4   4  10  10  10  10  10
    window        8   9   –   –                    "–" is padding: all fields are 0
    valid         1   1   0   0                    4 == 4, 4 == 4, 10 != 4, 10 != 4

Remaining problem: a recurrent network can't compute the state in which it entered the window.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class WindowsOfEpisodes:
    """The newest steps of one environment, sampled as windows of one episode, with padding."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], length: int, seed: int = 0) -> None:
        """Allocate memory for `capacity` rows; the arguments are those of `WindowsOfRows`."""
        self.capacity, self.length = capacity, length
        record = np.dtype([(name, field["dtype"], field.get("shape", ())) for name, field in fields.items()])
        self.rows = np.zeros(capacity, record)
        self.firsts = np.zeros(capacity, np.int64)  # index of the first step of the row's episode
        self.names = list(fields)
        self.added = self.first = 0  # number of steps added; first index of the running episode
        self.rng = np.random.default_rng(seed)

    def add(self, *, ends: bool, **step: Any) -> None:
        """Add one step; `ends` is whether it is the last step of its episode."""
        slot = self.added % self.capacity
        self.rows[slot] = tuple([step[name] for name in self.names])
        self.firsts[slot] = self.first
        self.added += 1
        if ends:
            self.first = self.added

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample windows that start at any stored step: fields as in `WindowsOfRows`, and `valid`."""
        starts = self.rng.integers(max(self.added - self.capacity, 0), self.added, batch_size)
        indexes = starts[:, np.newaxis] + np.arange(self.length)  # int64[batch_size, length]
        firsts = self.firsts[indexes % self.capacity]
        # A slot beyond the newest step contains an old row, possibly of the same long episode.
        valid = (firsts == firsts[:, :1]) & (indexes < self.added)
        batch = self.rows.take(indexes % self.capacity)
        batch[~valid] = 0
        return {name: batch[name] for name in self.names} | {"valid": valid}
