"""A deque of tuples: the replay buffer of most tutorials.

What it fixes of the list: a deque with a `maxlen` drops its oldest tuple by itself, at once. `add` takes as
long as ever, however many tuples there are.

Still wrong with it: a deque is a chain of blocks of 64. To read a place in the middle, Python walks from the
nearer end, block by block. Now `sample` takes as long as the deque is.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np


class DequeOfTuples:
    """The newest transitions, as a deque of tuples."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Begin empty.

        Args:
            capacity: Number of transitions kept.
            fields: The shape and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seeds the drawing.
        """
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        self.memory: deque[tuple[Any, ...]] = deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.memory)

    def add(self, **transition: Any) -> None:
        """Add one transition; the oldest makes room."""
        self.memory.append(tuple(np.array(transition[name], dtype) for name, dtype in self.dtypes.items()))

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        places = self.rng.integers(len(self.memory), size=batch_size)
        # each of these walks from an end of the deque: O(capacity)
        columns = zip(*(self.memory[place] for place in places.tolist()), strict=True)
        return {name: np.stack(column) for name, column in zip(self.dtypes, columns, strict=True)}
