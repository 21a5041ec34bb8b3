"""The shared ring: any number of writers and samplers, no lock.

Each slot has a stamp: the index of its row, and its holder, if any. A writer reserves indexes with one atomic
add and writes its rows as `protocol` describes; a row becomes visible only when it is complete.

No process waits for another. A writer skips a slot that another process holds, and the row gets a new index.
If the holder is dead, others may write the slot. If the holder is only stopped (SIGSTOP, a debugger), the
slot stays held, because the holder may resume writing. A thread holds one slot at a time, and only while it
copies one row.

Indexes that a killed writer reserved but did not write stay empty until the next lap overwrites their slots.

Built in chapter 06, *Shared memory*.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from replay_tutorial.buffers.fields import Rows, StagedRows
from replay_tutorial.buffers.priorities import NO_PRIORITY, Prioritization
from replay_tutorial.buffers.rows import random_below
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers, Words
from replay_tutorial.buffers.streams import state_before
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import (
    CLEARED,
    COUNTER_WORDS,
    CREATED_AT,
    DROPPED,
    NEXT_INDEX,
    NO_INDEX,
    PUBLISHED,
    REJECTED,
    SAMPLED,
    RingArrays,
    add_to_counter,
    append_rows,
    clear_rows,
    index_of,
    is_held,
    load_indexes,
    read_drawn,
    read_slots,
    touch_words,
    write_rows,
)
from replay_tutorial.shared.registry import WriterRegistry

MAX_DRAWS = 1000
MAX_KEPT = 1 << 22  # bytes of a staging buffer that is kept for the next batch
# Attempts to write a row whose slots are held by other writers.
MAX_ATTEMPTS = 10
# Slots checked at once when rows are counted.
SLOTS_PER_CHECK = 1 << 16


def ring_specs(capacity: int, dtype: np.dtype[np.void], prefix: str = "") -> Specs:
    """Return the specs of a ring's shared arrays; the record size must be a multiple of 8 bytes."""
    integer = np.dtype(np.int64)
    return {
        f"{prefix}stamps": ((capacity,), integer),
        f"{prefix}rows": ((capacity, dtype.itemsize // 8), np.dtype(np.uint64)),
        f"{prefix}masses": ((capacity,), np.dtype(np.float64)),
        f"{prefix}counters": ((COUNTER_WORDS,), integer),
    }


class SharedRing:
    """Rows in shared memory with their masses and stamps.

    Attributes:
        capacity: Number of slots.
        dtype: Record dtype of a row.
        stamps: int64[capacity].
        rows: uint64[capacity, words].
        masses: float64[capacity], the mass that the writer assigned to the row.
        writers: Registry of the processes that write to the ring.
        counters: int64[COUNTER_WORDS], at the positions that `protocol` defines.
        dropped: Rows that this process dropped.
        rules: Conversion of priorities to masses; in a prioritized buffer only.
        free_buffers: Staging buffers for later calls; allocating one takes longer than filling it.
    """

    rules: Prioritization

    def __init__(
        self,
        arrays: SharedArrays,
        dtype: np.dtype[np.void],
        writers: WriterRegistry,
        prefix: str = "",
        largest_priority: Floats | None = None,
    ) -> None:
        """Use the arrays that `ring_specs` described; `append` raises the maximum in `largest_priority`."""
        self.stamps = arrays[f"{prefix}stamps"]
        self.rows = arrays[f"{prefix}rows"]
        self.counters = arrays[f"{prefix}counters"]
        self.writers = writers
        self.dtype = dtype
        self.masses = arrays[f"{prefix}masses"]
        self.capacity = len(self.stamps)
        self.dropped = 0
        self.free_buffers: list[StagedRows] = []
        self._checked: tuple[int, Integers, int] = (0, np.empty(0, np.int64), 0)
        # Rows appended by this handle; of these, rows before the current episode.
        self.handle_counts = np.zeros(2, np.int64)
        largest_priority = np.zeros(1) if largest_priority is None else largest_priority
        self.largest_priority: Integers = largest_priority.view(np.int64)
        shared = (self.counters, self.stamps, self.rows, self.masses)
        self._arrays = tuple(RingArrays(*shared, self.handle_counts, self.largest_priority))
        if self.counters[CREATED_AT] == 0:
            self.counters[CREATED_AT] = time.time_ns()

    @property
    def next_index(self) -> int:
        """Index of the next row."""
        return int(self.counters[NEXT_INDEX])

    @property
    def cleared_before(self) -> int:
        """Rows with an index below this one have been cleared."""
        return int(self.counters[CLEARED])

    def end_episode(self) -> None:
        """Begin a new episode of this handle with the next row."""
        self.handle_counts[1] = self.handle_counts[0]

    def touch_pages(self) -> None:
        """Allocate all memory pages, while other processes may be writing to them."""
        for memory in (self.rows, self.stamps, self.masses):
            touch_words(memory.reshape(-1).view(np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows, stamps and masses."""
        return self.rows.nbytes + self.stamps.nbytes + self.masses.nbytes

    @property
    def stored(self) -> int:
        """Number of slots with a readable row.

        Counted from the stamps, because a killed writer's counters can be wrong. Each slot is checked once
        its newest index has been reserved, and again until that row is published. O(rows added since the last
        call in this process).
        """
        # In this order, so that next_index is not below cleared_before.
        cleared_before, next_index = self.cleared_before, self.next_index
        checked_to, waiting, missing = self._checked
        oldest = max(cleared_before, next_index - self.capacity)
        if len(waiting) or next_index > checked_to:
            again, waiting, missing = waiting[waiting >= oldest], waiting[:0], 0
            for first in range(max(checked_to, oldest), next_index + 1, SLOTS_PER_CHECK):
                new = np.arange(first, min(first + SLOTS_PER_CHECK, next_index))
                indexes = np.concatenate([again, new])
                there = self.indexes(indexes % self.capacity)
                missing += int(np.count_nonzero(there == NO_INDEX))
                again, waiting = again[:0], np.concatenate([waiting, indexes[there < indexes]])
            # In one assignment, because another thread may read the tuple.
            self._checked = next_index, waiting, missing
        return next_index - oldest - missing

    def append(
        self,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None = None,
        max_priority: float = NO_PRIORITY,
    ) -> int:
        """Append rows, given by one array per field, or one value per field of a single row.

        `masses` are one per row, one for all rows, or None. Return the index of the first row.
        """
        try:
            staged = self.free_buffers.pop()  # belongs to this thread until it is appended again
        except IndexError:
            staged = None
        if staged is None or staged.count != count:
            staged = StagedRows(count, self.dtype)
        if count == 1:
            staged.records[0] = tuple(columns)  # faster than `write`
        else:
            staged.write(columns)
        if masses is not None:
            staged.masses[...] = masses
        index = self.write(staged.words, staged.masses, max_priority)
        if staged.bytes.nbytes <= MAX_KEPT:
            self.free_buffers.append(staged)
        return index

    def write(
        self,
        new_rows: Words,
        new_masses: Floats,
        max_priority: float = NO_PRIORITY,
        attempts: int = MAX_ATTEMPTS,
    ) -> int:
        """Write one or more rows; return the index of the first.

        Of more than `capacity` rows, only the last `capacity` are written. A row is dropped if all `attempts`
        slots that it is assigned are held by other writers.
        """
        owner, count = self.writers.writer_number(), len(new_rows)
        first_index, i = append_rows(self._arrays, new_rows, new_masses, owner, max_priority)
        if i == count:
            return first_index
        passed_over: list[int] = []
        while i < count:
            if not self.writers.release_if_dead(self.stamps, (first_index + i) % self.capacity):
                passed_over.append(i)
                i += 1
            end = write_rows(self.stamps, self.rows, self.masses, new_rows, new_masses, first_index, i, owner)
            self.count(PUBLISHED, end - i)
            i = end
        if not passed_over:
            return first_index
        if attempts == 1:
            self.count(DROPPED, len(passed_over))
            self.dropped += len(passed_over)
            return first_index
        self.handle_counts[0] -= len(passed_over)
        index = self.write(new_rows[passed_over], new_masses[passed_over], attempts=attempts - 1)
        return index if passed_over[0] == 0 else first_index

    def draw(self, batch_size: int, rng: np.random.Generator) -> Rows:
        """Draw rows uniformly, with replacement; rows overwritten meanwhile are drawn again."""
        self.check_not_empty(batch_size)
        copies = self.empty_words(batch_size)
        missing = self.read(self._draw_slots(batch_size, rng), copies)
        before = state_before(rng, batch_size) if len(missing) else {}
        for attempt in range(MAX_DRAWS):
            if len(missing) == 0:
                self.count(SAMPLED, batch_size)
                return self.as_rows(copies)
            self.count(REJECTED, len(missing))
            slots = self._draw_slots(len(missing), rng)
            if attempt % 10 == 9:
                time.sleep(0.001)  # the system may have paused a writer
                published = self.published_slots()  # few of the reserved rows may ever be published
                if len(published):
                    slots = rng.choice(published, len(missing))
            part = self.empty_words(len(missing))
            failed = self.read(slots, part)
            copies[missing] = part
            missing = missing[failed]
        rng.bit_generator.state = before
        raise self.no_row_error(batch_size)

    def _draw_slots(self, count: int, rng: np.random.Generator) -> Integers:
        """Draw slots for which an index has been reserved."""
        end = self.next_index
        span = max(1, min(end - self.cleared_before, self.capacity))
        drawn = random_below(span, count, rng)
        drawn += end - span
        drawn %= self.capacity
        return drawn

    def read(self, slots: Integers, copies: Words) -> Integers:
        """Copy the rows in `slots`; return the positions, int64[m], of the slots without a complete row."""
        failed = np.empty(len(slots), np.int64)
        return failed[: read_slots(self.stamps, self.rows, slots, self.cleared_before, copies, failed)]

    def check_not_empty(self, batch_size: int) -> None:
        """Raise ValueError if no row has been added."""
        if self.stored:
            return
        if self.next_index == self.cleared_before:
            raise ValueError(
                f"Can't sample {batch_size} transitions: the buffer is empty. Add some first, or call "
                "wait_for."
            )
        stamps = self.stamps.copy()  # read once: all rows of a tiny ring may be held for a moment
        if not (is_held(stamps) | (index_of(stamps) >= self.cleared_before)).any():
            raise self.no_row_error(batch_size)

    def no_row_error(self, batch_size: int) -> Exception:
        """Return the exception that explains why no row could be drawn."""
        if len(self.published_slots()) == 0:
            return ValueError(
                f"sample({batch_size}) requires at least 1 stored transition; no added row is complete."
            )
        return RuntimeError(
            f"Writers overwrite rows so fast that {MAX_DRAWS} draws read no row; increase the capacity."
        )

    def indexes(self, slots: Integers) -> Integers:
        """Return the indexes of the rows published in `slots`, int64[n], or NO_INDEX."""
        indexes = np.empty(len(slots), np.int64)
        load_indexes(self.stamps, slots, self.cleared_before, indexes)
        return indexes

    def published_indexes(self) -> Integers:
        """Return the indexes of the published rows, oldest first. O(capacity)."""
        indexes = self.indexes(np.arange(min(self.next_index, self.capacity)))
        return np.sort(indexes[indexes != NO_INDEX])

    def published_slots(self) -> Integers:
        """Return the slots with published rows, oldest first. O(capacity)."""
        return self.published_indexes() % self.capacity

    def take(self, indexes: Integers) -> tuple[Rows, Flags]:
        """Return copies of the rows with these indexes that are published, and which are: bool[n]."""
        copies, failed = self.empty_words(len(indexes)), np.empty(len(indexes), np.int64)
        positions, stored = np.arange(len(indexes)), np.ones(len(indexes), np.bool_)
        arguments = self.stamps, self.rows, indexes, positions, self.cleared_before
        stored[failed[: read_drawn(*arguments, copies, failed)]] = False
        return self.as_rows(copies if stored.all() else copies[stored]), stored

    def empty_words(self, count: int) -> Words:
        """Return uninitialised memory for the words of `count` rows."""
        return np.empty((count, self.rows.shape[1]), np.uint64)

    def count(self, counter: int, events: int) -> None:
        """Add to a counter of the statistics."""
        if events:
            add_to_counter(self.counters, counter, events)

    def reject(self, rows: int) -> None:
        """Move rows from the counter of sampled rows to that of rejected rows."""
        self.count(SAMPLED, -rows)
        self.count(REJECTED, rows)

    def as_rows(self, copies: Words) -> Rows:
        """View copied words as records."""
        return np.ndarray(len(copies), self.dtype, copies)

    def clear(self) -> None:
        """Clear all rows reserved so far, start a new episode, and reset the maximum priority."""
        clear_rows(self.counters, self.handle_counts, self.largest_priority)
