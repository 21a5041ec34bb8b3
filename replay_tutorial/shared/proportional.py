"""Proportional draws from a ring that others write to at the same time.

The sampler's tree holds the masses of the rows that it knows. Before it draws, it looks at the slots reserved since
the last time, and again at those that were not published then. A row that is drawn, but has been replaced meanwhile,
is drawn again.

What the sampler learns later about a row, it writes into arrays of its own, with the row's index, and never over the
writer's mass: that might already be the next row's. So another sampler can build the same tree.
"""

import time
from typing import Any

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers, Words, kernel
from replay_tutorial.buffers.priorities import DONE, NO_PRIORITY, Priorities
from replay_tutorial.buffers.sum_tree import SumTree
from replay_tutorial.shared.atomics import fetch_max
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import NO_INDEX
from replay_tutorial.shared.sampling import NO_MASS, TAKEN_IN, draw_rows, update_rows
from replay_tutorial.shared.shared_ring import MOST_DRAWS, SharedRing


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


@kernel
def raise_to(max_given: Integers, bits: int) -> None:
    """Raise the maximum priority to at least another, as integers: floats from 0 on have the same order."""
    fetch_max(max_given, 0, bits)


class SharedPriorities(Priorities):
    """Priorities whose maximum is raised by many processes at once."""

    def note_max_priority(self, priority: float) -> None:
        """Remember the largest of some priorities that rows have been given."""
        if priority > self.max_given[0]:
            # + 0.0: no -0.0
            raise_to(self.max_given.view(np.int64), int(np.float64(priority + 0.0).view(np.int64)))


class SharedDraw:
    """The sampler's tree.

    Attributes:
        tree: The masses of the rows that are known.
        known: int64[capacity], the index of the row whose mass is in the tree; NO_INDEX for none.
        stale_updates: Updates dropped because their row had been replaced.
    """

    def __init__(self, ring: SharedRing, priorities: Priorities, arrays: SharedArrays) -> None:
        """Begin with an empty tree; the first draw or update learns of every row in the ring."""
        self.priorities = priorities
        self.tree = SumTree(ring.capacity)
        self.known = np.full(ring.capacity, NO_INDEX)
        self.stale_updates = 0
        self._ring = ring
        # Each slot is on the waiting list at most once: there is room for all.
        self._waiting, self._is_waiting = np.zeros(ring.capacity, np.int64), np.zeros(ring.capacity, np.bool_)
        self._progress = np.zeros(2, np.int64)
        self._learning = (
            ring.masses,
            arrays["updated_indexes"],
            arrays["updated_masses"],
            self.known,
            self._waiting,
            self._is_waiting,
            self._progress,
            self.tree.sums,
            self.tree.minima,
        )

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Words, Integers, Floats]:
        """Draw rows in proportion to their masses, stratified.

        Returns:
            Their words, uint64[batch_size, words], indexes, int64[batch_size], and masses, float64[batch_size].

        Raises:
            RuntimeError: If rows are replaced faster than they can be read.
            ValueError: If there are none, or every mass is 0.
        """
        words, indexes = self._ring.empty_words(batch_size), np.empty(batch_size, np.int64)
        masses = rng.random(batch_size)
        missing = self._draw(masses, indexes, words)
        for _ in range(1, MOST_DRAWS):
            if len(missing) == 0:
                return words, indexes, masses
            if self.tree.total == 0.0:
                self._ring.check_some(batch_size)
                if (self.known != NO_INDEX).any():
                    self.tree.check_total()
                time.sleep(0.0)  # every row is being added, or replaced, at this moment
            part = (
                self._ring.empty_words(len(missing)),
                np.empty(len(missing), np.int64),
                rng.random(len(missing)),
            )
            failed = self._draw(part[2], part[1], part[0])
            words[missing], indexes[missing], masses[missing] = part
            missing = missing[failed]
        raise self._ring.none_to_draw(batch_size)

    def _draw(self, uniforms: Floats, indexes: Integers, words: Words) -> Integers:
        """Draw once; gives the positions that must be drawn again."""
        ring, failed = self._ring, np.empty(len(uniforms), np.int64)
        failures = draw_rows(
            ring.counters, ring.stamps, ring.rows, *self._learning, uniforms, indexes, words, failed
        )
        return np.arange(len(uniforms)) if failures == NO_MASS else failed[:failures]

    def update(self, indexes: Any, priorities: Any) -> None:
        """Set the masses of rows anew; see `MPPrioritizedReplayBuffer.update_priorities`."""
        own = self.priorities
        checked, given = own.as_update(indexes, priorities)
        status, count, max_priority = update_rows(
            self._ring.counters,
            self._ring.stamps,
            *self._learning,
            checked,
            given,
            own.formula,
        )
        if status != DONE:
            raise own.update_refusal(status, checked, given, int(self._progress[TAKEN_IN]))
        self.stale_updates += len(checked) - count
        own.note_max_priority(max_priority)

    def take_out(self, indexes: Integers) -> None:
        """Draw rows no more that turned out to lack a frame. They stay known, so that they are not taken in again."""
        slots = indexes % self._ring.capacity
        slots = np.unique(slots[self.known[slots] == indexes])
        self.tree.set(slots, np.zeros(len(slots)))

    def forget(self) -> None:
        """Forget every row that `clear` has."""
        known = np.flatnonzero(self.known != NO_INDEX)
        self.known[known] = NO_INDEX
        self.tree.set(known, np.zeros(len(known)))
        self.priorities.max_given[0] = NO_PRIORITY
        self._progress[TAKEN_IN] = self._ring.oldest_index  # not next_index: others go on adding
