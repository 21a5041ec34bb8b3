"""The sampler's kernels: take in what writers have published, draw, and update.

Each call of the sampler is one kernel from end to end: with batches of 64 rows, every step back into Python would
cost as much as the work itself.

Left out: what to do when a drawn row has been replaced meanwhile; that is `proportional`'s.
"""

import numpy as np

from replay_tutorial.buffers.jit import Flags, Floats, Integers, Words, int64, kernel
from replay_tutorial.buffers.priorities import DONE, NO_PRIORITY, Formula, check_update, masses_of
from replay_tutorial.buffers.sum_tree import ROOT, find_stratified, first_leaf, recompute_above
from replay_tutorial.shared.atomics import (
    fence_acquire,
    fence_release,
    fetch_add,
    load_acquire,
    store_release,
)
from replay_tutorial.shared.protocol import (
    CLEARED,
    HELD,
    INDEX_SHIFT,
    NEXT_INDEX,
    NO_INDEX,
    REJECTED,
    SAMPLED,
    STALE,
    read_rows,
)

TAKEN_IN, WAITING = (
    0,
    1,
)  # in `progress`: the index up to which slots were looked at, how many are looked at again
NO_MASS = -1  # no number of rows: stands for a tree from which nothing can be drawn


@kernel
def take_in(
    counters: Integers,
    stamps: Integers,
    masses: Floats,
    updated_indexes: Integers,
    updated_masses: Floats,
    known: Integers,
    waiting: Integers,
    is_waiting: Flags,
    progress: Integers,
    sums: Floats,
    minima: Floats,
) -> None:
    """Learn of the rows published since the last call, and set the tree."""
    capacity, leaf = stamps.shape[0], int64(first_leaf(sums))
    oldest_index, next_index = load_acquire(counters, CLEARED), load_acquire(counters, NEXT_INDEX)
    first, again = max(progress[TAKEN_IN], oldest_index, next_index - capacity), progress[WAITING]
    changed = np.empty(again + next_index - first, np.int64)
    changes, to_come = 0, 0
    for i in range(changed.shape[0]):
        slot = waiting[i] if i < again else (first + i - again) % capacity
        if i >= again and is_waiting[slot]:
            continue
        stamp = load_acquire(stamps, slot)
        index = (stamp >> INDEX_SHIFT) - 1
        mass = updated_masses[slot] if updated_indexes[slot] == index + 1 else masses[slot]
        fence_acquire()
        # Without the second look, the mass may be the next row's. Stamp 0: reserved, and not yet begun.
        published = stamp > 0 and stamp & HELD == 0 and load_acquire(stamps, slot) == stamp
        # The newest row that was reserved here may be still to come, and an older one still be there.
        is_waiting[slot] = not published or index < next_index - capacity
        if is_waiting[slot]:
            waiting[to_come] = slot
            to_come += 1
        if not published or index < oldest_index:
            index, mass = NO_INDEX, 0.0
        if index != known[slot]:
            known[slot] = index
            sums[leaf + slot] = mass
            changed[changes] = slot
            changes += 1
    progress[TAKEN_IN], progress[WAITING] = next_index, to_come
    recompute_above(sums, minima, changed[:changes])


@kernel
def draw_rows(
    counters: Integers,
    stamps: Integers,
    rows: Words,
    masses: Floats,
    updated_indexes: Integers,
    updated_masses: Floats,
    known: Integers,
    waiting: Integers,
    is_waiting: Flags,
    progress: Integers,
    sums: Floats,
    minima: Floats,
    uniforms: Floats,
    indexes: Integers,
    copies: Words,
    failed: Integers,
) -> int:
    """Take in new rows, draw, and copy what was drawn; leaves the masses in the place of the uniform numbers.

    Gives the number of rows that have been replaced meanwhile, and lists where they stand; NO_MASS if there is none.
    """
    take_in(
        counters,
        stamps,
        masses,
        updated_indexes,
        updated_masses,
        known,
        waiting,
        is_waiting,
        progress,
        sums,
        minima,
    )
    if sums[ROOT] == 0.0:
        return NO_MASS
    slots, drawn_masses = find_stratified(sums, uniforms)
    uniforms[:] = drawn_masses
    for i in range(slots.shape[0]):
        indexes[i] = known[slots[i]]
    failures = read_rows(stamps, rows, slots, indexes, load_acquire(counters, CLEARED), copies, failed)
    for i in range(failures):
        slot = slots[failed[i]]
        if not is_waiting[slot]:
            is_waiting[slot] = True
            waiting[progress[WAITING]] = slot
            progress[WAITING] += 1
    fetch_add(counters, SAMPLED, slots.shape[0] - failures)
    fetch_add(counters, REJECTED, failures)
    return failures


@kernel
def update_rows(
    counters: Integers,
    stamps: Integers,
    masses: Floats,
    updated_indexes: Integers,
    updated_masses: Floats,
    known: Integers,
    waiting: Integers,
    is_waiting: Flags,
    progress: Integers,
    sums: Floats,
    minima: Floats,
    indexes: Integers,
    priorities: Floats,
    formula: Formula,
) -> tuple[int, int, float]:
    """Take in new rows, then do as `update_leaves` does, and write the masses back for another sampler."""
    alpha, eps, priority_limit = formula
    take_in(
        counters,
        stamps,
        masses,
        updated_indexes,
        updated_masses,
        known,
        waiting,
        is_waiting,
        progress,
        sums,
        minima,
    )
    capacity, leaf = known.shape[0], int64(first_leaf(sums))
    status = check_update(indexes, priorities, progress[TAKEN_IN], priority_limit)
    if status != DONE:
        return status, 0, NO_PRIORITY
    new_masses = masses_of(priorities, alpha, eps)
    max_priority = NO_PRIORITY
    slots = np.empty(indexes.shape[0], np.int64)
    count = 0
    for i in range(indexes.shape[0]):
        slot = indexes[i] % capacity
        if known[slot] != indexes[i]:  # trap: the slot holds another row by now
            continue
        max_priority = max(max_priority, priorities[i])
        sums[leaf + slot] = new_masses[i]
        store_release(updated_indexes, slot, 0)  # if we are killed here, no mass counts for the wrong row
        fence_release()
        updated_masses[slot] = new_masses[i]
        store_release(updated_indexes, slot, indexes[i] + 1)
        slots[count] = slot
        count += 1
    recompute_above(sums, minima, slots[:count])
    fetch_add(counters, STALE, indexes.shape[0] - count)
    return DONE, count, max_priority
