"""The protocol of the shared ring: stamps, and the kernels that keep to them.

    published(i) ──swap──▶ held(i + capacity, writer) ──store──▶ published(i + capacity)
                                  │ the writer dies
                                  ▼
                           held(i + capacity, NOBODY) ──swap──▶ held(i + 2 capacity, other) ──▶ ...

A writer takes a slot by swapping in a stamp of its own, which succeeds for one writer only, copies the row,
and publishes it with a stamp that nobody holds. Whoever reads a row looks at the stamp before and after: if
it is the same published one, the row is whole.

    stamp               may be read          may be taken, by a swap
    0: never written    no                   by the writer of its first row
    published           yes                  by the writer of a later row
    held by a process   no: half a row       by nobody: a process that was only stopped may write on
    held by NOBODY      no: half a row       by the writer of a later row: its holder is dead

Why this is enough is told on the site's page "The shared ring".
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers, Words, jitable, kernel
from replay_tutorial.buffers.rows import copy_row
from replay_tutorial.shared.atomics import (
    compare_and_swap,
    fence_acquire,
    fence_release,
    fetch_add,
    fetch_max,
    load_acquire,
    store_release,
)

# A stamp, from the lowest bit on: whether the slot is held, by whom, index + 1.
HELD = 1
OWNER_SHIFT, OWNER_COUNT = 1, 1024
OWNER_BITS = (OWNER_COUNT - 1) << OWNER_SHIFT
INDEX_SHIFT = 11
# The owner of a slot that nobody holds, or whose writer died in it.
NOBODY = 0
# No row's index: that of a slot without a published row.
NO_INDEX = -1

# Where the counters stand in int64[COUNTER_WORDS]: those of writers and sampler on cache lines of their own,
# so that neither slows the other down.
NEXT_INDEX, PUBLISHED, SAMPLER_PROCESS = 0, 8, 16
CLEARED, SAMPLED, REJECTED, STALE, DROPPED, BORN, CLAIMS = 24, *range(26, 32)
COUNTER_WORDS = 32


class RingArrays(NamedTuple):
    """All that an append works on; the first four lie in shared memory."""

    counters: Integers
    stamps: Integers  # [capacity]
    rows: Words
    masses: Floats  # [capacity], the mass that a row's writer gave it
    own: Integers  # [2], rows that this handle appended, and those before its open episode
    max_given: Integers  # [1], the bits of the maximum of the priorities, in shared memory if there are any


@jitable
def published_stamp(index: int) -> int:
    """Return the stamp of a slot with a whole row."""
    return (index + 1) << INDEX_SHIFT


@jitable
def held_stamp(index: int, owner: int) -> int:
    """Return the stamp of a slot that a writer works on."""
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
    """Return whether a writer works on the slot, or has died there."""
    return stamp & HELD != 0


@jitable
def abandoned(stamp: int) -> int:
    """Return the stamp of a slot whose writer has died: still held, as its row is half written, by NOBODY."""
    return stamp & ~OWNER_BITS


@jitable
def published_index(stamp: int, cleared_before: int) -> int:
    """Return the index of the published row in a slot; NO_INDEX if there is none, or it is cleared."""
    return NO_INDEX if is_held(stamp) or index_of(stamp) < cleared_before else index_of(stamp)


@kernel
def reserve(counters: Integers, counter: int, count: int) -> int:
    """Add to a counter and return what was there before."""
    return fetch_add(counters, counter, count)


@kernel
def swap(words: Integers, place: int, expected: int, value: int) -> bool:
    """Put a value where the expected one is; return whether it was."""
    return compare_and_swap(words, place, expected, value)


@kernel
def raise_max(bits: Integers, value: float) -> None:
    """Raise a maximum of floats by their bits, which from 0 on have their order; -1.0 is below."""
    new = np.float64(value + 0.0).view(np.int64)  # not -0.0, whose bits are those of the smallest integer
    if new > load_acquire(bits, 0):
        fetch_max(bits, 0, new)


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
    """Write rows from `start` on; return the first whose slot another writer holds, or their number."""
    slot = (first_index + start) % stamps.shape[0] - 1
    for i in range(start, new_rows.shape[0]):
        # a division per row would cost as much as its copy
        slot = slot + 1 if slot + 1 < stamps.shape[0] else 0
        index = first_index + i
        while True:
            stamp = load_acquire(stamps, slot)
            if stamp >= published_stamp(
                index
            ):  # this process was stopped for a whole lap: a newer row is there
                break
            if is_held(stamp) and owner_of(stamp) != NOBODY:
                return i
            if compare_and_swap(stamps, slot, stamp, held_stamp(index, owner)):
                fence_release()  # or a reader might see new bytes under the old stamp
                copy_row(rows, slot, new_rows, i)
                masses[slot] = new_masses[i]
                store_release(stamps, slot, published_stamp(index))  # who sees this sees the whole row
                break
    return new_rows.shape[0]


@kernel
def append_rows(
    plain: Annotated[tuple[Any, ...], RingArrays],
    new_rows: Words,
    new_masses: Floats,
    owner: int,
    max_priority: float,
) -> tuple[int, int]:
    """Reserve indexes, and write rows under them; return the first index, and what `write_rows` returns.

    In the same step, because an interrupt comes before the kernel or after it, count the rows in `own`,
    and raise the maximum of the priorities, given by its bits.
    """
    counters, stamps, rows, masses, own, max_given = plain
    count = new_rows.shape[0]
    fetch_add(own, 0, count)
    raise_max(max_given, max_priority)
    first_index = fetch_add(counters, NEXT_INDEX, count)
    start = max(0, count - stamps.shape[0])  # of more rows than there are slots the last ones stay
    end = write_rows(stamps, rows, masses, new_rows, new_masses, first_index, start, owner)
    fetch_add(counters, PUBLISHED, end - start)
    return first_index, end


@kernel
def read_row(stamps: Integers, rows: Words, slot: int, cleared_before: int, copies: Words, place: int) -> int:
    """Copy the row in a slot; return its index, or NO_INDEX if none was published there all the while."""
    stamp = load_acquire(stamps, slot)
    index = published_index(stamp, cleared_before)
    if index == NO_INDEX:
        return NO_INDEX
    copy_row(copies, place, rows, slot)
    fence_acquire()  # or the second look might come before the last byte was read
    return index if load_acquire(stamps, slot) == stamp else NO_INDEX


@kernel
def read_slots(
    stamps: Integers, rows: Words, slots: Integers, cleared_before: int, copies: Words, failed: Integers
) -> int:
    """Copy the rows in slots; return how many hold no whole one, and list their positions in `failed`."""
    failures = 0
    for i in range(slots.shape[0]):
        if read_row(stamps, rows, slots[i], cleared_before, copies, i) == NO_INDEX:
            failed[failures] = i
            failures += 1
    return failures


@kernel
def look(stamps: Integers, slots: Integers, cleared_before: int, indexes: Integers) -> None:
    """Write the index of the published row in each slot, or NO_INDEX, into `indexes`."""
    for i in range(slots.shape[0]):
        indexes[i] = published_index(load_acquire(stamps, slots[i]), cleared_before)
