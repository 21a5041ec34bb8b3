"""A ring buffer of rows: stores the newest `capacity` transitions.

Transitions are numbered from 0 by an index that is never reused. Row `index` is stored in slot
`index % capacity`, where it replaces row `index - capacity`. Because an index always identifies the same
transition, updates of a row that has been replaced can be detected.

    slot    0  1   2  3  4  5  6  7        capacity 8, next_index 11: the oldest row is 3,
    index   8  9  10  3  4  5  6  7        and row 11 will replace it in slot 3

CPython raises KeyboardInterrupt only where it checks for signals: at the start of a function, at a backward
jump and after a call. Attributes that must change together are therefore assigned in one statement without
a call, with values computed beforehand; a loop over columns is a `map` that the statement exhausts.
"""

import copy
from collections.abc import Iterable, Sequence
from itertools import repeat, starmap
from operator import setitem
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Rows, as_bytes
from replay_tutorial.buffers.rows import random_below, take_rows
from replay_tutorial.buffers.runtime.jit import Integers

Assignment = tuple[Any, Any, Any]  # target, key and value of `target[key] = value`


class Ring:
    """Stores the newest rows.

    Attributes:
        capacity: Number of slots.
        next_index: Index of the next row.
        stored: Number of stored rows, at most the capacity.
        bytes: The rows as uint8[capacity, bytes of a row].
    """

    def __init__(self, capacity: int, dtype: np.dtype[np.void], next_index: int = 0, stored: int = 0) -> None:
        """Reserve memory for the rows; pages are allocated when they are first written.

        The caller must write `stored` rows to `segments()`; the last one has the index `next_index - 1`.
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
        """Index of the oldest stored row; `next_index` if there is none."""
        return self.next_index - self.stored

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows."""
        return self._rows.nbytes

    def append(self, count: int, columns: Sequence[Any], assignments: Iterable[Assignment] = ()) -> int:
        """Append `count` rows, which replace the oldest ones if the ring is full; return the first index.

        `columns` are one array per field, of shape (count, …), or one value per field if count is 1. The
        assignments are made atomically with the rows: Ctrl-C interrupts before or after all of them.
        """
        first_index, stored = self.next_index, self.stored
        if stored < self.capacity:
            stored = min(stored + count, self.capacity)
        others = starmap(setitem, assignments) if assignments else None
        if count == 1:
            slot, row = first_index % self.capacity, tuple(columns)
            if others is None:  # faster than the next branch
                self._rows[slot], self.next_index, self.stored = row, first_index + 1, stored
            else:
                self._rows[slot], self.next_index, self.stored, _ = row, first_index + 1, stored, [*others]
        else:
            rows = map(setitem, self._columns, repeat(self.slots_of(first_index, count)), columns)
            self.next_index, self.stored, _ = first_index + count, stored, [*rows, *(others or ())]
        return first_index

    def slots_of(self, first_index: int, count: int) -> slice | Integers:
        """Return the slots of `count` consecutive rows: a slice, or int64[count] if they wrap around.

        If there are more rows than slots, slots are repeated, and an assignment to them keeps the last rows.
        """
        slot = first_index % self.capacity
        if slot + count <= self.capacity:
            return slice(slot, slot + count)
        return self.slot_numbers(first_index, first_index + count)

    def slot_numbers(self, first_index: int, end_index: int) -> Integers:
        """Return the slots of the rows from `first_index` up to, but not including, `end_index`."""
        return np.arange(first_index, end_index) % self.capacity

    def draw(self, batch_size: int, rng: np.random.Generator) -> Integers:
        """Sample slots of stored rows uniformly with replacement: int64[batch_size]."""
        drawn = random_below(self.stored, batch_size, rng)
        if self.stored < self.capacity:  # in a full ring every slot holds a row, so no offset is needed
            drawn += self.oldest_index
            drawn %= self.capacity
        return drawn

    def take(self, slots: Integers) -> Rows:
        """Return a copy of the rows in `slots`, int64[n], each of which must hold a row.

        Rows are copied as whole records: one memory access per row instead of one per field.
        """
        copies = np.empty((len(slots), self.bytes.shape[1]), np.uint8)
        take_rows(self.bytes, slots, copies)
        return copies.view(self._rows.dtype).reshape(-1)

    def slots_in_order(self) -> Integers:
        """Return the slots of all stored rows, oldest first."""
        return self.slot_numbers(self.oldest_index, self.next_index)

    def segments(self) -> list[npt.NDArray[np.uint8]]:
        """Return the rows, oldest first, as two views, uint8[n, itemsize], split at the wrap-around."""
        first = self.oldest_index % self.capacity
        count = min(self.stored, self.capacity - first)
        raw = self._rows.view(np.uint8).reshape(self.capacity, -1)
        return [raw[first : first + count], raw[: self.stored - count]]

    def cleared(self) -> "Ring":
        """Return an empty ring that uses the same memory and continues the index count."""
        ring = copy.copy(self)
        ring.stored = 0
        return ring
