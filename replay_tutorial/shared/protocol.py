"""The protocol of the shared ring: stamps, and the kernels that read and write them.

    published(i) ──swap──▶ held(i + capacity, writer) ──store──▶ published(i + capacity)
                                  │ the writer dies
                                  ▼
                           held(i + capacity, NOBODY) ──swap──▶ held(i + 2 capacity, other) ──▶ ...

A writer claims a slot by swapping its own stamp in with compare-and-swap, which succeeds for one writer only.
It then copies the row and publishes it with a stamp that has no holder. A reader loads the stamp before and
after it copies a row: if both loads return the same published stamp, the row is complete.

    stamp               readable             can be claimed
    0: never written    no                   by the writer of the slot's first row
    published           yes                  by the writer of a later row
    held by a process   no: incomplete row   by no writer: the holder may only be stopped, and continue later
    held by NOBODY      no: incomplete row   by the writer of a later row: the holder is dead

The page "The shared ring" of the documentation explains why this is sufficient.

Built in chapter 06, *Shared memory*.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.priorities import NO_PRIORITY
from replay_tutorial.buffers.rows import copy_row
from replay_tutorial.buffers.runtime.jit import Floats, Integers, Words, jitable, kernel
from replay_tutorial.shared.atomics import (
    compare_and_swap,
    fence_acquire,
    fence_release,
    fetch_add,
    fetch_max,
    load_acquire,
    store_release,
)

# Layout of a stamp, from the lowest bit: whether the slot is held, its owner, index + 1.
HELD = 1
OWNER_SHIFT, OWNER_COUNT = 1, 1024
OWNER_BITS = (OWNER_COUNT - 1) << OWNER_SHIFT
INDEX_SHIFT = 11
# Owner of a slot that is not held, or whose writer died.
NOBODY = 0
# Index of a slot without a published row.
NO_INDEX = -1

# Positions in the counters, int64[COUNTER_WORDS]. Those that each `add` changes lie on cache lines of their
# own, to avoid false sharing.
NEXT_INDEX, PUBLISHED, UPDATER_PROCESS, LOG_BEGUN, LOG_END = 0, 8, 16, 17, 18
CLEARED, SAMPLED, REJECTED, STALE, DROPPED, CREATED_AT = 24, *range(26, 31)
COUNTER_WORDS = 32


PAGE_WORDS = 512  # of the smallest pages, 4 KiB


class RingArrays(NamedTuple):
    """The arrays that an append uses; the first four lie in shared memory."""

    counters: Integers
    stamps: Integers  # [capacity]
    rows: Words
    masses: Floats  # [capacity], the mass that the writer assigned to the row
    handle_counts: Integers  # [2], rows appended by this handle; of these, rows before the current episode
    largest_priority: Integers  # [1], its bits; in shared memory if the buffer is prioritized


@jitable
def published_stamp(index: int) -> int:
    """Return the stamp of a slot with a complete row."""
    return (index + 1) << INDEX_SHIFT


@jitable
def held_stamp(index: int, owner: int) -> int:
    """Return the stamp of a slot that `owner` is writing."""
    return published_stamp(index) | owner << OWNER_SHIFT | HELD


@jitable
def index_of(stamp: int) -> int:
    """Return the index in a stamp; NO_INDEX if the slot was never written."""
    return (stamp >> INDEX_SHIFT) - 1


@jitable
def owner_of(stamp: int) -> int:
    """Return the owner in a stamp."""
    return (stamp & OWNER_BITS) >> OWNER_SHIFT


@jitable
def is_held(stamp: int) -> bool:
    """Return whether a writer holds the slot; the writer may be dead."""
    return stamp & HELD != 0


@jitable
def abandoned(stamp: int) -> int:
    """Return the stamp of a slot whose writer has died: still held, because its row is incomplete."""
    return stamp & ~OWNER_BITS


@jitable
def published_index(stamp: int, cleared_before: int) -> int:
    """Return the index of the row published in a slot; NO_INDEX if there is none or it was cleared."""
    return NO_INDEX if is_held(stamp) or index_of(stamp) < cleared_before else index_of(stamp)


@kernel
def add_to_counter(counters: Integers, counter: int, count: int) -> int:
    """Add `count` to a counter and return the old value."""
    return fetch_add(counters, counter, count)


@kernel
def touch_words(words: Integers) -> None:
    """Write to each page of the memory without changing it."""
    for i in range(0, words.shape[0], PAGE_WORDS):
        compare_and_swap(words, i, 0, 0)  # not `fetch_add` of 0, of which LLVM makes a load


@kernel
def swap(words: Integers, place: int, expected: int, value: int) -> bool:
    """Set a word to `value` if it equals `expected`; return whether it did."""
    return compare_and_swap(words, place, expected, value)


@kernel
def raise_max(bits: Integers, value: float) -> None:
    """Raise the maximum, a float64 stored as bits, to at least `value`.

    As integers, the bits of non-negative floats have the same order as the floats; those of -1.0 are smaller.
    """
    new = np.float64(value + 0.0).view(np.int64)  # turns -0.0, whose bits are the smallest integer, into 0.0
    if new > load_acquire(bits, 0):
        fetch_max(bits, 0, new)


@kernel
def clear_rows(counters: Integers, handle_counts: Integers, largest_priority: Integers) -> None:
    """Clear all rows reserved so far, start a new episode of this handle, and reset the maximum priority."""
    fetch_max(counters, CLEARED, load_acquire(counters, NEXT_INDEX))  # another process may clear at once
    handle_counts[1] = handle_counts[0]
    largest_priority[0] = np.float64(NO_PRIORITY).view(np.int64)


@kernel
def write_rows(
    stamps: Integers,
    rows: Words,
    masses: Floats,
    new_rows: Words,
    new_masses: Floats,
    first_index: int,
    start: int,
    owner: int,
) -> int:
    """Write rows from position `start` on.

    Returns the position of the first row whose slot another writer holds, or the number of rows.
    """
    slot = (first_index + start) % stamps.shape[0] - 1
    for i in range(start, new_rows.shape[0]):
        # a division per row would cost as much as copying it
        slot = slot + 1 if slot + 1 < stamps.shape[0] else 0
        index = first_index + i
        while True:
            stamp = load_acquire(stamps, slot)
            if stamp >= published_stamp(index):
                break  # this process was stopped for a whole lap, and the slot has a newer row
            if is_held(stamp) and owner_of(stamp) != NOBODY:
                return i
            if compare_and_swap(stamps, slot, stamp, held_stamp(index, owner)):
                fence_release()  # otherwise a reader could see new data under the old stamp
                copy_row(rows, slot, new_rows, i)
                masses[slot] = new_masses[i]
                store_release(stamps, slot, published_stamp(index))  # publishes the whole row
                break
    return new_rows.shape[0]


@kernel
def append_rows(
    ring: Annotated[tuple[Any, ...], RingArrays],
    new_rows: Words,
    new_masses: Floats,
    owner: int,
    max_priority: float,
) -> tuple[int, int]:
    """Reserve indexes and write rows under them; return the first index and the result of `write_rows`.

    The kernel also counts the rows in `handle_counts` and raises the maximum priority. An interrupt cannot
    separate these steps, because Python handles it before or after the kernel.
    """
    counters, stamps, rows, masses, handle_counts, largest_priority = ring
    count = new_rows.shape[0]
    fetch_add(handle_counts, 0, count)
    raise_max(largest_priority, max_priority)
    first_index = fetch_add(counters, NEXT_INDEX, count)
    start = max(0, count - stamps.shape[0])  # of more rows than slots, only the last are written
    end = write_rows(stamps, rows, masses, new_rows, new_masses, first_index, start, owner)
    fetch_add(counters, PUBLISHED, end - start)
    return first_index, end


@kernel
def read_row(stamps: Integers, rows: Words, slot: int, cleared_before: int, copies: Words, place: int) -> int:
    """Copy the row in a slot; return its index, or NO_INDEX if it was not published throughout the copy."""
    stamp = load_acquire(stamps, slot)
    index = published_index(stamp, cleared_before)
    if index == NO_INDEX:
        return NO_INDEX
    copy_row(copies, place, rows, slot)
    fence_acquire()  # otherwise the second load could run before the copy is complete
    return index if load_acquire(stamps, slot) == stamp else NO_INDEX


@kernel
def read_slots(
    stamps: Integers, rows: Words, slots: Integers, cleared_before: int, copies: Words, failed: Integers
) -> int:
    """Copy the rows in `slots`; return how many failed, and write their positions to `failed`."""
    failures = 0
    for i in range(slots.shape[0]):
        if read_row(stamps, rows, slots[i], cleared_before, copies, i) == NO_INDEX:
            failed[failures] = i
            failures += 1
    return failures


@kernel
def read_drawn(
    stamps: Integers,
    rows: Words,
    indexes: Integers,
    positions: Integers,
    cleared_before: int,
    copies: Words,
    failed: Integers,
) -> int:
    """Copy the row `indexes[position]` to `copies[position]`, for each of the positions.

    Returns how many failed because their slot does not hold that row, and writes their positions to `failed`.
    """
    failures = 0
    for i in range(positions.shape[0]):
        position = positions[i]
        index = indexes[position]
        if read_row(stamps, rows, index % stamps.shape[0], cleared_before, copies, position) != index:
            failed[failures] = position
            failures += 1
    return failures


@kernel
def load_indexes(stamps: Integers, slots: Integers, cleared_before: int, indexes: Integers) -> None:
    """Write the index of the row published in each slot, or NO_INDEX, to `indexes`."""
    for i in range(slots.shape[0]):
        indexes[i] = published_index(load_acquire(stamps, slots[i]), cleared_before)
