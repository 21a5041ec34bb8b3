"""Scratch: where rows are laid side by side before they go into a shared ring.

A row is copied into the ring in one go, while its slot is held; so its fields must lie together before. The
room for that is kept from call to call, because making it takes longer than using it. A thread takes a room
out of the store while it works with it, so no two threads ever share one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np


class Scratch:
    """Room for a number of rows.

    Attributes:
        count: Number of rows.
        words: uint64[count, words], the rows as the ring copies them.
        masses: float64[count].
    """

    def __init__(self, count: int, dtype: np.dtype[np.void]) -> None:
        rows = np.zeros(count, dtype)
        self.count = count
        self.words = rows.view(np.uint64).reshape(count, -1)
        self.masses = np.zeros(count)
        self._columns = [rows[name] for name in dtype.names or ()]

    def fill(self, columns: Sequence[Any], masses: Any) -> None:
        """Lay down what `Fields.to_columns` returned, and masses: one per row, one for all, or None."""
        for room, column in zip(self._columns, columns, strict=True):
            room[...] = column
        if masses is not None:
            self.masses[...] = masses


class ScratchStore:
    """Keeps rooms for rows of one kind."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._dtype = dtype
        self._rooms: list[Scratch] = []

    def take(self, count: int) -> Scratch:
        """Take out a room for `count` rows, the last one given back if it fits."""
        try:
            scratch = self._rooms.pop()
        except IndexError:
            return Scratch(count, self._dtype)
        return scratch if scratch.count == count else Scratch(count, self._dtype)

    def give_back(self, scratch: Scratch) -> None:
        """Keep a room for the next call."""
        self._rooms.append(scratch)
