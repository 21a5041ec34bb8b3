"""An adapter to copy: replace the list by your buffer.

    python -m benchmarks conformance --adapter benchmarks/conformance/adapters/your_buffer.py

Each factory of `Library` that you override is checked; the others are reported as not offered.
"""

import random
from collections.abc import Sequence

from benchmarks.conformance.library import Buffer, Library, Row
from benchmarks.conformance.world import Step


class YourBuffer(Buffer):
    """The newest rows in a list, sampled uniformly."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.rows = capacity, list[Row]()

    def add(self, tick: Sequence[Step]) -> None:
        """Add a step of every environment."""
        for step in tick:
            self.rows.append(Row(step.obs, step.next_obs, step.reward, discount=float(not step.terminated)))
        self.rows = self.rows[-self.capacity :]

    def sample(self, count: int) -> list[Row]:
        """Draw rows with replacement."""
        return random.choices(self.rows, k=count)


class YourLibrary(Library):
    """A library with one kind of buffer, which stores the rows of all environments."""

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        """Return a buffer of whole rows."""
        return YourBuffer(capacity)

    def seed(self, seed: int) -> None:
        """Seed what `sample` draws from."""
        random.seed(seed)


library = YourLibrary()
