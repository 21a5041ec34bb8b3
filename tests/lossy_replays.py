"""Shared replay buffers with a fault each, for the test of the check that must find them.

They stand in a file of their own because writers' processes import it: it has to be small.
"""

from typing import Any

import numpy as np

from replay_course.steps.shared.one_lock import OneLock


class LosesRows(OneLock):
    def add(self, **rows: Any) -> None:
        if rows["number"][-1] % 70 >= 10:  # every seventh row gives its place up
            super().add(**rows)


class KeepsTooLong(OneLock):
    def __init__(self, capacity: int, fields: Any) -> None:
        super().__init__(capacity + 1, fields)


class MakesRowsUp(OneLock):
    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        batch = self.rows[self.rng.integers(self.capacity, size=batch_size)]
        return {name: batch[name] for name in self.record.names or ()}
