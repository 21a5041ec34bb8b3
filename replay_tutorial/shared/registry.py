"""Who works on a block: writers, each under a small number that fits into a stamp, and one sampler.

    ProcessRegistration   this process at a block, shared by all its handles: its number, its threads' lock
    WriterRegistry        the table in shared memory: number ──▶ process and the moment of its birth
    SamplerLease          a handle's right to sample (`sampler`): one process at a time, one of its threads

To the other processes all handles of a process are one. Registering, and becoming the sampler, is one swap
of a word that names the process (`processes`). A dead process's word may be replaced; its number is used
again only after the slots that it held were released. A registration ends with the process's last handle,
closed or only forgotten, and takes its words away.

Left out: more than OWNER_COUNT - 1 living processes.
"""

import os
import threading
import weakref
from collections.abc import Hashable, Sequence

import numpy as np

from replay_tutorial.buffers.interrupts import defer_sigint
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.shared.memory import Specs
from replay_tutorial.shared.processes import BIRTH_SHIFT, is_alive, myself, this_life
from replay_tutorial.shared.protocol import (
    CLAIMS,
    NOBODY,
    OWNER_COUNT,
    SAMPLER_PROCESS,
    abandoned,
    is_held,
    owner_of,
    reserve,
    swap,
)

WRITER_SPECS: Specs = {"owners": ((OWNER_COUNT,), np.dtype(np.int64))}


class ProcessRegistration:
    """This process at one block.

    Attributes:
        is_mine: False in a forked child of the process that made it; the child makes its own.
        lock: Held by the thread that samples.
        number: This process's in the `WriterRegistry`; NOBODY before it adds.
    """

    def __init__(self, is_mine: bool) -> None:
        self.is_mine = is_mine
        self.lock = threading.RLock()
        self.number = NOBODY
        self._has_sampled = False

    def take_away_at_end(self, words: Integers, place: int) -> None:
        """Take this process's name away from `words[place]` when the registration ends."""
        weakref.finalize(self, take_away, words, place, this_life()).atexit = False

    def become_sampler(self, counters: Integers) -> int:
        """Make this process the sampler of a ring, and return the number of the claim.

        Raises:
            RuntimeError: If another living process is.
        """
        me, sampler = myself(), int(counters[SAMPLER_PROCESS])
        is_free = sampler in (0, me) or not is_alive(sampler)
        if is_free and not self._has_sampled:
            self.take_away_at_end(counters, SAMPLER_PROCESS)  # before the swap: an interrupt may come between
            self._has_sampled = True
        if not (is_free and swap(counters, SAMPLER_PROCESS, sampler, me)):
            raise RuntimeError(
                f"Process {sampler % (1 << BIRTH_SHIFT)} is this buffer's sampler, and there can be only "
                f"one. Sample there, or end it before process {os.getpid()} takes over."
            )
        return int(reserve(counters, CLAIMS, 1)) + 1


NOT_REGISTERED = ProcessRegistration(is_mine=False)


def take_away(words: Integers, place: int, life: tuple[int, int]) -> None:
    """Take this process's name away, unless this is a forked child, which has another name."""
    if life == this_life():
        swap(words, place, myself(), 0)


_registrations: weakref.WeakValueDictionary[Hashable, ProcessRegistration] = weakref.WeakValueDictionary()
_guard = threading.Lock()


def registration_at(block: Hashable) -> ProcessRegistration:
    """Return this process's registration at the block of an identity."""
    with defer_sigint(), _guard:
        registration = _registrations.get(block)
        if registration is None:
            registration = _registrations[block] = ProcessRegistration(is_mine=True)
        return registration


def leave_parents_registrations() -> None:
    """Start a forked child without registrations; a thread that it does not have may hold the guard."""
    global _guard
    _guard = threading.Lock()
    for registration in list(_registrations.values()):
        registration.is_mine = False
    _registrations.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_parents_registrations)


class WriterRegistry:
    """The table of writers, int64[OWNER_COUNT] in shared memory: which process each is, 0 for none.

    The element NOBODY counts the dead processes whose numbers were given out again.
    """

    def __init__(self, table: Integers, stamps: Sequence[Integers], block: Hashable) -> None:
        """Look into a block's table, and the stamps of all its rings, in which writers hold slots."""
        self._table, self._stamps, self._block = table, stamps, block
        self._registration = NOT_REGISTERED

    def mine(self) -> int:
        """Return this process's number; it registers once for all its handles, a forked child again.

        Raises:
            RuntimeError: If there are too many living writers.
        """
        registration = self._registration
        if not registration.is_mine:
            registration = registration_at(self._block)
            if registration.number == NOBODY:
                registration.number = self._register(myself(), registration)
            self._registration = registration
        return registration.number

    def release_if_dead(self, stamps: Integers, slot: int) -> bool:
        """Let others write a slot if its holder is dead; return whether a writer may try it (again)."""
        stamp = int(stamps[slot])
        if not is_held(stamp) or owner_of(stamp) == NOBODY:
            return True
        if is_alive(int(self._table[owner_of(stamp)])):
            return False
        swap(stamps, slot, stamp, abandoned(stamp))
        return True

    def count(self) -> tuple[int, int]:
        """Count the writers that are alive, and those that are dead."""
        registered = self._table[NOBODY + 1 :]
        words = registered[registered != 0].tolist()
        alive = sum(map(is_alive, words))
        return alive, len(words) - alive + int(self._table[NOBODY])

    def _register(self, me: int, registration: ProcessRegistration) -> int:
        for number in range(1, OWNER_COUNT):
            # A name is not taken away before the last thread that could hold a slot under its number is done.
            if self._table[number] == 0:
                registration.take_away_at_end(self._table, number)  # before the swap: an interrupt may come
                if swap(self._table, number, 0, me):
                    return number
        for number in range(1, OWNER_COUNT):
            holder = int(self._table[number])
            if holder and is_alive(holder):
                continue
            self._release_all(number)  # else what the dead one held would seem to be held by us, alive
            registration.take_away_at_end(self._table, number)
            if swap(self._table, number, holder, me):
                reserve(self._table, NOBODY, 1)
                return number
        raise RuntimeError(f"{OWNER_COUNT - 1} living processes use this buffer; there is no room for more.")

    def _release_all(self, number: int) -> None:
        for stamps in self._stamps:
            for slot in np.flatnonzero(is_held(stamps) & (owner_of(stamps) == number)).tolist():
                self.release_if_dead(stamps, slot)
