"""Seats: what all handles of one process on one block have in common.

A process may have several handles on a block: made, copied, attached once more. To the other processes they
are one: they share a number among the owners, and a lock, so that their threads take turns as the sampler.
The seat goes with the last of them, closed or only forgotten, and gives back what the process held.

Left out: what a killed process held; others take that from it when they find it dead.
"""

import os
import threading
import weakref
from collections.abc import Hashable

from replay_tutorial.buffers.interrupts import Undisturbed
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.shared.processes import BIRTH_SHIFT, is_alive, myself, this_life
from replay_tutorial.shared.protocol import CLAIMS, SAMPLER_PROCESS, reserve, swap


class Seat:
    """One process's place at a block.

    Attributes:
        is_mine: Whether it is this process's; a forked child has its parent's no more, and takes its own.
        lock: Between the threads of this process that draw; see `Claim.hold`.
        numbers: This process's number in each table of owners, by the table's name.
    """

    def __init__(self, is_mine: bool) -> None:
        """Hold nothing yet."""
        self.is_mine = is_mine
        self.lock = threading.RLock()
        self.numbers: dict[str, int] = {}
        self._has_sampled = False

    def holds(self, words: Integers, place: int) -> None:
        """Note that this process's name stands in `words[place]`, to be taken away when the seat goes."""
        weakref.finalize(self, take_away, words, place, this_life()).atexit = False

    def claim(self, counters: Integers) -> int:
        """Make this process the sampler of a ring, and return the number of the claim.

        Raises:
            RuntimeError: If another living process is.
        """
        me, sampler = myself(), int(counters[SAMPLER_PROCESS])
        is_free = sampler in (0, me) or not is_alive(sampler)
        if is_free and not self._has_sampled:
            self.holds(counters, SAMPLER_PROCESS)  # before the swap: an interrupt may come in between
            self._has_sampled = True
        if not (is_free and swap(counters, SAMPLER_PROCESS, sampler, me)):
            raise RuntimeError(
                f"Process {sampler % (1 << BIRTH_SHIFT)} is this buffer's sampler, and there can be only "
                f"one. Sample there, or end it before process {os.getpid()} takes over."
            )
        return int(reserve(counters, CLAIMS, 1)) + 1

    def release(self, counters: Integers, claim: int) -> None:
        """Stop being the sampler of a ring, unless another handle has claimed it after the claim given."""
        if counters[CLAIMS] == claim:
            swap(counters, SAMPLER_PROCESS, myself(), 0)


NO_SEAT = Seat(is_mine=False)


def take_away(words: Integers, place: int, life: tuple[int, int]) -> None:
    """Take this process's name away, unless this is a forked child, which has another name."""
    if life == this_life():
        swap(words, place, myself(), 0)


_seats: weakref.WeakValueDictionary[Hashable, Seat] = weakref.WeakValueDictionary()
_guard = threading.Lock()


def seat_at(block: Hashable) -> Seat:
    """Return this process's seat at the block of an identity."""

    with Undisturbed(), _guard:
        seat = _seats.get(block)
        if seat is None:
            seat = _seats[block] = Seat(is_mine=True)
        return seat


def leave_parents_seats() -> None:
    """Begin a forked child's life without seats; a thread that it does not have may hold the guard."""
    global _guard
    _guard = threading.Lock()
    for seat in list(_seats.values()):
        seat.is_mine = False
    _seats.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_parents_seats)
