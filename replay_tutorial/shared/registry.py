"""The processes that use a block: writers, each with a number that fits into a stamp, and one updater.

    ProcessRegistration   this process at one block, shared by all its handles: writer number, threads' lock
    WriterRegistry        the table in shared memory: number ──▶ packed identity of a process
    UpdaterLease          the right to update priorities (`sampler`): one process at a time, and one thread

All handles of a process count as one writer. A process registers, or becomes the updater, by swapping its
packed identity (`processes`) into a word. The word of a dead process can be replaced; its writer number is
reused only after the slots that it held have been released. A registration ends, and clears its words, when
the process closes or deletes its last handle.

A process that ends by itself negates its word as it exits, so a dead process with a positive word was
killed.

At most OWNER_COUNT - 1 living processes can register.

Read in chapter 06b, *Reading the shared buffer*.
"""

import os
import threading
import weakref
from collections.abc import Hashable, Sequence
from multiprocessing.util import Finalize, is_exiting

import numpy as np

from replay_tutorial.buffers.runtime.interrupts import defer_sigint
from replay_tutorial.buffers.runtime.jit import Integers
from replay_tutorial.shared.memory import Specs
from replay_tutorial.shared.processes import PID_BITS, is_alive, own_identity
from replay_tutorial.shared.protocol import (
    NOBODY,
    OWNER_COUNT,
    UPDATER_PROCESS,
    abandoned,
    add_to_counter,
    is_held,
    owner_of,
    swap,
)

WRITER_SPECS: Specs = {"owners": ((OWNER_COUNT,), np.dtype(np.int64))}


class ProcessRegistration:
    """The registration of this process at one block.

    Attributes:
        is_mine: Whether this process registered; False in a forked child, which registers itself.
        lock: Held by a thread while it uses a sum tree, or counts samples.
        holder: The thread that holds the lock, as set by `UpdaterLease.hold`; 0 if none does.
        identity: Packed identity of this process; -1 until it is the updater.
        last_to_update: Identifies the handle of this process that was the last to update.
        table: The table in which the process has its number; None until it adds.
        number: The process's number in the `WriterRegistry`; NOBODY until it adds.
        words: Where in shared memory the process may have swapped in its identity: arrays and positions.
            These words are cleared when the registration ends; a forked child has none.
    """

    def __init__(self, is_mine: bool) -> None:
        self.is_mine = is_mine
        self.lock = threading.RLock()
        self.holder = 0
        self.guard = threading.Lock()  # of the writer number, because `lock` is held during a whole sample
        self.table: Integers | None = None
        self.number = NOBODY
        self.last_to_update: object = None
        self.identity = -1
        self.words: list[tuple[Integers, int]] = []
        weakref.finalize(self, clear_words, self.words).atexit = False

    def become_updater(self, counters: Integers) -> None:
        """Make this process the updater of a ring.

        Raise RuntimeError if another living process is the updater.
        """
        me, updater = own_identity(), int(counters[UPDATER_PROCESS])
        is_free = updater in (0, me) or not is_alive(updater)
        if is_free and self.identity != me:
            # Before the swap, because an interrupt may come between the two.
            self.words.append((counters, UPDATER_PROCESS))
            self.identity = me
        if not (is_free and swap(counters, UPDATER_PROCESS, updater, me)):
            updater = int(counters[UPDATER_PROCESS])  # again, because another process may have won the swap
            raise RuntimeError(
                f"Process {updater % (1 << PID_BITS)} is this buffer's updater, the only process that may "
                "update priorities or count samples. Do this in that process, or close the buffer there "
                f"before process {os.getpid()} does it. Sampling without counts needs no updater."
            )


def clear_words(words: Sequence[tuple[Integers, int]]) -> None:
    """Clear this process's identity from words."""
    for array, place in words:
        swap(array, place, own_identity(), 0)


NOT_REGISTERED = ProcessRegistration(is_mine=False)


def mark_exit() -> None:
    """Negate this process's words in all tables of writers, because it is about to end by itself.

    The words are not cleared: another thread may still hold a slot under the process's number.
    """
    for registration in list(_registrations.values()):
        if registration.table is not None:
            swap(registration.table, registration.number, own_identity(), -own_identity())


_registrations: weakref.WeakValueDictionary[Hashable, ProcessRegistration] = weakref.WeakValueDictionary()
_guard = threading.Lock()
_marks_exit = False  # whether `mark_exit` is called when this process exits


def registration_at(block: Hashable) -> ProcessRegistration:
    """Return this process's registration at a block."""
    global _marks_exit
    with defer_sigint(), _guard:
        if not _marks_exit:
            # Unlike `atexit`, it is also called in the children of multiprocessing, before Python 3.13 too.
            Finalize(None, mark_exit, exitpriority=0)
            _marks_exit = True
        registration = _registrations.get(block)
        if registration is None:
            registration = _registrations[block] = ProcessRegistration(is_mine=True)
        return registration


def reset_after_fork() -> None:
    """Forget the parent's registrations in a forked child.

    The guard is replaced, because another thread of the parent may have held it.
    """
    global _guard, _marks_exit
    _guard, _marks_exit = threading.Lock(), False
    for registration in list(_registrations.values()):
        registration.is_mine = False
        registration.words.clear()
    _registrations.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_after_fork)


class WriterRegistry:
    """The table of writers, int64[OWNER_COUNT] in shared memory: packed identity of each writer, or 0.

    The identity is negative from the moment at which the process exits by itself. Element NOBODY counts the
    killed processes whose numbers have been reused.
    """

    def __init__(self, table: Integers, stamps: Sequence[Integers], block: Hashable) -> None:
        """Use a block's table of writers, and the stamps of all its rings."""
        self._table, self._stamps, self._block = table, stamps, block
        self._registration = NOT_REGISTERED

    def writer_number(self) -> int:
        """Return this process's number; register the process on the first call, and again after a fork.

        Raise RuntimeError if there are too many living writers.
        """
        registration = self._registration
        if not registration.is_mine:
            registration = registration_at(self._block)
            with defer_sigint(), registration.guard:
                if registration.number == NOBODY:
                    registration.table = self._table
                    me = own_identity()
                    registration.number = self._register(me, registration)
                    if is_exiting():  # `mark_exit` may have been called before
                        swap(self._table, registration.number, me, -me)
            self._registration = registration
        return registration.number

    def release_if_dead(self, stamps: Integers, slot: int) -> bool:
        """Release a slot if its holder is dead; return whether a writer may now claim it."""
        stamp = int(stamps[slot])
        if not is_held(stamp) or owner_of(stamp) == NOBODY:
            return True
        if is_alive(abs(int(self._table[owner_of(stamp)]))):
            return False
        swap(stamps, slot, stamp, abandoned(stamp))
        return True

    def count(self) -> tuple[int, int]:
        """Return the number of living writers, and of those that were killed."""
        registered = self._table[NOBODY + 1 :]
        words = registered[registered != 0].tolist()
        dead = [word for word in words if not is_alive(abs(word))]
        return len(words) - len(dead), sum(word > 0 for word in dead) + int(self._table[NOBODY])

    def _register(self, me: int, registration: ProcessRegistration) -> int:
        for number in range(1, OWNER_COUNT):
            # A free number holds no slot: it is cleared only after the last thread using it has finished.
            if self._table[number] == 0:
                registration.words.append((self._table, number))  # before the swap
                if swap(self._table, number, 0, me):
                    return number
        for number in range(1, OWNER_COUNT):
            holder = int(self._table[number])
            if holder and is_alive(abs(holder)):
                continue
            self._release_all(number)  # otherwise the dead writer's slots would appear to be ours
            registration.words.append((self._table, number))
            if swap(self._table, number, holder, me):
                add_to_counter(self._table, NOBODY, int(holder > 0))
                return number
        raise RuntimeError(f"{OWNER_COUNT - 1} live processes use this buffer, which is the maximum.")

    def _release_all(self, number: int) -> None:
        for stamps in self._stamps:
            for slot in np.flatnonzero(is_held(stamps) & (owner_of(stamps) == number)).tolist():
                self.release_if_dead(stamps, slot)
