"""Sampling by priority: each handle that samples has a sum tree of its own, and one process updates.

    updated row:  masses[slot] ──▶ updated_masses[slot] ──▶ log: the index of the row
    other trees:  log: indexes since the last call ──▶ leaves of these rows

A tree holds the masses of the rows that its handle knows. Before each draw, the handle checks the slots
reserved since its previous call, and those that were not published then, and follows the log of updates. A
row that has been overwritten by the time it is copied is drawn again. Each call runs as a single kernel,
because returning to Python in between would cost as much as the work itself.

Updated masses go to separate arrays, with the index of their row, and never overwrite the writer's mass,
which could already belong to the next row in the slot. From both, any process can build the tree. The log is
a ring. A process that finds it overwritten since its last call checks every slot instead. The maximum
priority is shared with the writers, which assign it to rows added without a priority.

Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay", section 3.

Built in chapter 07, *Ape-X*.
"""

import time
from collections.abc import Callable, Hashable
from threading import get_ident
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, TypeVarTuple

import numpy as np

from replay_tutorial.buffers.fields import Rows
from replay_tutorial.buffers.priorities import DONE, NO_PRIORITY, Formula, check_update, masses_of
from replay_tutorial.buffers.runtime.jit import Floats, Integers, Words, int64, jitable, kernel, uint64
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_stratified, first_leaf, recompute_above
from replay_tutorial.shared.atomics import (
    fence_acquire,
    fence_release,
    fetch_add,
    load_acquire,
    store_release,
)
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.processes import own_identity
from replay_tutorial.shared.protocol import (
    CLEARED,
    LOG_BEGUN,
    LOG_END,
    NEXT_INDEX,
    NO_INDEX,
    REJECTED,
    SAMPLED,
    STALE,
    UPDATER_PROCESS,
    index_of,
    is_held,
    raise_max,
    read_row,
    swap,
)
from replay_tutorial.shared.registry import NOT_REGISTERED, registration_at
from replay_tutorial.shared.shared_ring import MAX_DRAWS, SharedRing

if TYPE_CHECKING:
    from replay_tutorial.buffers.ranking import Ranking

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

# Positions in `progress`: the index up to which slots have been checked; the number of indexes to check
# again; the values of CLEARED and LOG_END at the last check; the number of entries in `changed`.
SYNCED_TO, AWAITED, CLEARED_TO, FOLLOWED, CHANGED = range(5)


class UpdaterLease:
    """A handle's right to update priorities and to count samples, and the lock of this process's threads."""

    def __init__(self, counters: Integers, block: Hashable, start: Callable[[], None] | None = None) -> None:
        """Create a lease on the ring with these counters and this block identity, without claiming it.

        Each handle calls `start` once in each process, before any work.
        """
        self._counters, self._block, self._start = counters, block, start
        self._key = object()
        self.registration = NOT_REGISTERED

    def hold(
        self, work: Callable[[*Arguments], Result], *arguments: *Arguments, updates: bool = False
    ) -> Result:
        """Call `work` while other threads of this process wait; if it `updates`, as the only updater.

        Raise RuntimeError if another living process is the updater.
        """
        registration = self.registration
        if not registration.is_mine:  # on the first call, and again in a forked child
            registration = registration_at(self._block)
        me = get_ident()
        is_outermost = registration.holder != me  # only the outermost of nested calls acquires and releases
        # A `with` statement could leave the lock held: an interrupt can come between `__enter__` and the
        # block (since Python 3.14 even for a lock), and at the start of an `__exit__` written in Python.
        release = registration.lock.release  # an RLock can be released only by the thread that holds it
        try:
            if is_outermost:
                registration.lock.acquire()
                registration.holder = me
            if self.registration is not registration:
                if self._start is not None:
                    self._start()
                self.registration = registration  # last, so that an interrupted call starts over
            if updates:
                if self._counters[UPDATER_PROCESS] != registration.identity:
                    registration.become_updater(self._counters)
                registration.last_to_update = self._key
            result = work(*arguments)
            if is_outermost:
                registration.holder = 0
                release()
            return result
        except BaseException:
            if is_outermost:
                if registration.holder == me:
                    registration.holder = 0
                try:  # noqa: SIM105 - `suppress` is Python code: an interrupt could precede the release
                    release()
                except RuntimeError:  # already released, or not acquired
                    pass
            raise

    def release(self) -> None:
        """Stop being the updater, unless another handle of this process has updated since.

        Waits for calls in progress: another process must not update before they have finished.
        """
        if self.registration.is_mine:
            self.hold(self._release_role)

    def _release_role(self) -> None:
        if self.registration.last_to_update is self._key:
            swap(self._counters, UPDATER_PROCESS, own_identity(), 0)


# Initial values of the arrays of `priority_specs` that do not start at zero.
INITIAL_VALUES = {"seen": NO_PRIORITY}


def log_length(capacity: int) -> int:
    """Return the number of entries of the log, a power of two.

    A process that is more than an eighth of the capacity behind can as well check every slot.
    """
    return 1 << max(11, (capacity // 8).bit_length())


def priority_specs(capacity: int) -> Specs:
    """Return the specs of the shared arrays that priorities need, other than the ring's masses."""
    integer, double = np.dtype(np.int64), np.dtype(np.float64)
    return {
        # maximum of all priorities so far; archives use the same name
        "seen": ((1,), double),
        # updated masses, and index + 1 of the row that each belongs to, or 0
        "updated_indexes": ((capacity,), integer),
        "updated_masses": ((capacity,), double),
        "update_log": ((log_length(capacity),), integer),
    }


class SamplerArrays(NamedTuple):
    """The arrays of the kernels: the first seven lie in shared memory, the others belong to one handle."""

    counters: Integers
    stamps: Integers  # [capacity]
    rows: Words
    masses: Floats  # [capacity], the mass that the writer assigned to the row
    updated_indexes: Integers  # [capacity], index + 1 of the row of each updated mass, or 0
    updated_masses: Floats  # [capacity]
    log: Integers  # [log_length], indexes of the rows updated last
    known: Integers  # [capacity], index of the row whose mass is in the tree, or NO_INDEX
    awaited: Integers  # [capacity], indexes that were reserved and not published at the last check
    changed: Integers  # [log_length], slots whose mass has changed since the ranking was updated
    progress: Integers  # [5]
    sums: Floats
    minima: Floats


# SamplerArrays as passed from Python; see `jit.numba_type`.
SamplerTuple = Annotated[tuple[Any, ...], SamplerArrays]


@jitable
def write_back(updated_indexes: Integers, updated_masses: Floats, slot: int, index: int, mass: float) -> None:
    """Store an updated mass in shared memory, for the trees of other processes."""
    if updated_indexes[slot] != index + 1:  # of two masses of one row, a reader may see either
        store_release(updated_indexes, slot, 0)  # if killed here, no mass is assigned to the wrong row
        fence_release()
    updated_masses[slot] = mass
    store_release(updated_indexes, slot, index + 1)


@jitable
def updated_mass(
    updated_indexes: Integers, updated_masses: Floats, slot: int, index: int, initial: float
) -> float:
    """Return the updated mass of a row, or `initial` if it has none."""
    if load_acquire(updated_indexes, slot) != index + 1:
        return initial
    mass = updated_masses[slot]
    fence_acquire()  # otherwise the mass could be the next row's
    return mass if load_acquire(updated_indexes, slot) == index + 1 else initial


@jitable
def begin_log(counters: Integers, log: Integers, count: int) -> int:
    """Announce that `count` entries will be overwritten; return the position of the first."""
    begun = counters[LOG_BEGUN]
    if begun != counters[LOG_END]:  # an updater died here: skip a lap, so that all processes check every slot
        begun += log.shape[0]
    store_release(counters, LOG_BEGUN, begun + count)
    fence_release()  # otherwise a reader could copy a new entry and not notice
    return begun


@jitable
def read_log(counters: Integers, log: Integers, start: int, end: int) -> tuple[Integers, bool]:
    """Copy the entries from `start` to `end`; return them, and whether none was overwritten before."""
    indexes = np.empty(min(end - start, log.shape[0]), np.int64)
    for i in range(indexes.shape[0]):
        indexes[i] = log[(start + i) & (log.shape[0] - 1)]
    fence_acquire()  # otherwise the next load could precede the copy
    return indexes, start == end or load_acquire(counters, LOG_BEGUN) - start <= log.shape[0]


@jitable
def recompute_changed(sampler: SamplerArrays, slots: Integers) -> None:
    """Recompute the nodes above changed leaves, and note the slots for the ranking."""
    changed, progress = sampler.changed, sampler.progress
    first, progress[CHANGED] = progress[CHANGED], progress[CHANGED] + slots.shape[0]
    if progress[CHANGED] <= changed.shape[0]:  # otherwise the ranking marks all slots
        for i in range(slots.shape[0]):
            changed[first + i] = slots[i]
    recompute_above(sampler.sums, sampler.minima, slots)


@jitable
def is_synced(counters: Integers, progress: Integers) -> bool:
    """Return whether the tree includes all changes, as between a sample and its update."""
    return (
        load_acquire(counters, NEXT_INDEX) == progress[SYNCED_TO]
        and load_acquire(counters, LOG_END) == progress[FOLLOWED]
        and load_acquire(counters, CLEARED) == progress[CLEARED_TO]
        and progress[AWAITED] == 0
    )


@kernel
def sync_tree(arrays: SamplerArrays) -> None:
    """Update the tree with the rows published, updated and cleared since the last call."""
    # Taken out before the loops: taking an array out of a tuple updates its reference count each time.
    counters, stamps, masses, sums = arrays.counters, arrays.stamps, arrays.masses, arrays.sums
    updated_indexes, updated_masses = arrays.updated_indexes, arrays.updated_masses
    known, awaited, progress = arrays.known, arrays.awaited, arrays.progress
    capacity, first_node = stamps.shape[0], int64(first_leaf(sums))
    log_end, cleared_before = load_acquire(counters, LOG_END), load_acquire(counters, CLEARED)
    next_index, synced_to, again = load_acquire(counters, NEXT_INDEX), progress[SYNCED_TO], progress[AWAITED]
    updated, is_complete = read_log(counters, arrays.log, progress[FOLLOWED], log_end)
    check_all = not is_complete or cleared_before != progress[CLEARED_TO]
    if check_all:
        synced_to, again = 0, 0
    first_new = max(synced_to, next_index - capacity)
    new = next_index - first_new
    changed = np.empty(again + new + updated.shape[0], np.int64)
    changes, still_awaited = 0, 0
    for i in range(again + new):
        reserved = awaited[i] if i < again else first_new + i - again
        slot = reserved % capacity
        stamp = load_acquire(stamps, slot)
        index = index_of(stamp)
        mass = updated_mass(updated_indexes, updated_masses, slot, index, masses[slot])
        fence_acquire()
        # Without the second load, the mass could be the next row's. Stamp 0: reserved, not yet claimed.
        published = stamp > 0 and not is_held(stamp) and load_acquire(stamps, slot) == stamp
        # Until its newest row is written, a slot holds an older one.
        if not (published and index >= reserved) and reserved >= max(cleared_before, next_index - capacity):
            awaited[still_awaited] = reserved
            still_awaited += 1
        if not published or index < cleared_before:
            index, mass = NO_INDEX, 0.0
        if index != known[slot] or (check_all and mass != sums[first_node + slot]):
            known[slot] = index
            sums[first_node + slot] = mass
            changed[changes] = slot
            changes += 1
    for i in range(updated.shape[0]):
        index = updated[i]
        slot = index % capacity
        if known[slot] == index:  # otherwise the row has been overwritten
            mass = sums[first_node + slot]
            sums[first_node + slot] = updated_mass(updated_indexes, updated_masses, slot, index, mass)
            changed[changes] = slot
            changes += 1
    progress[SYNCED_TO], progress[AWAITED] = next_index, still_awaited
    progress[CLEARED_TO], progress[FOLLOWED] = cleared_before, log_end
    recompute_changed(arrays, changed[:changes])


@kernel
def draw_rows(
    sampler: SamplerTuple,
    uniforms: Floats,
    indexes: Integers,
    masses: Floats,
    copies: Words,
    failed: Integers,
) -> int:
    """Update the tree, draw one row for each number in [0, 1), and copy the rows.

    Returns the number of rows that must be drawn again, and writes their positions to `failed`. They are the
    rows that have been overwritten in the meantime, or all rows if none has mass.
    """
    arrays = SamplerArrays(*sampler)
    if not is_synced(arrays.counters, arrays.progress):
        sync_tree(arrays)
    if arrays.sums[ROOT] == 0.0:
        for i in range(failed.shape[0]):
            failed[i] = i
        return failed.shape[0]
    slots, drawn_masses = find_stratified(arrays.sums, uniforms)
    stamps, rows, known = arrays.stamps, arrays.rows, arrays.known
    cleared_before, failures = load_acquire(arrays.counters, CLEARED), 0
    # In a separate loop, these reads overlap; a fence between them would prevent that.
    for i in range(slots.shape[0]):
        indexes[i], masses[i] = known[slots[i]], drawn_masses[i]
    for i in range(slots.shape[0]):
        if read_row(stamps, rows, slots[i], cleared_before, copies, i) != indexes[i]:
            failed[failures] = i
            failures += 1
    fetch_add(arrays.counters, SAMPLED, slots.shape[0] - failures)
    fetch_add(arrays.counters, REJECTED, failures)
    return failures


@kernel
def update_rows(
    sampler: SamplerTuple, indexes: Integers, priorities: Floats, formula: Formula, largest_priority: Integers
) -> int:
    """Update the tree, set the masses of rows that are still stored, and raise the maximum priority.

    Returns the status of `check_update`. If it is not DONE, no mass has been changed.
    """
    alpha, eps, priority_limit = formula
    arrays = SamplerArrays(*sampler)
    counters, log, progress = arrays.counters, arrays.log, arrays.progress
    known, sums = arrays.known, arrays.sums
    updated_indexes, updated_masses = arrays.updated_indexes, arrays.updated_masses
    if not is_synced(counters, progress):
        sync_tree(arrays)
    status = check_update(indexes, priorities, progress[SYNCED_TO], priority_limit)
    if status != DONE:
        return status
    masses, slots = masses_of(priorities, alpha, eps), np.empty(indexes.shape[0], np.int64)
    capacity, first_node = uint64(known.shape[0]), first_leaf(sums)
    count, max_priority = uint64(0), NO_PRIORITY
    begun = begin_log(counters, log, indexes.shape[0])
    for i in range(uint64(indexes.shape[0])):
        slot = uint64(indexes[i]) % capacity
        if known[slot] == indexes[i]:  # otherwise the row has been overwritten
            sums[first_node + slot] = masses[i]  # the last mass of a repeated index wins
            write_back(updated_indexes, updated_masses, slot, indexes[i], masses[i])
            max_priority = max(max_priority, priorities[i])
            slots[count] = slot
            count += uint64(1)
        log[(uint64(begun) + i) & uint64(log.shape[0] - 1)] = indexes[i]
    if progress[FOLLOWED] == begun:  # not after a lap was skipped
        progress[FOLLOWED] += indexes.shape[0]
    store_release(counters, LOG_END, begun + indexes.shape[0])
    recompute_changed(arrays, slots[:count])
    fetch_add(counters, STALE, indexes.shape[0] - int64(count))
    raise_max(largest_priority, max_priority)
    return DONE


class PrioritizedSampler:
    """Draws rows in proportion to their masses and updates the masses. The caller must hold the lease.

    Attributes:
        tree: Masses of the known rows.
        arrays: Arrays of the kernels.
        numbers_drawn: Random numbers drawn since the caller set it to 0.
    """

    def __init__(self, ring: SharedRing, block: SharedArrays, only_stored_count: bool) -> None:
        """Create a sampler; `start` must be called next.

        `only_stored_count` says that `update` lowers the maximum priority to that of the stored rows.
        """
        self._ring, self._block = ring, block
        self._only_stored_count = only_stored_count
        self.numbers_drawn = 0

    def start(self) -> None:
        """Start with an empty tree, which the next kernel fills with all rows in the ring."""
        ring, block, capacity = self._ring, self._block, self._ring.capacity
        self.tree = SumTree(capacity)
        self.arrays = SamplerArrays(
            counters=ring.counters,
            stamps=ring.stamps,
            rows=ring.rows,
            masses=ring.masses,
            updated_indexes=block["updated_indexes"],
            updated_masses=block["updated_masses"],
            log=block["update_log"],
            known=np.full(capacity, NO_INDEX),
            awaited=np.zeros(capacity, np.int64),
            changed=np.zeros(log_length(capacity), np.int64),
            progress=np.zeros(5, np.int64),
            sums=self.tree.sums,
            minima=self.tree.minima,
        )
        self._tuple = tuple(self.arrays)  # a kernel takes twice as long to read a named tuple
        self._lost = np.zeros(capacity, np.int64)  # index + 1 of a row that lacks a frame, or 0

    def synced_tree(self) -> SumTree:
        """Return the tree, updated with all changes."""
        sync_tree(self.arrays)
        if self.tree.ranking is not None:
            self._mark_changed(self.tree.ranking)
        return self.tree

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Rows, Integers, Floats]:
        """Draw rows, stratified; return the rows, their indexes, int64[n], and their masses, float64[n].

        Raises:
            RuntimeError: If rows are overwritten faster than they can be read, or no row has all its frames.
            ValueError: If there are no rows, or every mass is 0.
        """
        if self.tree.total == 0.0 or self._ring.rules.eps == 0.0:  # with eps > 0 no mass becomes 0
            self._wait_for_mass(batch_size)
        words, indexes, masses, missing = self._draw(batch_size, rng)
        for _ in range(MAX_DRAWS):
            if len(missing) == 0:
                return np.ndarray(batch_size, self._ring.dtype, words), indexes, masses
            if self.tree.total == 0.0:
                self._wait_for_mass(batch_size)
            words[missing], indexes[missing], masses[missing], failed = self._draw(len(missing), rng)
            missing = missing[failed]
        raise self._ring.no_row_error(batch_size)

    def _wait_for_mass(self, batch_size: int) -> None:
        """Wait until a row has mass; raise, before a random number is drawn, if no row will."""
        for _ in range(MAX_DRAWS):
            if self.synced_tree().total > 0.0:
                return
            self._ring.check_not_empty(batch_size)
            if (known := self.arrays.known[self.arrays.known != NO_INDEX]).size:
                if np.isin(known + 1, self._lost).any():
                    from replay_tutorial.shared.shared_frames import frames_lost

                    raise frames_lost()
                self.tree.check_total()
            time.sleep(0.0001)  # all rows are being written at the moment
        raise self._ring.no_row_error(batch_size)

    def _draw(self, count: int, rng: np.random.Generator) -> tuple[Words, Integers, Floats, Integers]:
        """Draw once; return words, indexes and masses, and the positions that must be drawn again."""
        words = np.empty((count, self._ring.rows.shape[1]), np.uint64)
        indexes, masses, failed = np.empty(count, np.int64), np.empty(count), np.empty(count, np.int64)
        uniforms = rng.random(count)
        self.numbers_drawn += count
        failures = draw_rows(self._tuple, uniforms, indexes, masses, words, failed)
        if self.tree.ranking is not None:
            self._mark_changed(self.tree.ranking)
        return words, indexes, masses, failed[:failures]

    def update(self, indexes: Any, priorities: Any) -> None:
        """Set the priorities of rows; see `MPPrioritizedReplayBuffer.update_priorities`."""
        rules = self._ring.rules
        checked, given = rules.as_update(indexes, priorities)
        status = update_rows(self._tuple, checked, given, rules.formula, self._ring.largest_priority)
        if self.tree.ranking is not None:
            self._mark_changed(self.tree.ranking)
        if status != DONE:
            raise rules.update_error(status, checked, given, int(self.arrays.progress[SYNCED_TO]))
        if self._only_stored_count:
            # A writer may raise the maximum at the same time; its row is in the tree at the next update.
            rules.lower_max(self.tree, self._ring.capacity)

    def _mark_changed(self, ranking: "Ranking") -> None:
        """Mark the slots whose masses the kernels have changed."""
        changed, progress = self.arrays.changed, self.arrays.progress
        count = int(progress[CHANGED])
        ranking.mark(changed[:count].copy() if count <= len(changed) else np.arange(self._ring.capacity))
        progress[CHANGED] = 0  # if interrupted before this, the next call marks the same slots

    def zero_mass(self, indexes: Integers) -> None:
        """Set the mass of rows that lack a frame to 0 in this tree, until they are updated or checked."""
        slots = indexes % self._ring.capacity
        slots = np.unique(slots[self.arrays.known[slots] == indexes])
        self.tree.set(slots, np.zeros(len(slots)))
        self._lost[slots] = self.arrays.known[slots] + 1
