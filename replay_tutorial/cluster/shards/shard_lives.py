"""Indexes of rows that lie in several shards, each of which may be replaced by a new one.

    a shard's own indexes:    0 1 2 3 4 5     0 1 2     0 1 2 ...
    of which life:            0               1         2
    its serial numbers:       0 1 2 3 4 5     6 7 8     9 10 11 ...
    index in the run:         serial number · S + s,  for shard s of S

A shard that begins again counts its rows from 0, while priorities for rows of its earlier life may be on
their way. So its rows are numbered on from where the learner knew the life before to be, for the learner is
the only one who names rows later. An index is never reused, says where its row lies and in which life, and
how old the row is; a number made of life and index could not say that.
"""

import numpy as np
from numpy.typing import NDArray


class ShardLives:
    """The lives of one shard, and where each begins among its serial numbers."""

    def __init__(self) -> None:
        self.lives: list[int] = []
        self.starts: list[int] = []  # the serial number of each life's row 0
        self.next_serial = 0  # that the next row will get, as far as is known

    @property
    def life(self) -> int:
        """The newest life that is known; -1 before the first."""
        return self.lives[-1] if self.lives else -1

    def note(self, life: int, next_index: int) -> None:
        """Learn that a life, no older than the newest, has come to an index.

        Raises:
            ValueError: If it is older.
        """
        if life < self.life:
            raise ValueError(f"life {life} of a shard is over: it is in life {self.life}.")
        if life > self.life:
            self.lives.append(life)
            self.starts.append(self.next_serial)
        self.next_serial = max(self.next_serial, self.starts[-1] + next_index)

    def serials(self, indexes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the serial numbers, int64[n], of rows of the newest life."""
        return indexes + self.starts[-1]

    def by_life(self, serials: NDArray[np.int64]) -> list[tuple[int, NDArray[np.intp], NDArray[np.int64]]]:
        """Sort serial numbers by life: the life, the positions in `serials`, and the indexes in that life."""
        turns = np.searchsorted(self.starts, serials, side="right") - 1
        found: list[tuple[int, NDArray[np.intp], NDArray[np.int64]]] = []
        for turn, (life, start) in enumerate(zip(self.lives, self.starts, strict=True)):
            positions = np.flatnonzero(turns == turn)
            if len(positions):
                found.append((life, positions, serials[positions] - start))
        return found
