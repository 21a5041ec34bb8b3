"""A list of tuples: the shortest replay buffer that is right.

`add` appends a tuple, `sample` picks some of the tuples and makes an array of each field.

Still wrong with it: when the list is full, the oldest tuple is taken from its front, and Python moves all the
others one place down. An `add` takes as long as the list is.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class ListOfTuples:
    """The newest transitions, as a list of tuples."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Begin empty.

        Args:
            capacity: Number of transitions kept.
            fields: The shape and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seeds the drawing.
        """
        self.capacity = capacity
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        self.memory: list[tuple[Any, ...]] = []
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.memory)

    def add(self, **transition: Any) -> None:
        """Add one transition; the oldest makes room."""
        if len(self.memory) == self.capacity:
            del self.memory[0]  # moves every other one: O(capacity)
        # copies, because an environment may write its next observation into the same array
        self.memory.append(tuple(np.array(transition[name], dtype) for name, dtype in self.dtypes.items()))

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Draw transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        places = self.rng.integers(len(self.memory), size=batch_size)
        columns = zip(*(self.memory[place] for place in places.tolist()), strict=True)
        return {name: np.stack(column) for name, column in zip(self.dtypes, columns, strict=True)}
