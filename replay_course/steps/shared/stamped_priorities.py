"""Stamped rows with priorities: writers store each row's mass beside it, and the sampler has the sum tree.

Before each draw, the sampler copies the masses of new rows to the leaves of its tree. No other process
changes the tree, so a killed writer can't leave it half updated. The next version,
`MPPrioritizedReplayBuffer`, does all of this in compiled code.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from replay_course.steps.prioritized import PlainSumTree, TreeWithMinimum
from replay_course.steps.shared.stamped_rows import StampedRows, read

POLL_SECONDS = 0.01


class Statistics(NamedTuple):
    """Counters of a buffer."""

    rows_added: int


def read_row(stamps: np.ndarray, rows: np.ndarray, slot: int) -> np.ndarray | None:
    """Return a copy of the row in a slot, or None if it isn't complete."""
    copies = np.empty((1, rows.shape[1]))
    return copies[0] if read(stamps, rows, np.array([slot]), copies)[0] else None


class StampedPriorities(StampedRows):
    """A ring of the newest rows in shared memory, which one process samples by priority."""

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        alpha: float = 0.6,
        eps: float = 1e-4,
        seed: int = 0,
        tree: Any = None,
        read_row: Callable[..., Any] = read_row,
    ) -> None:
        """Reserve shared memory for `capacity` rows.

        Args:
            capacity: Number of rows kept.
            fields: Shape (default ()) and dtype (default float32) of each field.
            alpha: Exponent of the priorities.
            eps: Added to each priority.
            seed: Seed for sampling.
            tree: An empty tree with `set`, `find`, `total` and `smallest`; a `TreeWithMinimum` by default.
            read_row: Returns a copy of a complete row, or None: `read_row(stamps, rows, slot)`.
        """
        super().__init__(capacity, {**fields, "mass": {}}, seed)
        self.dtypes = {name: field.get("dtype", np.float32) for name, field in fields.items()}
        self.alpha, self.eps, self.read_row = alpha, eps, read_row
        self.tree = TreeWithMinimum(PlainSumTree(capacity)) if tree is None else tree
        self.indexes = np.full(capacity, -1)  # int64[capacity], of the rows whose masses are in the leaves
        self.stale_updates = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return what a writer needs."""
        return {name: value for name, value in vars(self).items() if name not in ("read_row", "tree")}

    def add(self, *, priorities: Any = 1.0, **rows: Any) -> None:
        """Add a batch of rows from any process: arrays [n, *shape], and their priorities, float[n]."""
        count = len(next(iter(rows.values())))
        masses = (np.broadcast_to(priorities, count) + self.eps) ** self.alpha
        super().add(**rows, mass=masses)

    def sync_tree(self) -> None:
        """Copy the masses of new rows to the leaves; a slot that a writer holds has mass 0."""
        _, stamps, rows = self.arrays
        for slot in np.flatnonzero(stamps // 2 - 1 != self.indexes).tolist():
            stamp = stamps[slot]
            row = self.read_row(stamps, rows, slot)
            if row is None or stamps[slot] != stamp:
                self.indexes[slot], mass = -1, 0.0
            else:
                self.indexes[slot], mass = stamp // 2 - 1, row[-1]
            self.tree.set([slot], [mass])

    def sample(self, batch_size: int, beta: float = 0.4) -> dict[str, np.ndarray]:
        """Draw one row from each of `batch_size` equal segments of the total mass.

        Returns:
            Each field [batch_size, *shape], "indexes", int64[batch_size], and "weights", float32[batch_size].
        """
        self.sync_tree()
        if self.tree.total == 0.0:
            raise ValueError(f"sample({batch_size}) requires at least 1 row; the buffer is empty.")
        _, stamps, rows = self.arrays
        slots, masses, drawn = np.empty(batch_size, np.int64), np.empty(batch_size), []
        for place in range(batch_size):
            low, width = place, 1.0
            while len(drawn) == place:  # a row that was replaced meanwhile is drawn again, from all rows
                query = (low + self.rng.random() * width) / batch_size * self.tree.total
                (slots[place],), (masses[place],) = self.tree.find([query])
                row = self.read_row(stamps, rows, int(slots[place]))
                if row is not None and stamps[slots[place]] == 2 * (self.indexes[slots[place]] + 1):
                    drawn.append(row)
                else:
                    self.sync_tree()
                    low, width = 0, float(batch_size)
        weights = (self.tree.smallest / masses) ** beta
        indexes = {"indexes": self.indexes[slots], "weights": weights.astype(np.float32)}
        return self.fields_of(np.array(drawn)) | indexes

    def update_priorities(self, indexes: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of rows; updates of replaced rows are dropped and counted."""
        self.sync_tree()
        slots = indexes % self.capacity
        kept = self.indexes[slots] == indexes
        self.tree.set(slots[kept].tolist(), ((priorities[kept] + self.eps) ** self.alpha).tolist())
        self.stale_updates += int(np.sum(~kept))

    def fields_of(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Split rows, float64[n, width], into fields of their types."""
        records = rows.view(self.record)[:, 0]
        return {name: records[name].astype(dtype) for name, dtype in self.dtypes.items()}

    def __getitem__(self, which: slice) -> dict[str, np.ndarray]:
        """Return stored rows, the oldest first; `[:]` returns all."""
        _, stamps, rows = self.arrays
        slots = np.argsort(stamps, kind="stable")
        copies = np.empty((self.capacity, rows.shape[1]))
        return self.fields_of(copies[read(stamps, rows, slots, copies)][which])

    def statistics(self) -> Statistics:
        """Return the number of rows added."""
        return Statistics(int(self.arrays[0][0]))

    def wait_for(self, rows: int, timeout: float) -> bool:
        """Wait until rows have been added; return whether they were before `timeout` seconds."""
        end = time.monotonic() + timeout
        while self.statistics().rows_added < rows and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        return self.statistics().rows_added >= rows
