"""Owners: the processes that work on a shared ring, each under a small number that fits into a stamp.

The number stands for a process and the moment of its birth, in one word: one swap registers it, one load
reads it. The number of a dead process is given out again, but only after the slots that it held were
released.

Left out: more than OWNER_COUNT - 1 living processes.
"""

import numpy as np

from replay_tutorial.buffers.jit import Integers
from replay_tutorial.shared.processes import is_alive, myself, this_life
from replay_tutorial.shared.protocol import NOBODY, OWNER_COUNT, abandoned, is_held, owner_of, reserve, swap


class Owners:
    """The table of owners, int64[OWNER_COUNT] in shared memory: who each is, 0 for nobody.

    In the place of NOBODY it counts the dead whose numbers were given out again.
    """

    def __init__(self, table: Integers, stamps: Integers) -> None:
        """Look into the arrays."""
        self._table = table
        self._stamps = stamps
        # The life that registered, and its number.
        self._mine = ((0, 0), NOBODY)

    def mine(self) -> int:
        """Return this process's number; it registers once, a forked child again.

        Raises:
            RuntimeError: If there are too many living owners.
        """
        if self._mine[0] != this_life():
            self._mine = (this_life(), self._register(myself()))
        return self._mine[1]

    def release(self) -> None:
        """Release the number; no thread of this process may be writing."""
        if self._mine[0] == this_life():
            swap(self._table, self._mine[1], myself(), 0)
        self._mine = ((0, 0), NOBODY)

    def release_if_dead(self, slot: int) -> bool:
        """Let others write a slot if its holder is dead; return whether a writer may try it (again)."""
        stamp = int(self._stamps[slot])
        if not is_held(stamp) or owner_of(stamp) == NOBODY:
            return True
        if is_alive(int(self._table[owner_of(stamp)])):
            return False
        swap(self._stamps, slot, stamp, abandoned(stamp))
        return True

    def count(self) -> tuple[int, int]:
        """Count the owners that are alive, and those that are dead."""
        registered = self._table[NOBODY + 1 :]
        owners = registered[registered != 0].tolist()
        alive = sum(map(is_alive, owners))
        return alive, len(owners) - alive + int(self._table[NOBODY])

    def _register(self, me: int) -> int:
        for owner in range(1, OWNER_COUNT):
            if self._table[owner] == 0 and swap(self._table, owner, 0, me):
                return owner
        for owner in range(1, OWNER_COUNT):
            holder = int(self._table[owner])
            if holder and is_alive(holder):
                continue
            self._release_all(owner)  # else what the dead one held would seem to be held by us, alive
            if swap(self._table, owner, holder, me):
                reserve(self._table, NOBODY, 1)
                return owner
        raise RuntimeError(f"{OWNER_COUNT - 1} living processes use this buffer; there is no room for more.")

    def _release_all(self, owner: int) -> None:
        for slot in np.flatnonzero(is_held(self._stamps) & (owner_of(self._stamps) == owner)).tolist():
            self.release_if_dead(slot)
