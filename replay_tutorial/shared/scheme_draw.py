"""Draws rows of a shared ring by a scheme, while other processes write.

A scheme draws indexes, and each row is read together with its index. If the slot contains another row by
then, is being written, or was reserved by a writer that has died, the scheme draws a replacement. The newest
row that the scheme sees is the newest complete row, so that it can be read.

The probabilities are exact, except those of replacements.
"""

import time
from collections.abc import Callable

import numpy as np

from replay_tutorial.buffers.fields import Rows
from replay_tutorial.buffers.runtime.jit import Integers
from replay_tutorial.buffers.schemes.scheme import Scheme, StoredRows
from replay_tutorial.buffers.sum_tree import SumTree
from replay_tutorial.shared.protocol import NO_INDEX, REJECTED, SAMPLED, read_drawn
from replay_tutorial.shared.shared_ring import MAX_DRAWS, SharedRing


class SchemeDraw:
    """A batch that a scheme draws from a shared ring. With priorities, the caller must hold the lease.

    Attributes:
        drawn: Indexes and probabilities of the rows.
        rows: The rows.
    """

    def __init__(
        self,
        ring: SharedRing,
        scheme: Scheme,
        batch_size: int,
        rng: np.random.Generator,
        synced_tree: Callable[[], SumTree] | None = None,
        alpha: float = 1.0,
    ) -> None:
        """Draw a batch; with priorities, `synced_tree` returns the masses of the rows stored now.

        Raise RuntimeError if rows are overwritten faster than they can be read, or ValueError if the ring is
        empty or the scheme can't draw from it.
        """
        self._ring, self._scheme, self._rng = ring, scheme, rng
        self._synced_tree, self._alpha = synced_tree, alpha
        ring.check_not_empty(batch_size)
        self.drawn = scheme.draw(self._stored_rows(batch_size), batch_size, rng)
        self._words = ring.empty_words(batch_size)
        self.rows: Rows = ring.as_rows(self._words)
        self._read(np.arange(batch_size))

    def draw_again(self, positions: Integers) -> Rows:
        """Replace the rows at some positions, which lack a frame, and return the new rows."""
        self._ring.reject(len(positions))
        self._scheme.replace(self._stored_rows(len(positions)), self.drawn, positions, self._rng)
        self._read(positions)
        return self.rows[positions]

    def _read(self, positions: Integers) -> None:
        """Read the rows at some positions; replace those that can't be read."""
        ring, drawn, count = self._ring, self.drawn, len(positions)
        for attempt in range(MAX_DRAWS):
            failed = np.empty(len(positions), np.int64)
            failures = read_drawn(
                *(ring.stamps, ring.rows, drawn.indexes, positions, ring.cleared_before),
                *(self._words, failed),
            )
            if failures == 0:
                ring.count(SAMPLED, count)
                return
            positions = failed[:failures]
            ring.count(REJECTED, failures)
            if attempt % 10 == 9:
                time.sleep(0.001)  # the system may have paused a writer
                indexes = self._published()  # few of the reserved rows may ever be published
                if len(indexes):
                    drawn.indexes[positions] = self._rng.choice(indexes, failures)
                    drawn.probabilities[positions] = 1.0 / len(indexes)
                    continue
            self._scheme.replace(self._stored_rows(count), drawn, positions, self._rng)
        raise ring.no_row_error(count)

    def _stored_rows(self, batch_size: int) -> StoredRows:
        """Return the rows up to the newest complete one."""
        ring = self._ring
        tree = self._synced_tree() if self._synced_tree else None
        for _ in range(MAX_DRAWS):
            cleared_before = ring.cleared_before  # read before next_index, which is then not below it
            end, count = ring.next_index, 32
            oldest = max(cleared_before, end - ring.capacity)
            while end > oldest:  # usually, the newest rows are complete
                recent = np.arange(max(oldest, end - count), end)
                complete = np.flatnonzero(ring.indexes(recent % ring.capacity) == recent)
                if len(complete):
                    newest = int(recent[complete[-1]])
                    return StoredRows(oldest, newest + 1, ring.capacity, tree, self._alpha)
                end, count = int(recent[0]), 2 * count
            indexes = self._published()
            if len(indexes):  # a writer reserved a whole lap and died: only rows before it remain
                newest = int(indexes.max())
                oldest = max(int(indexes.min()), newest + 1 - ring.capacity)
                return StoredRows(oldest, newest + 1, ring.capacity, tree, self._alpha)
            time.sleep(0.0001)  # all rows are being written
        raise ring.no_row_error(batch_size)

    def _published(self) -> Integers:
        """Return the indexes of all complete rows. O(capacity)."""
        indexes = self._ring.indexes(np.arange(self._ring.capacity))
        return indexes[indexes != NO_INDEX]
