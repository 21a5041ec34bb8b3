"""The sampler: the one process that draws from a shared ring, and its draws in proportion to the masses.

Its sum tree holds the masses of the rows that it knows. Before it draws, it looks at the slots reserved since
the last time, and again at those that were not published then. A row that is drawn, but has been replaced
meanwhile, is drawn again. Each call is one kernel: a step back into Python would cost as much as its work.

What the sampler learns later about a row, it writes into arrays of its own, with the row's index, and never
over the writer's mass: that might already be the next row's. So another sampler can build the same tree. The
largest priority given so far is shared with the writers, who give it to rows without a priority.

Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay", section 3.
"""

import time
from collections.abc import Callable, Hashable
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from replay_tutorial.buffers.fields import Rows
from replay_tutorial.buffers.jit import Flags, Floats, Integers, Words, int64, jitable, kernel
from replay_tutorial.buffers.priorities import (
    DONE,
    NO_PRIORITY,
    Formula,
    Prioritization,
    check_update,
    masses_of,
)
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_stratified, first_leaf, recompute_above
from replay_tutorial.shared.atomics import (
    fence_acquire,
    fence_release,
    fetch_add,
    load_acquire,
    store_release,
)
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.processes import myself
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

P = ParamSpec("P")
R = TypeVar("R")

# Where in `progress`: the index up to which slots were looked at, and how many are looked at again.
TAKEN_IN, WAITING = 0, 1


class SamplerLease:
    """A handle's right to sample.

    Attributes:
        number: Of the claim under which this handle sampled last. They are counted, because after another
            handle's claim the masses may have changed.
    """

    def __init__(self, counters: Integers, block: Hashable) -> None:
        """Claim nothing yet of the ring with these counters, in the block of an identity."""
        self.number = -1
        self._counters, self._block = counters, block
        self.registration = NOT_REGISTERED

    def hold(self, work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Do some work as the sampler; other threads of this process wait meanwhile.

        Raises:
            RuntimeError: If another living process is the sampler.
        """
        if not self.registration.is_mine:  # the first time, and again in a forked child
            self.registration, self.number = registration_at(self._block), -1
        # With a `with` statement the lock could stay held: an interrupt may come between `__enter__` and the
        # block (since Python 3.14 also if it is the lock's own), and at the start of an `__exit__` that is
        # written in Python.
        release = self.registration.lock.release  # of an RLock: only the thread that holds it can release it
        try:
            self.registration.lock.acquire()
            if self._counters[CLAIMS] != self.number:
                self.number = self.registration.become_sampler(self._counters)
            result = work(*arguments, **named)
            release()
            return result
        except BaseException:
            try:  # noqa: SIM105 - `suppress` is written in Python, and could be interrupted before the release
                release()
            except RuntimeError:  # it was released already, or not yet acquired
                pass
            raise

    def release(self) -> None:
        """Stop being the sampler, unless another handle of this process has claimed it since."""
        if self._counters[CLAIMS] == self.number:
            swap(self._counters, SAMPLER_PROCESS, myself(), 0)


# What elements of the arrays of `priority_specs` are at first, if not zero.
FIRST_PRIORITIES = {"seen": NO_PRIORITY}


def priority_specs(capacity: int) -> Specs:
    """Describe the shared arrays that priorities need beside the ring's masses."""
    double = np.dtype(np.float64)
    return {
        # the maximum of all priorities given so far; the name is that of archives
        "seen": ((1,), double),
        # masses that the sampler has changed, and index + 1 of the row that each belongs to, 0 for none
        "updated_indexes": ((capacity,), np.dtype(np.int64)),
        "updated_masses": ((capacity,), double),
    }


class SamplerArrays(NamedTuple):
    """All that the sampler's kernels work on; the first six lie in shared memory."""

    counters: Integers
    stamps: Integers  # [capacity]
    rows: Words
    masses: Floats  # [capacity], the mass that a row's writer gave it
    updated_indexes: Integers  # [capacity], index + 1 of the row that the mass beside is of, 0 for none
    updated_masses: Floats  # [capacity]
    known: Integers  # [capacity], the index of the row whose mass is in the tree, NO_INDEX for none
    waiting: Integers  # [capacity], the slots that are looked at again, each at most once
    is_waiting: Flags  # [capacity]
    progress: Integers  # [2]
    sums: Floats
    minima: Floats


# SamplerArrays as they come from Python: see `jit.numba_type`.
Plain = Annotated[tuple[Any, ...], SamplerArrays]


@jitable
def write_back(updated_indexes: Integers, updated_masses: Floats, slot: int, index: int, mass: float) -> None:
    """Leave a changed mass to the next sampler."""
    store_release(updated_indexes, slot, 0)  # if we are killed here, no mass counts for the wrong row
    fence_release()
    updated_masses[slot] = mass
    store_release(updated_indexes, slot, index + 1)


@kernel
def sync_tree(arrays: SamplerArrays) -> None:
    """Learn of the rows published since the last call, and set the tree."""
    # Named before the loop: an array taken out of a tuple inside of a loop costs a reference count each time.
    counters, stamps, _, masses, updated_indexes, updated_masses = arrays[:6]
    known, waiting, is_waiting, progress, sums, minima = arrays[6:]
    capacity, first_node = stamps.shape[0], int64(first_leaf(sums))
    cleared_before, next_index = load_acquire(counters, CLEARED), load_acquire(counters, NEXT_INDEX)
    first_new = max(progress[TAKEN_IN], cleared_before, next_index - capacity)
    again, new = progress[WAITING], next_index - first_new
    changed = np.empty(again + new, np.int64)
    changes, to_come = 0, 0
    for i in range(again + new):
        slot = waiting[i] if i < again else (first_new + i - again) % capacity
        if i >= again and is_waiting[slot]:
            continue  # it was among those that are looked at again
        stamp = load_acquire(stamps, slot)
        index = index_of(stamp)
        updated = updated_indexes[slot] == index + 1
        mass = updated_masses[slot] if updated else masses[slot]
        fence_acquire()
        # Without the second look, the mass may be the next row's. Stamp 0: reserved, and not yet begun.
        published = stamp > 0 and not is_held(stamp) and load_acquire(stamps, slot) == stamp
        # The newest row that was reserved here may be still to come, and an older one still be there.
        is_waiting[slot] = not published or index < next_index - capacity
        if is_waiting[slot]:
            waiting[to_come] = slot
            to_come += 1
        if not published or index < cleared_before:
            index, mass = NO_INDEX, 0.0
        if index != known[slot]:
            known[slot] = index
            sums[first_node + slot] = mass
            changed[changes] = slot
            changes += 1
    progress[TAKEN_IN], progress[WAITING] = next_index, to_come
    recompute_above(sums, minima, changed[:changes])


@kernel
def draw_rows(
    plain: Plain, uniforms: Floats, indexes: Integers, masses: Floats, copies: Words, failed: Integers
) -> int:
    """Take in new rows, draw one for each number in [0, 1), and copy what was drawn.

    Returns the number of rows that must be drawn again, and lists their positions in `failed`: those that
    have been replaced meanwhile, or all if none has mass.
    """
    arrays = SamplerArrays(*plain)
    sync_tree(arrays)
    if arrays.sums[ROOT] == 0.0:
        for i in range(failed.shape[0]):
            failed[i] = i
        return failed.shape[0]
    slots, drawn_masses = find_stratified(arrays.sums, uniforms)
    stamps, rows, known, progress = arrays.stamps, arrays.rows, arrays.known, arrays.progress
    waiting, is_waiting = arrays.waiting, arrays.is_waiting
    cleared_before, failures = load_acquire(arrays.counters, CLEARED), 0
    # In a loop of its own, these reads wait for memory side by side; a fence between them would forbid it.
    for i in range(slots.shape[0]):
        indexes[i], masses[i] = known[slots[i]], drawn_masses[i]
    for i in range(slots.shape[0]):
        slot = slots[i]
        if read_row(stamps, rows, slot, cleared_before, copies, i) != indexes[i]:
            failed[failures] = i
            failures += 1
            if not is_waiting[slot]:
                is_waiting[slot] = True
                waiting[progress[WAITING]] = slot
                progress[WAITING] += 1
    fetch_add(arrays.counters, SAMPLED, slots.shape[0] - failures)
    fetch_add(arrays.counters, REJECTED, failures)
    return failures


@kernel
def update_rows(
    plain: Plain, indexes: Integers, priorities: Floats, formula: Formula, max_given: Integers
) -> int:
    """Take in new rows, give those that are still there new masses, and note the largest of the priorities.

    Returns what `check_update` returns; if not DONE, no mass has changed.
    """
    alpha, eps, priority_limit = formula
    arrays = SamplerArrays(*plain)
    sync_tree(arrays)
    known, sums, progress = arrays.known, arrays.sums, arrays.progress
    updated_indexes, updated_masses = arrays.updated_indexes, arrays.updated_masses
    status = check_update(indexes, priorities, progress[TAKEN_IN], priority_limit)
    if status != DONE:
        return status
    masses, slots = masses_of(priorities, alpha, eps), np.empty(indexes.shape[0], np.int64)
    capacity, first_node = known.shape[0], int64(first_leaf(sums))
    count, max_priority = 0, NO_PRIORITY
    for i in range(indexes.shape[0]):
        slot = indexes[i] % capacity
        if known[slot] == indexes[i]:  # else the row has been replaced, and the slot holds another one
            sums[first_node + slot] = masses[i]  # of a repeated index the last one stays
            write_back(updated_indexes, updated_masses, slot, indexes[i], masses[i])
            max_priority = max(max_priority, priorities[i])
            slots[count] = slot
            count += 1
    recompute_above(sums, arrays.minima, slots[:count])
    fetch_add(arrays.counters, STALE, indexes.shape[0] - count)
    raise_max(max_given, max_priority)
    return DONE


class PrioritizedSampler:
    """Draws rows in proportion to their masses, and updates these; the caller holds the lease.

    Attributes:
        rules: How priorities become masses, and their maximum so far.
        tree: The masses of the rows that are known; made by the first call of a turn.
        arrays: What the kernels work on; likewise.
    """

    def __init__(
        self, ring: SharedRing, lease: SamplerLease, rules: Prioritization, block: SharedArrays
    ) -> None:
        """Begin without a tree."""
        self.rules = rules
        self._ring, self._lease, self._block = ring, lease, block
        self._claim_number = -1  # of the claim, when the tree was made

    def _prepare(self) -> None:
        """Begin with an empty tree: the kernel that is called next learns of every row in the ring."""
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
            waiting=np.zeros(capacity, np.int64),
            is_waiting=np.zeros(capacity, np.bool_),
            progress=np.zeros(2, np.int64),
            sums=self.tree.sums,
            minima=self.tree.minima,
        )
        self._plain = tuple(self.arrays)
        self._lost = np.zeros(capacity, np.int64)  # index + 1 of a row that lacks a frame
        self._claim_number = self._lease.number  # last: before it, an interrupted call begins anew

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Rows, Integers, Floats]:
        """Draw rows, stratified; return them, their indexes, int64[n], and their masses, float64[n].

        Raises:
            RuntimeError: If rows are replaced faster than they can be read, or none has all its frames.
            ValueError: If there are none, or every mass is 0.
        """
        if self._claim_number != self._lease.number:
            self._prepare()
        if self.tree.total == 0.0 or self.rules.eps == 0.0:  # else a mass can't become 0
            self._wait_for_mass(batch_size, rng)
        words, indexes, masses, missing = self._draw(batch_size, rng)
        for _ in range(MAX_DRAWS):
            if len(missing) == 0:
                return words.view(self._ring.dtype).reshape(-1), indexes, masses
            if self.tree.total == 0.0:
                self._wait_for_mass(batch_size, rng)
            words[missing], indexes[missing], masses[missing], failed = self._draw(len(missing), rng)
            missing = missing[failed]
        raise self._ring.none_to_draw(batch_size)

    def _wait_for_mass(self, batch_size: int, rng: np.random.Generator) -> None:
        """Learn of rows until one has mass; refuse, before a random number is drawn, if none will."""
        for _ in range(MAX_DRAWS):
            self._draw(0, rng)
            if self.tree.total > 0.0:
                return
            self._ring.check_some(batch_size)
            if (known := self.arrays.known[self.arrays.known != NO_INDEX]).size:
                if np.isin(known + 1, self._lost).any():
                    raise frames_lost()
                self.tree.check_total()
            time.sleep(0.0001)  # every row is being added, or replaced, at this moment
        raise self._ring.none_to_draw(batch_size)

    def _draw(self, count: int, rng: np.random.Generator) -> tuple[Words, Integers, Floats, Integers]:
        """Draw once; return words, indexes and masses, and the positions that must be drawn again."""
        words = np.empty((count, self._ring.rows.shape[1]), np.uint64)
        indexes, masses, failed = np.empty(count, np.int64), np.empty(count), np.empty(count, np.int64)
        failures = draw_rows(self._plain, rng.random(count), indexes, masses, words, failed)
        return words, indexes, masses, failed[:failures]

    def update(self, indexes: Any, priorities: Any) -> None:
        """Give rows new priorities, see `MPPrioritizedReplayBuffer`."""
        if self._claim_number != self._lease.number:
            self._prepare()
        checked, given = self.rules.as_update(indexes, priorities)
        status = update_rows(self._plain, checked, given, self.rules.formula, self._ring.max_given)
        if status != DONE:
            next_index = int(self.arrays.progress[TAKEN_IN])
            raise self.rules.update_refusal(status, checked, given, next_index)

    def zero_mass(self, indexes: Integers) -> None:
        """Give rows that lack a frame no mass. They stay known, so that they are not taken in again."""
        slots = indexes % self._ring.capacity
        slots = np.unique(slots[self.arrays.known[slots] == indexes])
        self.tree.set(slots, np.zeros(len(slots)))
        self._lost[slots] = self.arrays.known[slots] + 1

    def forget(self) -> None:
        """Forget the tree; the next call makes it again of the rows that are there then."""
        self._claim_number = -1
