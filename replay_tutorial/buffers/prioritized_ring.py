"""The ring of a prioritized buffer: rows, and a sum tree over their masses.

Adding rows writes their masses to the leaves of the tree. The nodes above the leaves are recomputed at the
next draw, once for all rows that were added in the meantime.

Built in chapter 05, *Prioritized replay*.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from replay_tutorial.buffers.priorities import (
    DONE,
    NO_PRIORITY,
    Formula,
    Prioritization,
    Weights,
    check_update,
    masses_of,
    write_weights,
)
from replay_tutorial.buffers.ring import (
    CLEARED,
    NEXT_INDEX,
    SYNCED,
    Change,
    Ring,
    append_and_change,
    append_rows,
)
from replay_tutorial.buffers.runtime.jit import Bytes, Floats, Integers, Matrix, int64, kernel
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_stratified, first_leaf, recompute_above


@kernel
def write_leaves(
    leaves: Floats,
    largest_priority: Floats,
    capacity: int,
    first_index: int,
    masses: Floats,
    max_priority: float,
) -> None:
    """Write the masses of new rows to their leaves, and raise the largest priority.

    Of more rows than slots, the masses of the last rows remain.
    """
    for i in range(masses.shape[0]):
        leaves[(first_index + i) % capacity] = masses[i]
    largest_priority[0] = max(largest_priority[0], max_priority)


@kernel
def append_with_masses(
    rows: Bytes,
    counters: Integers,
    leaves: Floats,
    largest_priority: Floats,
    new_rows: Bytes,
    new_masses: Floats,
    max_priority: float,
) -> int:
    """Append rows and their masses, and raise the largest priority to at least `max_priority`."""
    first_index = append_rows(rows, counters, new_rows)
    write_leaves(leaves, largest_priority, rows.shape[0], first_index, new_masses, max_priority)
    return first_index


@kernel
def append_with_masses_and_change(
    rows: Bytes,
    counters: Integers,
    leaves: Floats,
    largest_priority: Floats,
    new_rows: Bytes,
    new_masses: Floats,
    max_priority: float,
    state: Matrix,
    new_state: Matrix,
) -> int:
    """Append rows and their masses, and make the change of `append_and_change`."""
    first_index = append_and_change(rows, counters, new_rows, state, new_state)
    write_leaves(leaves, largest_priority, rows.shape[0], first_index, new_masses, max_priority)
    return first_index


@kernel
def sync_tree(counters: Integers, capacity: int, sums: Floats, minima: Floats) -> None:
    """Recompute the nodes above the leaves of the rows that were added since the last call."""
    next_index = counters[NEXT_INDEX]
    first_new = max(counters[SYNCED], next_index - capacity)
    if first_new < next_index:
        slots = np.empty(next_index - first_new, np.int64)
        for i in range(slots.shape[0]):
            slots[i] = (first_new + i) % capacity
        recompute_above(sums, minima, slots)
        counters[SYNCED] = next_index


@kernel
def draw(
    counters: Integers,
    capacity: int,
    sums: Floats,
    minima: Floats,
    uniforms: Floats,
    beta: float,
    by_buffer: bool,
    slots: Integers,
    indexes: Integers,
    weights: Weights,
) -> None:
    """Sample a slot for each uniform random number; write the slots and the rows' indexes and weights."""
    found, masses = find_stratified(sums, uniforms)
    next_index = counters[NEXT_INDEX]
    next_slot = next_index % capacity
    for i in range(found.shape[0]):
        slots[i] = found[i]
        indexes[i] = found[i] + next_index - next_slot
        if found[i] >= next_slot:
            indexes[i] -= capacity  # slots from next_slot on hold rows of the previous lap
    write_weights(masses, beta, minima[ROOT], by_buffer, weights)


@kernel
def update_leaves(
    indexes: Integers,
    priorities: Floats,
    counters: Integers,
    capacity: int,
    formula: Formula,
    sums: Floats,
    minima: Floats,
    largest_priority: Floats,
    stale_updates: Integers,
) -> int:
    """Set the masses of rows, update the maximum priority, and count the updates of replaced rows.

    Leaves that `append` has written since the last draw may not be in the sums yet; `sync_tree` adds them.
    Return the status of `check_update`; if it is not DONE, nothing has changed.
    """
    alpha, eps, priority_limit = formula
    next_index = counters[NEXT_INDEX]
    oldest_index = max(counters[CLEARED], next_index - capacity)
    status = check_update(indexes, priorities, next_index, priority_limit)
    if status != DONE:
        return status
    masses = masses_of(priorities, alpha, eps)
    first_node, first_of_lap = int64(first_leaf(sums)), next_index - next_index % capacity
    slots = np.empty(indexes.shape[0], np.int64)
    count, max_priority = 0, largest_priority[0]
    for i in range(indexes.shape[0]):
        index = indexes[i]
        if index >= oldest_index:  # otherwise the row has been replaced, and its slot holds a newer one
            slot = index - first_of_lap if index >= first_of_lap else index - first_of_lap + capacity
            sums[first_node + slot] = masses[i]  # the last priority of a repeated index counts
            max_priority = max(max_priority, priorities[i])
            slots[count] = slot
            count += 1
    recompute_above(sums, minima, slots[:count])
    largest_priority[0] = max_priority
    stale_updates[0] += indexes.shape[0] - count
    return DONE


class PrioritizedRing(Ring):
    """Stores the newest rows and their masses.

    Attributes:
        rules: Conversion of priorities to masses, and the largest priority so far.
        leaves: float64[leaves of the tree], the mass of each slot.
    """

    def __init__(
        self,
        rules: Prioritization,
        capacity: int,
        dtype: np.dtype[np.void],
        next_index: int = 0,
        stored: int = 0,
    ) -> None:
        """Reserve memory for rows and masses; see `Ring`."""
        super().__init__(capacity, dtype, next_index, stored)
        self.rules = rules
        self._tree = SumTree(capacity)

    @property
    def leaves(self) -> Floats:
        """The mass of each slot."""
        return self._tree.leaves

    def append(
        self,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None = None,
        max_priority: float | None = None,
        change: Change | None = None,
    ) -> int:
        """Append rows and their masses, and raise the largest priority; see `Ring.append`."""
        if count == 1:
            staged = self._one_row
            staged.records[0], staged.masses[0] = tuple(columns), masses
        elif count > self._rows_at_once and change is None:
            return self._append_in_parts(count, columns, masses, max_priority)
        else:
            staged = self._stage(count, columns)
            staged.masses[...] = masses
        raised_to = NO_PRIORITY if max_priority is None else max_priority
        memory = self.bytes, self.counters, self._tree.leaves, self.rules.largest_priority
        if change is None:
            return append_with_masses(*memory, staged.bytes, staged.masses, raised_to)
        return append_with_masses_and_change(*memory, staged.bytes, staged.masses, raised_to, *change)

    def tree(self) -> SumTree:
        """Return the tree, after recomputing the nodes above the leaves that `append` has written."""
        tree, counters = self._tree, self.counters
        if counters.item(SYNCED) < (next_index := counters.item(NEXT_INDEX)):
            if tree.ranking is not None:
                first_new = max(counters.item(SYNCED), next_index - self.capacity)
                tree.ranking.mark(self.slot_numbers(first_new, next_index))
            sync_tree(counters, self.capacity, tree.sums, tree.minima)
        return tree

    def draw_by_mass(
        self, batch_size: int, rng: np.random.Generator, beta: float, by_buffer: bool
    ) -> tuple[Integers, Integers, Weights]:
        """Draw rows in proportion to their masses; return their slots, indexes and weights.

        Raise ValueError, before a random number is drawn, if no row is stored or all have the mass 0.
        """
        tree = self.tree()
        if tree.sums.item(ROOT) == 0.0:
            self.check_not_empty(batch_size)
            tree.check_total()
        # Allocated here, because Numba makes Python objects of arrays that a kernel returns, and Ctrl-C may
        # come in between.
        slots, indexes = np.empty(batch_size, np.int64), np.empty(batch_size, np.int64)
        weights = np.empty(batch_size, np.float32)
        draw(
            *(self.counters, self.capacity, tree.sums, tree.minima),
            *(rng.random(batch_size), beta, by_buffer, slots, indexes, weights),
        )
        return slots, indexes, weights

    def update(self, indexes: Any, priorities: Any) -> None:
        """Set the priorities of rows; see `PrioritizedReplayBuffer.update_priorities`."""
        rules, tree = self.rules, self._tree
        checked, floats = rules.as_update(indexes, priorities)
        if tree.ranking is not None:
            tree.ranking.mark(checked % self.capacity)  # before the change, because Ctrl-C may come between
        status = update_leaves(
            *(checked, floats, self.counters, self.capacity, rules.formula),
            *(tree.sums, tree.minima, rules.largest_priority, rules.stale_updates),
        )
        if status != DONE:
            raise rules.update_error(status, checked, floats, self.next_index)

    def restart_ranking(self) -> None:
        """Discard the ranking, so that a saved buffer and the loaded one build the same from the masses."""
        self._tree.ranking = None

    def cleared(self) -> "PrioritizedRing":
        """Return an empty ring that uses the same memory for rows, and continues the index count."""
        ring: Any = super().cleared()
        ring.rules, ring._tree = self.rules.with_max(), SumTree(self.capacity)
        ring.counters[SYNCED] = self.next_index
        return ring
