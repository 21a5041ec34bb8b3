"""The protocol of the shared ring: stamps, and the kernels that keep to them.

    published(i) ──swap──▶ held(i + capacity, writer) ──store──▶ published(i + capacity)

A writer takes a slot by swapping in a stamp of its own, which succeeds for one writer only, copies the row, and
publishes it with a stamp that nobody holds. Whoever reads a row looks at the stamp before and after: if it is the
same published one, the row is whole.

See docs/design/shared-ring.md for the proof that this is enough.
"""

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import kernel
from replay_tutorial.shared.atomics import (
    compare_and_swap,
    fence_acquire,
    fence_release,
    fetch_add,
    load_acquire,
    store_release,
)

Words = npt.NDArray[np.uint64]  # rows as [n, words]: they are copied eight bytes at a time
Integers = npt.NDArray[np.int64]

# A stamp, from the lowest bit on: whether the slot is held, by whom (NOBODY: by a writer that died), index + 1.
HELD = 1
OWNER_SHIFT, OWNER_COUNT = 1, 1024
INDEX_SHIFT = 11
NOBODY = 0

NO_INDEX = -1


@kernel("int64(int64[::1], int64, int64)")
def reserve(counters: Integers, counter: int, count: int) -> int:
    """Add to a counter and give what was there before."""
    return fetch_add(counters, counter, count)


@kernel("boolean(int64[::1], int64, int64, int64)")
def swap(words: Integers, place: int, expected: int, value: int) -> bool:
    """Put a value where the expected one is; tell whether it was."""
    return compare_and_swap(words, place, expected, value)


@kernel("int64(int64[::1], uint64[:, ::1], float64[::1], uint64[:, ::1], float64[::1], int64, int64, int64)")
def write_rows(
    stamps: Integers,
    rows: Words,
    masses: npt.NDArray[np.float64],
    new_rows: Words,
    new_masses: npt.NDArray[np.float64],
    first_index: int,
    start: int,
    owner: int,
) -> int:
    """Write rows from `start` on; gives the first whose slot another writer holds, or their number."""
    for i in range(start, new_rows.shape[0]):
        slot = (first_index + i) % stamps.shape[0]
        mine = (first_index + i + 1) << INDEX_SHIFT
        while True:
            stamp = load_acquire(stamps, slot)
            if stamp >= mine:  # we were stopped for a whole lap: a newer row is there
                break
            if stamp & HELD and stamp >> OWNER_SHIFT & (OWNER_COUNT - 1) != NOBODY:
                return i
            if compare_and_swap(stamps, slot, stamp, mine | owner << OWNER_SHIFT | HELD):
                fence_release()  # or a reader might see new bytes under the old stamp
                for word in range(rows.shape[1]):
                    rows[slot, word] = new_rows[i, word]
                masses[slot] = new_masses[i]
                store_release(stamps, slot, mine)  # who sees this sees the whole row
                break
    return new_rows.shape[0]


@kernel("int64(int64[::1], uint64[:, ::1], int64[::1], int64[::1], int64, uint64[:, ::1], int64[::1])")
def read_rows(
    stamps: Integers,
    rows: Words,
    slots: Integers,
    expected: Integers,
    oldest_index: int,
    copies: Words,
    failed: Integers,
) -> int:
    """Copy rows; gives the number of those that are not there or changed meanwhile, and lists where they stand.

    Where `expected` is NO_INDEX any row from `oldest_index` on will do, and its index is put there.
    """
    failures = 0
    for i in range(slots.shape[0]):
        stamp = load_acquire(stamps, slots[i])
        index = (stamp >> INDEX_SHIFT) - 1
        good = (
            stamp & HELD == 0 and index >= oldest_index and (expected[i] == NO_INDEX or expected[i] == index)
        )
        if good:
            for word in range(rows.shape[1]):
                copies[i, word] = rows[slots[i], word]
            fence_acquire()  # or the second look might come before the last byte was read
            good = load_acquire(stamps, slots[i]) == stamp
        if good:
            expected[i] = index
        else:
            failed[failures] = i
            failures += 1
    return failures


@kernel("void(int64[::1], int64[::1], int64, int64[::1], boolean[::1])")
def look(
    stamps: Integers, slots: Integers, oldest_index: int, indexes: Integers, held: npt.NDArray[np.bool_]
) -> None:
    """Tell for each slot the index of the published row in it, or NO_INDEX, and whether somebody holds it."""
    for i in range(slots.shape[0]):
        stamp = load_acquire(stamps, slots[i])
        index = (stamp >> INDEX_SHIFT) - 1
        held[i] = stamp & HELD != 0
        indexes[i] = NO_INDEX if held[i] or index < oldest_index else index
