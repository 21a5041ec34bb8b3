"""A list of tuples: the shortest correct replay buffer.

`add` appends a tuple; `sample` selects tuples at random and stacks each field into an array.

Remaining problem: when the list is full, the oldest tuple is removed from the front, and Python moves all
other elements one position. The time of `add` is proportional to the length of the list.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class ListOfTuples:
    """The newest transitions, as a list of tuples."""

    def __init__(self, capacity: int, fields: Mapping[str, Any], seed: int = 0) -> None:
        """Create an empty buffer.

        Args:
            capacity: Number of transitions kept.
            fields: Shape (default ()) and dtype of each field, `{"obs": {"shape": (4,), "dtype": "f4"}}`.
            seed: Seed for sampling.
        """
        self.capacity = capacity
        self.dtypes = {name: field["dtype"] for name, field in fields.items()}
        self.memory: list[tuple[Any, ...]] = []
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.memory)

    def add(self, **transition: Any) -> None:
        """Add one transition; a full list drops the oldest."""
        if len(self.memory) == self.capacity:
            del self.memory[0]  # moves all other elements: O(capacity)
        # copies, because an environment may reuse the array for its next observation
        self.memory.append(tuple(np.array(transition[name], dtype) for name, dtype in self.dtypes.items()))

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample transitions uniformly, with replacement: for each field an array [batch_size, *shape]."""
        places = self.rng.integers(len(self.memory), size=batch_size)
        columns = zip(*(self.memory[place] for place in places.tolist()), strict=True)
        return {name: np.stack(column) for name, column in zip(self.dtypes, columns, strict=True)}
