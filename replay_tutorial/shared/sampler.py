"""The sampler: the one process that draws rows from a shared ring in proportion to their masses.

The sampler's private sum tree holds the masses of the rows that it knows. Before each draw it checks the
slots reserved since the previous call, and those that were not published then. A row that has been
overwritten by the time it is copied is drawn again. Each call runs as a single kernel, because returning to
Python in between would cost as much as the work itself.

Updated masses go to separate arrays, with the index of their row, and never overwrite the writer's mass,
which could already belong to the next row in the slot. From both masses, another sampler can rebuild the
tree. The maximum priority is shared with the writers, which assign it to rows added without a priority.

Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay", section 3.

Built in chapter 07, *Ape-X*.
"""

import time
from collections.abc import Callable, Hashable
from typing import Annotated, Any, NamedTuple, TypeVar, TypeVarTuple

import numpy as np

from replay_tutorial.buffers.fields import Rows
from replay_tutorial.buffers.priorities import (
    DONE,
    NO_PRIORITY,
    Formula,
    Prioritization,
    check_update,
    masses_of,
)
from replay_tutorial.buffers.ranking import Ranking
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers, Words, int64, jitable, kernel
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
    CLAIMS,
    CLEARED,
    NEXT_INDEX,
    NO_INDEX,
    REJECTED,
    SAMPLED,
    SAMPLER_PROCESS,
    STALE,
    index_of,
    is_held,
    raise_max,
    read_row,
    swap,
)
from replay_tutorial.shared.registry import NOT_REGISTERED, registration_at
from replay_tutorial.shared.shared_frames import frames_lost
from replay_tutorial.shared.shared_ring import MAX_DRAWS, SharedRing

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

# Positions in `progress`: the index up to which slots have been checked, and the number of slots to check
# again.
SYNCED_TO, PENDING = 0, 1


class SamplerLease:
    """A handle's right to sample.

    Attributes:
        number: Number of the claim under which this handle last sampled. Claims are numbered because the
            masses may have changed after a claim by another handle.
    """

    def __init__(self, counters: Integers, block: Hashable) -> None:
        """Create a lease on the ring with these counters and this block identity, without claiming it."""
        self.number = -1
        self._counters, self._block = counters, block
        self.registration = NOT_REGISTERED

    def hold(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call `work` as the sampler, while other threads of this process wait.

        Raise RuntimeError if another living process is the sampler.
        """
        if not self.registration.is_mine:  # on the first call, and again in a forked child
            self.registration, self.number = registration_at(self._block), -1
        # A `with` statement could leave the lock held: an interrupt can come between `__enter__` and the
        # block (since Python 3.14 even for a lock), and at the start of an `__exit__` written in Python.
        release = self.registration.lock.release  # an RLock can be released only by the thread that holds it
        try:
            self.registration.lock.acquire()
            if self._counters[CLAIMS] != self.number:
                self.number = self.registration.become_sampler(self._counters)
            result = work(*arguments)
            release()
            return result
        except BaseException:
            try:  # noqa: SIM105 - `suppress` is Python code: an interrupt could precede the release
                release()
            except RuntimeError:  # already released, or not acquired
                pass
            raise

    def release(self) -> None:
        """Stop being the sampler, unless another handle of this process has claimed it since."""
        if self._counters[CLAIMS] == self.number:
            swap(self._counters, SAMPLER_PROCESS, own_identity(), 0)


# Initial values of the arrays of `priority_specs` that do not start at zero.
INITIAL_VALUES = {"seen": NO_PRIORITY}


def priority_specs(capacity: int) -> Specs:
    """Return the specs of the shared arrays that priorities need, other than the ring's masses."""
    double = np.dtype(np.float64)
    return {
        # maximum of all priorities so far; archives use the same name
        "seen": ((1,), double),
        # masses updated by the sampler, and index + 1 of the row that each belongs to, or 0
        "updated_indexes": ((capacity,), np.dtype(np.int64)),
        "updated_masses": ((capacity,), double),
    }


class SamplerArrays(NamedTuple):
    """The arrays of the sampler's kernels; the first six lie in shared memory."""

    counters: Integers
    stamps: Integers  # [capacity]
    rows: Words
    masses: Floats  # [capacity], the mass that the writer assigned to the row
    updated_indexes: Integers  # [capacity], index + 1 of the row of each updated mass, or 0
    updated_masses: Floats  # [capacity]
    known: Integers  # [capacity], index of the row whose mass is in the tree, or NO_INDEX
    pending: Integers  # [capacity], the slots to check again, each at most once
    is_pending: Flags  # [capacity]
    progress: Integers  # [2]
    sums: Floats
    minima: Floats


# SamplerArrays as passed from Python; see `jit.numba_type`.
Plain = Annotated[tuple[Any, ...], SamplerArrays]


@jitable
def write_back(updated_indexes: Integers, updated_masses: Floats, slot: int, index: int, mass: float) -> None:
    """Store an updated mass in shared memory for the next sampler."""
    store_release(updated_indexes, slot, 0)  # if killed here, no mass is assigned to the wrong row
    fence_release()
    updated_masses[slot] = mass
    store_release(updated_indexes, slot, index + 1)


@kernel
def sync_tree(arrays: SamplerArrays) -> None:
    """Update the tree with the rows published since the last call."""
    # Unpacked before the loop: taking an array out of a tuple updates its reference count each time.
    counters, stamps, _, masses, updated_indexes, updated_masses = arrays[:6]
    known, pending, is_pending, progress, sums, minima = arrays[6:]
    capacity, first_node = stamps.shape[0], int64(first_leaf(sums))
    cleared_before, next_index = load_acquire(counters, CLEARED), load_acquire(counters, NEXT_INDEX)
    first_new = max(progress[SYNCED_TO], cleared_before, next_index - capacity)
    again, new = progress[PENDING], next_index - first_new
    changed = np.empty(again + new, np.int64)
    changes, to_come = 0, 0
    for i in range(again + new):
        slot = pending[i] if i < again else (first_new + i - again) % capacity
        if i >= again and is_pending[slot]:
            continue  # already checked with the pending slots
        stamp = load_acquire(stamps, slot)
        index = index_of(stamp)
        updated = updated_indexes[slot] == index + 1
        mass = updated_masses[slot] if updated else masses[slot]
        fence_acquire()
        # Without the second load, the mass could be the next row's. Stamp 0: reserved, not yet claimed.
        published = stamp > 0 and not is_held(stamp) and load_acquire(stamps, slot) == stamp
        # The newest row reserved for this slot may not be written yet; the slot then holds an older row.
        is_pending[slot] = not published or index < next_index - capacity
        if is_pending[slot]:
            pending[to_come] = slot
            to_come += 1
        if not published or index < cleared_before:
            index, mass = NO_INDEX, 0.0
        if index != known[slot]:
            known[slot] = index
            sums[first_node + slot] = mass
            changed[changes] = slot
            changes += 1
    progress[SYNCED_TO], progress[PENDING] = next_index, to_come
    recompute_above(sums, minima, changed[:changes])


@kernel
def draw_rows(
    plain: Plain, uniforms: Floats, indexes: Integers, masses: Floats, copies: Words, failed: Integers
) -> int:
    """Update the tree, draw one row for each number in [0, 1), and copy the rows.

    Returns the number of rows that must be drawn again, and writes their positions to `failed`. They are the
    rows that have been overwritten in the meantime, or all rows if none has mass.
    """
    arrays = SamplerArrays(*plain)
    sync_tree(arrays)
    if arrays.sums[ROOT] == 0.0:
        for i in range(failed.shape[0]):
            failed[i] = i
        return failed.shape[0]
    slots, drawn_masses = find_stratified(arrays.sums, uniforms)
    stamps, rows, known, progress = arrays.stamps, arrays.rows, arrays.known, arrays.progress
    pending, is_pending = arrays.pending, arrays.is_pending
    cleared_before, failures = load_acquire(arrays.counters, CLEARED), 0
    # In a separate loop, these reads overlap; a fence between them would prevent that.
    for i in range(slots.shape[0]):
        indexes[i], masses[i] = known[slots[i]], drawn_masses[i]
    for i in range(slots.shape[0]):
        slot = slots[i]
        if read_row(stamps, rows, slot, cleared_before, copies, i) != indexes[i]:
            failed[failures] = i
            failures += 1
            if not is_pending[slot]:
                is_pending[slot] = True
                pending[progress[PENDING]] = slot
                progress[PENDING] += 1
    fetch_add(arrays.counters, SAMPLED, slots.shape[0] - failures)
    fetch_add(arrays.counters, REJECTED, failures)
    return failures


@kernel
def update_rows(
    plain: Plain, indexes: Integers, priorities: Floats, formula: Formula, max_given: Integers
) -> int:
    """Update the tree, set the masses of rows that are still stored, and raise the maximum priority.

    Returns the status of `check_update`. If it is not DONE, no mass has been changed.
    """
    alpha, eps, priority_limit = formula
    arrays = SamplerArrays(*plain)
    sync_tree(arrays)
    known, sums, progress = arrays.known, arrays.sums, arrays.progress
    updated_indexes, updated_masses = arrays.updated_indexes, arrays.updated_masses
    status = check_update(indexes, priorities, progress[SYNCED_TO], priority_limit)
    if status != DONE:
        return status
    masses, slots = masses_of(priorities, alpha, eps), np.empty(indexes.shape[0], np.int64)
    capacity, first_node = known.shape[0], int64(first_leaf(sums))
    count, max_priority = 0, NO_PRIORITY
    for i in range(indexes.shape[0]):
        slot = indexes[i] % capacity
        if known[slot] == indexes[i]:  # otherwise the row has been overwritten
            sums[first_node + slot] = masses[i]  # the last mass of a repeated index wins
            write_back(updated_indexes, updated_masses, slot, indexes[i], masses[i])
            max_priority = max(max_priority, priorities[i])
            slots[count] = slot
            count += 1
    recompute_above(sums, arrays.minima, slots[:count])
    fetch_add(arrays.counters, STALE, indexes.shape[0] - count)
    raise_max(max_given, max_priority)
    return DONE


class PrioritizedSampler:
    """Draws rows in proportion to their masses and updates the masses. The caller must hold the lease.

    Attributes:
        rules: Conversion of priorities to masses, and the maximum priority.
        tree: Masses of the known rows; built by the first call after a claim.
        arrays: Arrays of the kernels; built with the tree.
        numbers_drawn: Random numbers drawn since the caller set it to 0.
    """

    def __init__(
        self,
        ring: SharedRing,
        lease: SamplerLease,
        rules: Prioritization,
        block: SharedArrays,
        only_stored_count: bool,
    ) -> None:
        """Create a sampler; the first call builds its tree.

        `only_stored_count` says that `update` lowers the maximum priority to that of the stored rows.
        """
        self.rules = rules
        self._ring, self._lease, self._block = ring, lease, block
        self._only_stored_count = only_stored_count
        self.numbers_drawn = 0
        self._claim_number = -1  # of the claim under which the tree was built

    def _reset_tree(self) -> None:
        """Start with an empty tree, which the next kernel fills with all rows in the ring."""
        ring, capacity = self._ring, self._ring.capacity
        self.tree = SumTree(capacity)
        self.arrays = SamplerArrays(
            counters=ring.counters,
            stamps=ring.stamps,
            rows=ring.rows,
            masses=ring.masses,
            updated_indexes=self._block["updated_indexes"],
            updated_masses=self._block["updated_masses"],
            known=np.full(capacity, NO_INDEX),
            pending=np.zeros(capacity, np.int64),
            is_pending=np.zeros(capacity, np.bool_),
            progress=np.zeros(2, np.int64),
            sums=self.tree.sums,
            minima=self.tree.minima,
        )
        self._plain = tuple(self.arrays)
        self._ranked_to = 0  # the tree's ranking, if there is one, includes the rows before this index
        self._lost = np.zeros(capacity, np.int64)  # index + 1 of a row that lacks a frame, or 0
        self._claim_number = self._lease.number  # last, so that an interrupted call starts over

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Rows, Integers, Floats]:
        """Draw rows, stratified; return the rows, their indexes, int64[n], and their masses, float64[n].

        Raises:
            RuntimeError: If rows are overwritten faster than they can be read, or no row has all its frames.
            ValueError: If there are no rows, or every mass is 0.
        """
        if self._claim_number != self._lease.number:
            self._reset_tree()
        if self.tree.total == 0.0 or self.rules.eps == 0.0:  # with eps > 0 no mass becomes 0
            self._wait_for_mass(batch_size, rng)
        words, indexes, masses, missing = self._draw(batch_size, rng)
        for _ in range(MAX_DRAWS):
            if len(missing) == 0:
                return words.view(self._ring.dtype).reshape(-1), indexes, masses
            if self.tree.total == 0.0:
                self._wait_for_mass(batch_size, rng)
            words[missing], indexes[missing], masses[missing], failed = self._draw(len(missing), rng)
            missing = missing[failed]
        raise self._ring.no_row_error(batch_size)

    def _wait_for_mass(self, batch_size: int, rng: np.random.Generator) -> None:
        """Wait until a row has mass; raise, before a random number is drawn, if no row will."""
        for _ in range(MAX_DRAWS):
            self._draw(0, rng)
            if self.tree.total > 0.0:
                return
            self._ring.check_not_empty(batch_size)
            if (known := self.arrays.known[self.arrays.known != NO_INDEX]).size:
                if np.isin(known + 1, self._lost).any():
                    raise frames_lost()
                self.tree.check_total()
            time.sleep(0.0001)  # all rows are being written at the moment
        raise self._ring.no_row_error(batch_size)

    def _draw(self, count: int, rng: np.random.Generator) -> tuple[Words, Integers, Floats, Integers]:
        """Draw once; return words, indexes and masses, and the positions that must be drawn again."""
        words = np.empty((count, self._ring.rows.shape[1]), np.uint64)
        indexes, masses, failed = np.empty(count, np.int64), np.empty(count), np.empty(count, np.int64)
        uniforms, ranking = rng.random(count), self.tree.ranking
        self.numbers_drawn += count
        if ranking is not None:
            self._mark_pending(ranking)
        failures = draw_rows(self._plain, uniforms, indexes, masses, words, failed)
        if ranking is not None:
            self._mark_synced(ranking)
        return words, indexes, masses, failed[:failures]

    def update(self, indexes: Any, priorities: Any) -> None:
        """Set the priorities of rows; see `MPPrioritizedReplayBuffer.update_priorities`."""
        if self._claim_number != self._lease.number:
            self._reset_tree()
        checked, given = self.rules.as_update(indexes, priorities)
        ranking = self.tree.ranking
        if ranking is not None:
            ranking.mark(checked % self._ring.capacity)
            self._mark_pending(ranking)
        status = update_rows(self._plain, checked, given, self.rules.formula, self._ring.max_given)
        if ranking is not None:
            self._mark_synced(ranking)
        if status != DONE:
            next_index = int(self.arrays.progress[SYNCED_TO])
            raise self.rules.update_error(status, checked, given, next_index)
        if self._only_stored_count:
            # A writer may raise the maximum at the same time; its row is in the tree at the next update.
            self.rules.lower_max(self.tree, self._ring.capacity)

    def _mark_pending(self, ranking: Ranking) -> None:
        """Mark the slots that the next kernel will check again; their masses may change."""
        ranking.mark(self.arrays.pending[: self.arrays.progress[PENDING]].copy())

    def _mark_synced(self, ranking: Ranking) -> None:
        """Mark the slots of the rows that kernels have added to the tree since the last call."""
        synced_to, capacity = int(self.arrays.progress[SYNCED_TO]), self._ring.capacity
        ranking.mark(np.arange(max(self._ranked_to, synced_to - capacity), synced_to) % capacity)
        self._ranked_to = synced_to  # if interrupted before this, the next call marks the same slots

    def zero_mass(self, indexes: Integers) -> None:
        """Set the mass of rows that lack a frame to 0. They stay known, so they do not return to the tree."""
        slots = indexes % self._ring.capacity
        slots = np.unique(slots[self.arrays.known[slots] == indexes])
        self.tree.set(slots, np.zeros(len(slots)))
        self._lost[slots] = self.arrays.known[slots] + 1

    def discard_tree(self) -> None:
        """Discard the tree; the next call rebuilds it from the rows stored then."""
        self._claim_number = -1
