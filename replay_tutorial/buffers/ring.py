"""A ring of rows: the newest `capacity` transitions, each under an index that is never used again.

The index counts transitions from 0; row `index` lies in slot `index % capacity`, where it replaces the row
`index - capacity`. Because an index names one transition forever, whoever still holds it after the row has
been replaced can be told so.

    slot    0  1   2  3  4  5  6  7        capacity 8, next_index 11: the oldest row is 3,
    index   8  9  10  3  4  5  6  7        and row 11 will replace it in slot 3

Ctrl-C raises KeyboardInterrupt where CPython checks for signals: at the start of a function, at a backward
jump, and after a call. So what belongs together is assigned in one statement that makes no call, and the
values are computed before it. A loop over columns is a `map` that such a statement exhausts.

Left out: what a row means (`fields`).
"""

import copy
from collections.abc import Iterable, Sequence
from itertools import repeat, starmap
from operator import setitem
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Rows, as_bytes
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.buffers.rows import random_below, take_rows

Assignment = tuple[Any, Any, Any]  # target, key and value of `target[key] = value`


class Ring:
    """Storage for the newest rows.

    Attributes:
        capacity: Number of slots.
        next_index: The index that the next row will get.
        stored: Number of rows held, at most the capacity.
        bytes: The rows as uint8[capacity, bytes of a row].
    """

    def __init__(self, capacity: int, dtype: np.dtype[np.void], next_index: int = 0, stored: int = 0) -> None:
        """Reserve memory for rows; pages are handed out when they are first written.

        Args:
            capacity: Number of slots.
            dtype: The record that a row is.
            next_index: Where to begin to count.
            stored: Rows that are to be read into `segments`.
        """
        self.capacity = capacity
        self.next_index = next_index
        self.stored = stored
        self._rows: Rows = np.zeros(capacity, dtype)
        self._make_views()

    def _make_views(self) -> None:
        self.bytes = as_bytes(self._rows)
        self._columns: list[Any] = [self._rows[name] for name in self._rows.dtype.names or ()]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_columns", "bytes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_views()

    @property
    def oldest_index(self) -> int:
        """The index of the oldest row held; `next_index` if there is none."""
        return self.next_index - self.stored

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows."""
        return self._rows.nbytes

    def append(self, count: int, columns: Sequence[Any], also: Iterable[Assignment] = ()) -> int:
        """Add rows; the oldest make room.

        Args:
            count: How many.
            columns: For each field what is assigned to it: shape (count, …), or one value if count is 1.
            also: What is assigned together with the rows; an interrupt comes before all of it, or after.

        Returns:
            The index of the first of them.
        """
        first_index, stored = self.next_index, self.stored
        if stored < self.capacity:
            stored = min(stored + count, self.capacity)
        others = starmap(setitem, also) if also else None
        if count == 1:
            slot, row = first_index % self.capacity, tuple(columns)
            if others is None:  # as below, and faster
                self._rows[slot], self.next_index, self.stored = row, first_index + 1, stored
            else:
                self._rows[slot], self.next_index, self.stored, _ = row, first_index + 1, stored, [*others]
        else:
            rows = map(setitem, self._columns, repeat(self.slots_of(first_index, count)), columns)
            self.next_index, self.stored, _ = first_index + count, stored, [*rows, *(others or ())]
        return first_index

    def slots_of(self, first_index: int, count: int) -> slice | Integers:
        """Find the slots of `count` consecutive rows: a slice, or int64[count] across the wrap-around.

        Of more rows than there are slots the last ones stay: of a repeated slot NumPy keeps the last value.
        """
        slot = first_index % self.capacity
        if slot + count <= self.capacity:
            return slice(slot, slot + count)
        return self.slot_numbers(first_index, first_index + count)

    def slot_numbers(self, first_index: int, end_index: int) -> Integers:
        """List the slots of the rows from `first_index` on, up to but not including `end_index`."""
        return np.arange(first_index, end_index) % self.capacity

    def draw(self, batch_size: int, rng: np.random.Generator) -> Integers:
        """Draw slots that hold rows, uniformly, with replacement: int64[batch_size]."""
        drawn = random_below(self.stored, batch_size, rng)
        if self.stored < self.capacity:  # in a full ring the slots are 0 to capacity - 1, wherever it begins
            drawn += self.oldest_index
            drawn %= self.capacity
        return drawn

    def take(self, slots: Integers) -> Rows:
        """Copy the rows in `slots`, int64[n], each of which must hold one.

        A whole record at a time: one visit to memory per row, where field by field it would be one per field.
        """
        copies = np.empty((len(slots), self.bytes.shape[1]), np.uint8)
        take_rows(self.bytes, slots, copies)
        return copies.view(self._rows.dtype).reshape(-1)

    def slots_in_order(self) -> Integers:
        """List the slots that hold rows, the oldest first."""
        return self.slot_numbers(self.oldest_index, self.next_index)

    def segments(self) -> list[npt.NDArray[np.uint8]]:
        """Return the rows, oldest first, in two views, uint8[n, itemsize]: a ring wraps around."""
        first = self.oldest_index % self.capacity
        count = min(self.stored, self.capacity - first)
        raw = self._rows.view(np.uint8).reshape(self.capacity, -1)
        return [raw[first : first + count], raw[: self.stored - count]]

    def emptied(self) -> "Ring":
        """Make a ring without rows in the same memory, whose indexes go on counting."""
        ring = copy.copy(self)
        ring.stored = 0
        return ring
