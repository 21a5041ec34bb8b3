"""A ring of rows: the newest `capacity` transitions, each under an index that is never used again.

The index counts transitions from 0; row `index` lies in slot `index % capacity`, where it replaces the row
`index - capacity`. Because an index names one transition for ever, whoever still holds it after the row has been
replaced can be told so.

Left out: what a row means.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Rows
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.buffers.rows import random_below, take_rows


class Ring:
    """Storage for the newest rows.

    Attributes:
        capacity: Number of slots.
        next_index: The index that the next row will get.
        stored: Number of rows held, at most the capacity.
    """

    next_index: int = 0
    stored: int = 0

    def __init__(self, rows: Rows) -> None:
        """Begin without rows.

        Args:
            rows: The memory for them, one record a slot; what it holds does not matter.
        """
        self.capacity = len(rows)
        self._rows = rows
        self._look_into_rows()

    def _look_into_rows(self) -> None:
        self._words = self._rows.view(np.uint64).reshape(self.capacity, -1)
        self._columns = [self._rows[name] for name in self._rows.dtype.names or ()]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_columns", "_words")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look_into_rows()

    @property
    def oldest_index(self) -> int:
        """The index of the oldest row held; `next_index` if there is none."""
        return self.next_index - self.stored

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows."""
        return self._rows.nbytes

    def append(self, count: int, columns: Sequence[Any]) -> int:
        """Add rows; the oldest make room.

        Args:
            count: How many, at least one; of more than `capacity` the last ones stay.
            columns: For each field what is assigned to it: shape (count, …), or one row's value if count is 1.

        Returns:
            The index of the first of them.
        """
        first_index = self.next_index
        if count == 1:
            self._rows[first_index % self.capacity] = tuple(columns)
        else:
            slots = self.slots_of(first_index, count)
            for column, values in zip(self._columns, columns, strict=True):
                column[slots] = values
        self.next_index += count
        if self.stored < self.capacity:
            self.stored = min(self.stored + count, self.capacity)
        return first_index

    def slots_of(self, first_index: int, count: int) -> slice | Integers:
        """Find the slots of `count` consecutive rows: a slice, or int64[count] across the wrap-around.

        Of more rows than there are slots the last ones stay: of a repeated slot NumPy keeps the last value.
        """
        slot = first_index % self.capacity
        if slot + count <= self.capacity:
            return slice(slot, slot + count)
        return np.arange(first_index, first_index + count) % self.capacity

    def take(self, slots: Integers) -> Rows:
        """Copy the rows in `slots`, int64[n], each of which must hold one.

        A whole record at a time: one visit to memory a row, where taking field by field would cost one a field.
        """
        copies = np.empty((len(slots), self._words.shape[1]), np.uint64)
        take_rows(self._words, slots, copies)
        return copies.view(self._rows.dtype).reshape(-1)

    def oldest_row(self) -> Rows:
        """Copy the oldest row: one record, none if no row is held."""
        return self.take(np.full(min(self.stored, 1), self.oldest_index % self.capacity))

    def slots_in_order(self) -> Integers:
        """List the slots that hold rows, the oldest first."""
        return np.arange(self.oldest_index, self.next_index) % self.capacity

    def segments(self) -> list[npt.NDArray[np.uint8]]:
        """Show the rows' bytes, oldest first, as two views of shape (n, itemsize): up to the seam, and after it."""
        first = self.oldest_index % self.capacity
        count = min(self.stored, self.capacity - first)
        raw = self._rows.view(np.uint8).reshape(self.capacity, -1)
        return [raw[first : first + count], raw[: self.stored - count]]

    def restored(self, next_index: int, stored: int) -> "Ring":
        """Make a ring alike with memory of its own, and room for rows that its `segments` are to be filled with."""
        ring = Ring(np.zeros(self.capacity, self._rows.dtype))  # zeros_like would touch every page
        ring.next_index, ring.stored = next_index, stored
        return ring

    def draw(self, batch_size: int, rng: np.random.Generator) -> Integers:
        """Draw slots that hold rows, uniformly, with replacement."""
        drawn = random_below(self.stored, batch_size, rng)
        if self.stored < self.capacity:  # in a full ring the slots are 0 .. capacity - 1, wherever it begins
            drawn += self.oldest_index
            drawn %= self.capacity
        return drawn

    def clear(self) -> None:
        """Forget every row; indexes go on counting."""
        self.stored = 0
