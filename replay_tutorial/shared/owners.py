"""Owners: the processes that work on a shared ring, each under a small number that fits into a stamp.

The number stands for a process and the moment of its birth, in one word: one swap registers it, one load
reads it. The number of a dead process is given out again, but only after the slots that it held were
released.

Left out: more than OWNER_COUNT - 1 living processes.
"""

from collections.abc import Hashable

import numpy as np

from replay_tutorial.buffers.jit import Integers
from replay_tutorial.shared.processes import is_alive, myself
from replay_tutorial.shared.protocol import NOBODY, OWNER_COUNT, abandoned, is_held, owner_of, reserve, swap
from replay_tutorial.shared.seats import NO_SEAT, Seat, seat_at


class Owners:
    """The table of owners, int64[OWNER_COUNT] in shared memory: who each is, 0 for nobody.

    In the place of NOBODY it counts the dead whose numbers were given out again.
    """

    def __init__(self, table: Integers, stamps: Integers, block: Hashable, name: str) -> None:
        """Look into arrays of the block of an identity; the table has a name there."""
        self._table = table
        self._stamps = stamps
        self._block, self._name = block, name
        self._seat = NO_SEAT
        self._mine = NOBODY

    def mine(self) -> int:
        """Return this process's number; it registers once for all its handles, a forked child again.

        Raises:
            RuntimeError: If there are too many living owners.
        """
        if not self._seat.is_mine:
            seat = seat_at(self._block)
            if self._name not in seat.numbers:
                number = self._register(myself(), seat)
                seat.numbers.setdefault(self._name, number)  # another thread may have been faster
            self._mine = seat.numbers[self._name]
            self._seat = seat  # last: another thread may look at any moment
        return self._mine

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

    def _register(self, me: int, seat: Seat) -> int:
        for owner in range(1, OWNER_COUNT):
            # Nobody's name is taken away before the last thread that could hold a slot under it is done.
            if self._table[owner] == 0:
                seat.holds(self._table, owner)  # before the swap: an interrupt may come in between
                if swap(self._table, owner, 0, me):
                    return owner
        for owner in range(1, OWNER_COUNT):
            holder = int(self._table[owner])
            if holder and is_alive(holder):
                continue
            self._release_all(owner)  # else what the dead one held would seem to be held by us, alive
            seat.holds(self._table, owner)
            if swap(self._table, owner, holder, me):
                reserve(self._table, NOBODY, 1)
                return owner
        raise RuntimeError(f"{OWNER_COUNT - 1} living processes use this buffer; there is no room for more.")

    def _release_all(self, owner: int) -> None:
        for slot in np.flatnonzero(is_held(self._stamps) & (owner_of(self._stamps) == owner)).tolist():
            self.release_if_dead(slot)
