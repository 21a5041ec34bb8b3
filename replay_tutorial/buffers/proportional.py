"""Proportional draws: rows in proportion to their masses, and the weights that make good for it.

    w_i = (1 / N · 1 / P(i))^β / max_k w_k  =  (least mass / mass of i)^β      (Schaul et al. 2016, section 3.4)

The tree over the masses is private to whoever draws. It takes in the masses of new rows, all at once, before it
draws, so that adding a row costs no walk up the tree, and a writer of another process need never touch it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.priorities import NONE_YET, Priorities
from replay_tutorial.buffers.sum_tree import Slots, SumTree


class ProportionalDraw:
    """Draws slots of a ring in proportion to their masses.

    Attributes:
        priorities: The masses beside the rows.
        tree: The sum tree over those taken in.
        stale_updates: Updates dropped because their row had been replaced.
    """

    def __init__(self, priorities: Priorities, tree: SumTree) -> None:
        """Begin with a tree of the ring's capacity; the first `take_in` brings it up to date."""
        self.priorities = priorities
        self.tree = tree
        self.stale_updates = 0
        self._taken_in = 0  # the index up to which the tree knows the masses

    def take_in(self, oldest_index: int, next_index: int) -> None:
        """Let the masses of the rows since the last call count; O(new rows · log capacity)."""
        first = max(self._taken_in, oldest_index)
        if first < next_index:
            slots = np.arange(first, next_index) % len(self.priorities.masses)
            self.tree.set(slots, self.priorities.masses[slots])
            self._taken_in = next_index

    def draw(
        self, batch_size: int, beta: float, normalize: str, rng: np.random.Generator
    ) -> tuple[Slots, npt.NDArray[np.float32]]:
        """Draw slots, stratified, and weigh them: int64[batch_size], float32[batch_size].

        Raises:
            ValueError: If beta or `normalize` is out of range, or every mass is 0.
        """
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must lie in [0, 1], not {beta}.")
        if normalize not in ("buffer", "batch"):
            raise ValueError(f'normalize must be "buffer" or "batch", not {normalize!r}.')
        slots = self.tree.draw(batch_size, rng)
        masses = self.tree.leaves.take(slots)
        least = self.tree.minimum if normalize == "buffer" else masses.min()
        return slots, ((least / masses) ** beta).astype(np.float32)

    def update(self, indexes: Any, priorities: Any, oldest_index: int, next_index: int) -> None:
        """Set the masses of rows anew; see `PrioritizedReplayBuffer.update_priorities`."""
        array = np.asarray(indexes)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"Indexes are integers, as `sample` gave them, not {array.dtype}.")
        array = array.reshape(-1).astype(np.int64)
        masses = self.priorities.to_masses(priorities, len(array))
        if len(array) == 0:
            return
        least, greatest = int(array.min()), int(array.max())
        if least < 0 or greatest >= next_index:
            wrong = least if least < 0 else greatest
            raise IndexError(f"No row has had the index {wrong}; indexes given out are 0 to {next_index - 1}.")
        given = np.asarray(priorities).reshape(-1)
        if least < oldest_index:  # trap: these slots hold other rows by now
            current = array >= oldest_index
            self.stale_updates += len(array) - int(np.count_nonzero(current))
            array, masses, given = array[current], masses[current], given[current]
        if len(array):
            array %= len(self.priorities.masses)
            self.priorities.masses[array] = masses  # of a repeated slot the last stays, here as in the tree
            self.tree.set(array, masses)
            self.priorities.saw(given)

    def forget(self, slots: Slots, next_index: int) -> None:
        """Let no slot have mass any more; `slots` are those that hold rows."""
        self.priorities.masses[slots] = 0.0
        self.priorities.seen[0] = NONE_YET
        self.tree.set(slots, self.priorities.masses[slots])
        self._taken_in = next_index
