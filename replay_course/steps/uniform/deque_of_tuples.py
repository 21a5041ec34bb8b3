"""A deque of tuples: the replay buffer of most tutorials.

Improvement over the list: a deque with a `maxlen` discards its oldest tuple itself, in constant time. The
time of `add` no longer depends on the number of tuples.

Remaining problem: a deque is a linked list of blocks of 64 elements. To access an element in the middle,
Python walks from the nearer end, block by block, so `sample` takes time proportional to the length.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np


class DequeOfTuples:
    """The newest transitions, as a deque of tuples."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Create an empty buffer.

        Args:
            capacity: Number of transitions kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seed for sampling.
        """
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        self.memory: deque[tuple[Any, ...]] = deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.memory)

    def add(self, **transition: Any) -> None:
        """Add one transition; a full deque drops the oldest."""
        self.memory.append(tuple(np.array(transition[name], dtype) for name, dtype in self.dtypes.items()))

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        places = self.rng.integers(len(self.memory), size=batch_size)
        # each access walks from an end of the deque: O(capacity)
        columns = zip(*(self.memory[place] for place in places.tolist()), strict=True)
        return {name: np.stack(column) for name, column in zip(self.dtypes, columns, strict=True)}
