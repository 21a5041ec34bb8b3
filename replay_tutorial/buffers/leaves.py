"""The ways between rows and the leaves of the sum tree: leaf i holds the mass of the row in slot i.

    a draw:     number in [0, 1) ──▶ leaf ──▶ slot, index and weight of its row
    an update:  index ──▶ slot ──▶ leaf, unless the row has been replaced

Left out: the tree (`sum_tree`), and what a mass or a weight is (`priorities`).
"""

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers, int64, kernel
from replay_tutorial.buffers.priorities import DONE, Formula, Weights, check_update, masses_of, weights_of
from replay_tutorial.buffers.sum_tree import ROOT, find_stratified, first_leaf, recompute_above


@kernel
def draw(
    sums: Floats,
    minima: Floats,
    uniforms: Floats,
    next_index: int,
    capacity: int,
    beta: float,
    by_buffer: bool,
) -> tuple[Integers, Integers, Weights]:
    """Return n slots for n numbers in [0, 1), and the indexes and weights of their rows."""
    slots, masses = find_stratified(sums, uniforms)
    next_slot = next_index % capacity
    indexes = np.empty(slots.shape[0], np.int64)
    for i in range(slots.shape[0]):
        indexes[i] = slots[i] + next_index - next_slot
        if slots[i] >= next_slot:
            indexes[i] -= capacity  # the slots from next_slot on still hold rows of the lap before
    return slots, indexes, weights_of(masses, beta, minima[ROOT], by_buffer)


@kernel
def update_leaves(
    indexes: Integers,
    priorities: Floats,
    oldest_index: int,
    next_index: int,
    capacity: int,
    formula: Formula,
    sums: Floats,
    minima: Floats,
    max_given: Floats,
    stale_updates: Integers,
) -> int:
    """Give rows that are still there new masses, note the largest of their priorities, and count the others.

    Returns what `check_update` returns; if not DONE, nothing has changed.
    """
    alpha, eps, priority_limit = formula
    status = check_update(indexes, priorities, next_index, priority_limit)
    if status != DONE:
        return status
    masses = masses_of(priorities, alpha, eps)
    first_node, first_of_lap = int64(first_leaf(sums)), next_index - next_index % capacity
    slots = np.empty(indexes.shape[0], np.int64)
    count, max_priority = 0, max_given[0]
    for i in range(indexes.shape[0]):
        index = indexes[i]
        if index >= oldest_index:  # else the row has been replaced, and its slot holds another one
            slot = index - first_of_lap if index >= first_of_lap else index - first_of_lap + capacity
            sums[first_node + slot] = masses[i]  # of a repeated index the last one stays
            max_priority = max(max_priority, priorities[i])
            slots[count] = slot
            count += 1
    recompute_above(sums, minima, slots[:count])
    max_given[0] = max_priority
    stale_updates[0] += indexes.shape[0] - count
    return DONE
