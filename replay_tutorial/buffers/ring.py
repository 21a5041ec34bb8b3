"""The ring of one process: stores the newest rows.

Transitions are numbered from 0 by an index that is never reused. Row `index` is stored in slot
`index % capacity`, where it replaces row `index - capacity`. Because an index always identifies the same
transition, updates of a row that has been replaced can be detected.

    slot    0  1   2  3  4  5  6  7        capacity 8, next_index 11: the oldest row is 3,
    index   8  9  10  3  4  5  6  7        and row 11 will replace it in slot 3

New rows are assembled beside the ring, and one kernel copies them into their slots and advances the counters.
Python handles Ctrl-C only between two of its own instructions, so it comes before the kernel or after it, and
never leaves a row half-written or uncounted.

Built in chapter 01, *Uniform replay*.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Rows, StagedRows, as_bytes, as_records
from replay_tutorial.buffers.rows import copy_rows, take_rows
from replay_tutorial.buffers.runtime.jit import Bytes, Floats, Integers, Matrix, kernel

# Positions in the counters, int64[3]: index of the next row; rows before this index have been cleared; and,
# in a prioritized buffer, the row up to which the sum tree is up to date.
NEXT_INDEX, CLEARED, SYNCED = 0, 1, 2

BYTES_AT_ONCE = 1 << 22  # a larger batch is appended in parts, each of which fits into the processor's cache

Change = tuple[Matrix, Matrix]  # state and new_state of `append_and_change`


@kernel
def append_rows(rows: Bytes, counters: Integers, new_rows: Bytes) -> int:
    """Append rows, which replace the oldest ones if the ring is full; return the index of the first."""
    first_index, capacity, count = counters[NEXT_INDEX], rows.shape[0], new_rows.shape[0]
    first = max(0, count - capacity)  # of more rows than slots, only the last are stored
    slot = (first_index + first) % capacity
    before_wrap = min(count - first, capacity - slot)
    copy_rows(rows, slot, new_rows, first, before_wrap)
    copy_rows(rows, 0, new_rows, first + before_wrap, count - first - before_wrap)
    counters[NEXT_INDEX] = first_index + count
    return first_index


@kernel
def append_and_change(
    rows: Bytes, counters: Integers, new_rows: Bytes, state: Matrix, new_state: Matrix
) -> int:
    """Append rows, and set `state` to `new_state`: the positions of an n-step window's pending steps.

    In two calls, Ctrl-C could come between them, and steps would be both in rows and pending.
    """
    first_index = append_rows(rows, counters, new_rows)
    for i in range(state.shape[0]):
        state[i] = new_state[i]
    return first_index


@kernel
def draw_slots(counters: Integers, capacity: int, uniforms: Floats, slots: Integers) -> None:
    """Write a slot of a stored row for each number in [0, 1); all rows are equally likely.

    The relative bias is at most capacity / 2^53.
    """
    next_index = counters[NEXT_INDEX]
    oldest_index = max(counters[CLEARED], next_index - capacity)
    stored = next_index - oldest_index
    for i in range(slots.shape[0]):
        drawn = np.int64(uniforms[i] * stored)
        # in a full ring every slot holds a row, so no offset is needed
        slots[i] = drawn if stored == capacity else (oldest_index + drawn) % capacity


def parts_of(
    count: int, columns: Sequence[Any], masses: Floats | float | None, at_once: int
) -> Iterator[tuple[int, Sequence[Any], Floats | float | None]]:
    """Split a batch into parts of at most `at_once` rows: the number, columns and masses of each."""
    for first in range(0, count, at_once):
        part_count = min(at_once, count - first)
        rows = slice(first, first + part_count) if part_count > 1 else first
        part_masses = masses[rows] if isinstance(masses, np.ndarray) else masses
        yield part_count, [column[rows] for column in columns], part_masses


class Ring:
    """Stores the newest rows.

    Attributes:
        capacity: Number of slots.
        counters: int64[3]; see the positions above.
        bytes: The rows as uint8[capacity, bytes of a row].
    """

    def __init__(self, capacity: int, dtype: np.dtype[np.void], next_index: int = 0, stored: int = 0) -> None:
        """Reserve memory for the rows; pages are allocated when they are first written.

        The caller must write `stored` rows to `segments()`; the last one has the index `next_index - 1`.
        """
        self.capacity, self.dtype = capacity, dtype
        self.counters: Integers = np.zeros(3, np.int64)
        self.counters[[NEXT_INDEX, CLEARED]] = next_index, next_index - stored
        self.bytes: Bytes = as_bytes(np.zeros(capacity, dtype))
        self._rows_at_once = max(1, BYTES_AT_ONCE // dtype.itemsize)
        self._one_row = self._batch = StagedRows(1, dtype)

    def __getstate__(self) -> dict[str, Any]:  # without staged rows, whose views would become copies
        return {name: value for name, value in self.__dict__.items() if name not in ("_one_row", "_batch")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._one_row = self._batch = StagedRows(1, self.dtype)

    @property
    def next_index(self) -> int:
        """Index of the next row."""
        return self.counters.item(NEXT_INDEX)

    @property
    def oldest_index(self) -> int:
        """Index of the oldest stored row; `next_index` if there is none."""
        return max(self.counters.item(CLEARED), self.counters.item(NEXT_INDEX) - self.capacity)

    def check_not_empty(self, batch_size: int) -> None:
        """Raise ValueError if no row is stored."""
        if self.counters.item(NEXT_INDEX) == self.counters.item(CLEARED):
            raise ValueError(f"Can't sample {batch_size} transitions: the buffer is empty. Add some first.")

    @property
    def stored(self) -> int:
        """Number of stored rows."""
        return self.next_index - self.oldest_index

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows."""
        return self.bytes.nbytes

    def append(
        self,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None = None,
        max_priority: float | None = None,
        change: Change | None = None,
    ) -> int:
        """Append rows, given by one array per field, or one value per field of a single row.

        Return the index of the first row. A ring without priorities ignores the masses. `change` is made
        together with the rows, of which there may be none.
        """
        if count == 1:
            staged = self._one_row
            staged.records[0] = tuple(columns)  # faster than `write`
        elif count > self._rows_at_once and change is None:
            return self._append_in_parts(count, columns, masses, max_priority)
        else:
            staged = self._stage(count, columns)
        if change is None:
            return append_rows(self.bytes, self.counters, staged.bytes)
        return append_and_change(self.bytes, self.counters, staged.bytes, *change)

    def _append_in_parts(
        self, count: int, columns: Sequence[Any], masses: Floats | float | None, max_priority: float | None
    ) -> int:
        """Append a large batch; Ctrl-C may come between two parts."""
        first_index = self.next_index
        for part in parts_of(count, columns, masses, self._rows_at_once):
            self.append(*part, max_priority)
        return first_index

    def _stage(self, count: int, columns: Sequence[Any]) -> StagedRows:
        """Assemble several rows beside the ring; the memory is reused by a batch of the same size."""
        if self._batch.count != count:
            self._batch = StagedRows(count, self.dtype)
        self._batch.write(columns)
        return self._batch

    def slot_numbers(self, first_index: int, end_index: int) -> Integers:
        """Return the slots of the rows from `first_index` up to, but not including, `end_index`."""
        return np.arange(first_index, end_index) % self.capacity

    def draw(self, batch_size: int, rng: np.random.Generator) -> Integers:
        """Sample slots of stored rows uniformly with replacement: int64[batch_size]."""
        self.check_not_empty(batch_size)
        slots = np.empty(batch_size, np.int64)
        draw_slots(self.counters, self.capacity, rng.random(batch_size), slots)
        return slots

    def take(self, slots: Integers) -> Rows:
        """Return a copy of the rows in `slots`, int64[n], each of which must hold a row.

        Rows are copied as whole records: one memory access per row instead of one per field.
        """
        copies = np.empty((len(slots), self.bytes.shape[1]), np.uint8)
        take_rows(self.bytes, slots, copies)
        return as_records(copies, self.dtype)

    def slots_in_order(self) -> Integers:
        """Return the slots of all stored rows, oldest first."""
        return self.slot_numbers(self.oldest_index, self.next_index)

    def segments(self) -> list[npt.NDArray[np.uint8]]:
        """Return the rows, oldest first, as two views, uint8[n, itemsize], split at the wrap-around."""
        first, stored = self.oldest_index % self.capacity, self.stored
        count = min(stored, self.capacity - first)
        return [self.bytes[first : first + count], self.bytes[: stored - count]]

    def cleared(self) -> "Ring":
        """Return an empty ring that uses the same memory and continues the index count."""
        ring = copy.copy(self)
        ring.counters = self.counters.copy()
        ring.counters[CLEARED] = self.next_index
        return ring
