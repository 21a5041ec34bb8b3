"""Scratch: where rows are laid side by side before they go into a shared ring.

A row is copied into the ring in one go, while its slot is held; so its fields must lie together before. A
scratch is kept from call to call, because making one takes longer than using it. A thread takes it out of the
store while it works with it, so no two threads ever share one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np


class Scratch:
    """Room for a number of rows.

    Attributes:
        words: uint64[count, words], the rows as the ring copies them.
        masses: float64[count].
        columns: Views of the rows, one per field.
    """

    def __init__(self, count: int, dtype: np.dtype[np.void]) -> None:
        rows = np.zeros(count, dtype)
        self.words = rows.view(np.uint64).reshape(count, -1)
        self.masses = np.zeros(count)
        self.columns = [rows[name] for name in dtype.names or ()]


class ScratchStore:
    """Keeps scratches for rows of one kind."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._dtype = dtype
        self._unused: list[Scratch] = []
        self.give_back = self._unused.append  # keeps a scratch for the next call

    def take(self, count: int, columns: Sequence[Any], masses: Any) -> Scratch:
        """Take out a scratch that holds rows, given by columns, and masses: one per row, for all, or None."""
        try:
            scratch = self._unused.pop()
        except IndexError:
            scratch = None
        if scratch is None or len(scratch.masses) != count:
            scratch = Scratch(count, self._dtype)
        for place, column in zip(scratch.columns, columns, strict=True):
            place[...] = column
        if masses is not None:
            scratch.masses[...] = masses
        return scratch
