"""What processes share of priorities: the maximum given so far, and the masses that the sampler has changed.

A writer leaves the mass of a new row beside the row (`protocol.write_rows`).

Left out: the sum tree over the masses, which is the sampler's own (`sampler`).
"""

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers, jitable
from replay_tutorial.buffers.priorities import NO_PRIORITY, Prioritization
from replay_tutorial.shared.atomics import fence_release, store_release
from replay_tutorial.shared.memory import SharedArrays, Specs

# What the arrays of `priority_specs` are at first, if not zero.
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


@jitable
def write_back(updated_indexes: Integers, updated_masses: Floats, slot: int, index: int, mass: float) -> None:
    """Leave a changed mass to the next sampler."""
    store_release(updated_indexes, slot, 0)  # if we are killed here, no mass counts for the wrong row
    fence_release()
    updated_masses[slot] = mass
    store_release(updated_indexes, slot, index + 1)


class SharedPrioritization(Prioritization):
    """A prioritization whose maximum is raised by many processes at once."""

    def __init__(self, block: SharedArrays) -> None:
        """Look into a block with the arrays of `priority_specs`."""
        layout = block.layout
        super().__init__(layout["size"], block["seen"], layout["alpha"], layout["eps"])
