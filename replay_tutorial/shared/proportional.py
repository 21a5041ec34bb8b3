"""Proportional draws from a ring that others write to at the same time.

The sampler's tree holds the masses of the rows that it knows. Before it draws, it looks at the slots reserved since
the last time, and again at those that were not published then. A row that is drawn, but has been replaced meanwhile,
is drawn again.

What the sampler learns later about a row, it writes into arrays of its own, with the row's index, and never over the
writer's mass: that might already be the next row's. So another sampler can build the same tree.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import kernel
from replay_tutorial.buffers.priorities import NO_PRIORITY, Priorities
from replay_tutorial.buffers.proportional import NEVER_GIVEN_OUT, ProportionalDraw
from replay_tutorial.buffers.sum_tree import Masses, Slots, SumTree, recompute_above
from replay_tutorial.shared.atomics import fence_acquire, fetch_max, load_acquire
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import HELD, INDEX_SHIFT, NO_INDEX, Integers
from replay_tutorial.shared.ring import REJECTED, SharedRing


def draw_specs(capacity: int) -> Specs:
    """Tell the shared arrays that proportional draws need."""
    integer, double = np.dtype(np.int64), np.dtype(np.float64)
    return {
        "seen": ((1,), double),
        "updated_indexes": (
            (capacity,),
            integer,
        ),  # index + 1 of the row that the mass beside is of, 0 for none
        "updated_masses": ((capacity,), double),
    }


@kernel(
    "UniTuple(int64, 2)(int64[::1], float64[::1], int64[::1], float64[::1], int64[::1], int64[::1],"
    " int64, int64, float64[::1], int64[::1])"
)
def learn_of(
    stamps: Integers,
    masses: Masses,
    updated_indexes: Integers,
    updated_masses: Masses,
    known: Integers,
    slots: Slots,
    next_index: int,
    oldest_index: int,
    new_masses: Masses,
    waiting: Slots,  # room for two entries a slot
) -> tuple[int, int]:
    """Look at slots: those whose row changed move to the front of `slots`, with their masses; list those to come.

    Gives how many changed, and how many are still to come.
    """
    changed, to_come = 0, 0
    capacity = stamps.shape[0]
    for i in range(slots.shape[0]):
        slot = slots[i]
        stamp = load_acquire(stamps, slot)
        index = (stamp >> INDEX_SHIFT) - 1
        if stamp & HELD or index < next_index - capacity:  # the newest row reserved here is not published yet
            waiting[to_come] = slot
            to_come += 1
        if stamp & HELD or index < oldest_index:
            index = NO_INDEX
        if index != known[slot]:
            mass = updated_masses[slot] if updated_indexes[slot] == index + 1 else masses[slot]
            fence_acquire()
            if load_acquire(stamps, slot) != stamp:  # the mass may be the next row's
                waiting[to_come] = slot
                to_come += 1
                continue
            known[slot] = index
            slots[changed] = slot
            new_masses[changed] = 0.0 if index == NO_INDEX else mass
            changed += 1
    return changed, to_come


@kernel(
    "int64(int64[::1], float64[::1], int64[::1], float64[::1], int64[::1], float64[::1], float64[::1],"
    " int64, int64, int64, int64, int64[::1])"
)
def learn_of_run(
    stamps: Integers,
    masses: Masses,
    updated_indexes: Integers,
    updated_masses: Masses,
    known: Integers,
    sums: Masses,
    minima: Masses,
    first: int,
    last: int,
    next_index: int,
    oldest_index: int,
    waiting: Slots,
) -> int:
    """Look at the slots from `first` to `last` as `learn_of` does, and set the tree; gives how many are to come."""
    to_come = 0
    leaf_count = sums.shape[0] // 2
    for slot in range(first, last + 1):
        stamp = load_acquire(stamps, slot)
        index = (stamp >> INDEX_SHIFT) - 1
        mass = updated_masses[slot] if updated_indexes[slot] == index + 1 else masses[slot]
        fence_acquire()
        changed = load_acquire(stamps, slot) != stamp  # then the mass may be the next row's
        if changed or stamp & HELD or index < next_index - stamps.shape[0]:
            waiting[to_come] = slot
            to_come += 1
        known[slot] = NO_INDEX if changed or stamp & HELD or index < oldest_index else index
        sums[leaf_count + slot] = 0.0 if known[slot] == NO_INDEX else mass
    recompute_above(sums, minima, first, last)
    return to_come


@kernel("int64(int64[::1], int64[::1], int64, int64[::1], int64[::1])")
def known_slots(
    indexes: Integers, known: Integers, next_index: int, slots: Slots, positions: Integers
) -> int:
    """Find the slots of the indexes that are known there, and where those indexes stand; gives their number."""
    count = 0
    for i in range(indexes.shape[0]):
        if not 0 <= indexes[i] < next_index:
            return NEVER_GIVEN_OUT
        slot = indexes[i] % known.shape[0]
        if known[slot] == indexes[i]:
            slots[count] = slot
            positions[count] = i
            count += 1
    return count


@kernel("void(int64[::1], int64)")
def raise_to(seen: Integers, bits: int) -> None:
    """Raise the highest priority seen to at least another, as integers: floats from 0 on have the same order."""
    fetch_max(seen, 0, bits)


class SharedPriorities(Priorities):
    """Priorities whose highest is raised by many processes at once."""

    def saw(self, highest: float) -> None:
        """Remember the highest of the priorities that rows have been given."""
        if highest > self.seen[0]:
            raise_to(
                self.seen.view(np.int64), int(np.float64(highest + 0.0).view(np.int64))
            )  # + 0.0: no -0.0


class SharedDraw(ProportionalDraw):
    """The sampler's tree.

    Attributes:
        known: int64[capacity], the index of the row whose mass is in the tree; NO_INDEX for none.
    """

    def __init__(self, ring: SharedRing, priorities: Priorities, arrays: SharedArrays) -> None:
        """Begin with an empty tree; the first `take_in` learns of every row in the ring."""
        super().__init__(priorities, SumTree(ring.capacity))
        self._ring = ring
        self._arrays = arrays
        self.known = np.full(ring.capacity, NO_INDEX)
        self._waiting = np.zeros(0, np.int64)

    def take_in(self, oldest_index: int, next_index: int) -> None:
        """Learn of the rows published since the last call."""
        if len(self._waiting):
            self._waiting = self._learn_of(np.unique(self._waiting), oldest_index, next_index)
        index = max(self._taken_in, next_index - self._ring.capacity)
        while index < next_index:  # at most two runs of slots: up to the seam, and after it
            first = index % self._ring.capacity
            count = min(next_index - index, self._ring.capacity - first)
            self._learn_of_run(first, first + count - 1, oldest_index, next_index)
            index += count
        self._taken_in = next_index

    def _learn_of_run(self, first: int, last: int, oldest_index: int, next_index: int) -> None:
        waiting = np.empty(last - first + 1, np.int64)
        to_come = learn_of_run(
            self._ring.stamps,
            self._ring.masses,
            self._arrays["updated_indexes"],
            self._arrays["updated_masses"],
            self.known,
            self.tree.sums,
            self.tree.minima,
            first,
            last,
            next_index,
            oldest_index,
            waiting,
        )
        if to_come:
            self._waiting = np.concatenate([self._waiting, waiting[:to_come]])

    def rows(
        self, slots: Slots, oldest_index: int, next_index: int
    ) -> tuple[npt.NDArray[np.uint64], Integers, Slots]:
        """Copy the rows that have been drawn: their words, their indexes, and the positions that must be drawn again."""
        copies, indexes = self._ring.empty_words(len(slots)), self.known.take(slots)
        failed = self._ring.read(slots, indexes, copies)
        if len(failed):
            self._ring.count(REJECTED, len(failed))
            again = self._learn_of(slots[failed], oldest_index, next_index)
            self._waiting = np.concatenate([self._waiting, again])
        return copies, indexes, failed

    def _learn_of(self, slots: Slots, oldest_index: int, next_index: int) -> Slots:
        masses, waiting = np.empty(len(slots)), np.empty(2 * len(slots), np.int64)
        changed, to_come = learn_of(
            self._ring.stamps,
            self._ring.masses,
            self._arrays["updated_indexes"],
            self._arrays["updated_masses"],
            self.known,
            slots,
            next_index,
            oldest_index,
            masses,
            waiting,
        )
        self.tree.set(slots[:changed], masses[:changed])
        return waiting[:to_come]

    def update(
        self, indexes: Any, priorities: Any, oldest_index: int, next_index: int
    ) -> tuple[Slots, Masses]:
        """Set the masses of rows anew; see `PrioritizedReplayBuffer.update_priorities`."""
        slots, masses = super().update(indexes, priorities, oldest_index, next_index)
        updated = self._arrays["updated_indexes"]
        updated[slots] = 0  # if we are killed between these lines, no mass counts for the wrong row
        self._arrays["updated_masses"][slots] = masses
        updated[slots] = self.known[slots] + 1
        return slots, masses

    def _find_slots(
        self, indexes: Integers, oldest_index: int, next_index: int, slots: Slots, current: Integers
    ) -> int:
        return int(known_slots(indexes, self.known, next_index, slots, current))

    def forget(self, slots: Slots, next_index: int) -> None:
        """Let no slot have mass any more."""
        known = np.flatnonzero(self.known != NO_INDEX)
        self.known[known] = NO_INDEX
        self.tree.set(known, np.zeros(len(known)))
        self.priorities.seen[0] = NO_PRIORITY
        self._taken_in = next_index
