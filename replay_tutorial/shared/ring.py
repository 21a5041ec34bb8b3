"""The shared ring: any number of writers, one sampler, no lock.

Each slot has a stamp: the index of the row in it, and who holds it, if anyone does. A writer reserves indexes with
one atomic add, and writes its rows as `protocol` says: a row is visible only when it is whole.

Nobody waits for anybody. A slot that another holds is passed over, and the row gets a new index. If its holder is
dead, the slot is free; if it has only been stopped, it still may write, and so nobody else may. At most one slot is
held by each thread that writes, and only for the copying of one row.

Left out: freeing the rows that a killed writer had reserved and not yet written; the next lap overwrites their slots.

See docs/design/shared-ring.md for the proof that this is enough.
"""

import os
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Rows
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.processes import is_alive, myself
from replay_tutorial.shared.protocol import (
    HELD,
    NO_INDEX,
    NOBODY,
    OWNER_COUNT,
    OWNER_SHIFT,
    Integers,
    Words,
    look,
    read_rows,
    reserve,
    swap,
    write_rows,
)

MOST_DRAWS = 1000
# Where the counters stand in int64[COUNTER_WORDS]: those of writers and sampler on cache lines of their own, so that
# neither slows the other down.
NEXT_INDEX, PUBLISHED, SAMPLER = 0, 8, 16
CLEARED, PUBLISHED_BEFORE_CLEAR, SAMPLED, REJECTED, STALE, LOST, BORN = range(24, 31)
COUNTER_WORDS = 32


class Statistics(NamedTuple):
    """What has happened in a shared buffer, of all processes together.

    Attributes:
        rows_added: Rows published.
        rows_sampled: Rows given out by `sample`.
        rows_rejected: Rows that were replaced while they were drawn, and drawn again.
        stale_updates: Priorities dropped because their row had been replaced.
        writers_alive: Living processes that have added or sampled.
        writers_lost: Processes that have, and are dead.
        rows_per_second: Rows published a second, since the buffer was made.
    """

    rows_added: int
    rows_sampled: int
    rows_rejected: int
    stale_updates: int
    writers_alive: int
    writers_lost: int
    rows_per_second: float


def ring_specs(capacity: int, dtype: np.dtype[np.void]) -> Specs:
    """Tell the shared arrays that a ring needs; the record must be a multiple of eight bytes."""
    integer = np.dtype(np.int64)
    return {
        "stamps": ((capacity,), integer),
        "rows": ((capacity, dtype.itemsize // 8), np.dtype(np.uint64)),
        "masses": ((capacity,), np.dtype(np.float64)),
        "counters": ((COUNTER_WORDS,), integer),
        "owners": ((OWNER_COUNT, 2), integer),
    }


class SharedRing:
    """Rows, their masses and stamps in shared memory, and who works on them.

    Attributes:
        capacity: Number of slots.
        stamps: int64[capacity].
        masses: float64[capacity], the mass that a row's writer gave it.
    """

    def __init__(self, arrays: SharedArrays, dtype: np.dtype[np.void]) -> None:
        """Look into arrays that `ring_specs` described."""
        self.stamps = arrays["stamps"]
        self._rows = arrays["rows"]
        self._counters = arrays["counters"]
        self._owners = arrays["owners"]
        self._dtype = dtype
        self.masses = arrays["masses"]
        self.capacity = len(self.stamps)
        if self._counters[BORN] == 0:
            self._counters[BORN] = time.time_ns()
        self._owner = (0, NOBODY)  # the process that registered, and its number here

    @property
    def next_index(self) -> int:
        """The index that will be reserved next."""
        return int(self._counters[NEXT_INDEX])

    @property
    def oldest_index(self) -> int:
        """The least index that a row may have and not be forgotten by `clear`."""
        return int(self._counters[CLEARED])

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows, their stamps and masses."""
        return self._rows.nbytes + self.stamps.nbytes + self.masses.nbytes

    @property
    def stored(self) -> int:
        """Number of rows published since the last `clear`, at most the capacity."""
        published = self._counters[PUBLISHED] - self._counters[PUBLISHED_BEFORE_CLEAR]
        return max(0, min(int(published), self.capacity))

    def append(self, new_rows: Rows, new_masses: npt.NDArray[np.float64]) -> int:
        """Write rows; gives the index of the first.

        Args:
            new_rows: Records, at least one; of more than `capacity` the last ones are written.
            new_masses: float64[n].
        """
        owner = self.owner()
        count = len(new_rows)
        words = new_rows.view(np.uint64).reshape(count, -1)
        first_index = int(reserve(self._counters, NEXT_INDEX, count))
        start = max(0, count - self.capacity)
        passed_over: list[int] = []
        while True:
            held = int(
                write_rows(self.stamps, self._rows, self.masses, words, new_masses, first_index, start, owner)
            )
            if held == count:
                break
            start = held
            if not self._free((first_index + held) % self.capacity):
                passed_over.append(held)
                start = held + 1
        written = count - max(0, count - self.capacity) - len(passed_over)
        reserve(self._counters, PUBLISHED, written)
        if passed_over and self.capacity > 1:
            self.append(new_rows[passed_over], new_masses[passed_over])
        return first_index

    def _free(self, slot: int) -> bool:
        """Free a slot that a dead writer holds; tell whether the slot need not be passed over."""
        stamp = int(self.stamps[slot])
        owner = stamp >> OWNER_SHIFT & (OWNER_COUNT - 1)
        if not stamp & HELD or owner == NOBODY:
            return True
        if is_alive(*self._owners[owner].tolist()):
            return False
        swap(self.stamps, slot, stamp, stamp & ~((OWNER_COUNT - 1) << OWNER_SHIFT))
        return True

    def owner(self) -> int:
        """Give this process's number among the owners; it registers once, a forked child anew."""
        if self._owner[0] != os.getpid():
            self._owner = (os.getpid(), self._register())
        return self._owner[1]

    def _register(self) -> int:
        process, born = myself()
        flat = self._owners.reshape(-1)  # process and birth of each owner
        for wanted in ("free", "dead"):
            for owner in range(1, OWNER_COUNT):
                holder, holder_born = self._owners[owner].tolist()
                if holder and (wanted == "free" or is_alive(holder, holder_born)):
                    continue
                if holder:
                    self.count(LOST, 1)
                    self._free_all(owner)  # else what it held would seem to be held by us, alive
                if swap(flat, 2 * owner, holder, process):
                    self._owners[owner, 1] = born
                    return owner
        raise RuntimeError(
            f"{OWNER_COUNT - 1} living processes use this buffer; there is no room for another."
        )

    def _free_all(self, owner: int) -> None:
        held = np.flatnonzero(
            self.stamps & (HELD | (OWNER_COUNT - 1) << OWNER_SHIFT) == (HELD | owner << OWNER_SHIFT)
        )
        for slot in held.tolist():
            self._free(slot)

    def claim_sampler(self) -> bool:
        """Become the sampler; tell whether this process was it already.

        Raises:
            RuntimeError: If another living process is it.
        """
        me, sampler = self.owner(), int(self._counters[SAMPLER])
        if sampler == me:
            return True
        if (sampler and is_alive(*self._owners[sampler].tolist())) or not swap(
            self._counters, SAMPLER, sampler, me
        ):
            raise RuntimeError(
                f"Process {self._owners[self._counters[SAMPLER], 0]} is this buffer's sampler, and there can be only "
                f"one. Sample there, or end it before process {os.getpid()} takes over."
            )
        return False

    def release(self) -> None:
        """Give up being an owner, and the sampler; no thread of this process may be writing."""
        process, me = self._owner
        if process == os.getpid():
            swap(self._counters, SAMPLER, me, 0)
            self._owners[me, 0] = 0
            self._owner = (0, NOBODY)

    def draw(self, batch_size: int, rng: np.random.Generator) -> Rows:
        """Draw rows uniformly, with replacement; those that change under our eyes are drawn again."""
        copies = self.empty_words(batch_size)
        missing = np.arange(batch_size)
        for _ in range(MOST_DRAWS):
            newest = self.next_index
            span = min(newest - self.oldest_index, self.capacity)
            slots = (newest - 1 - rng.integers(0, span, len(missing))) % self.capacity
            part = self.empty_words(len(missing))
            failed = self.read(slots, np.full(len(missing), NO_INDEX), part)
            self.count(REJECTED, len(failed))
            copies[missing] = part
            missing = missing[failed]
            if len(missing) == 0:
                self.count(SAMPLED, batch_size)
                return self.as_rows(copies)
        raise RuntimeError(
            f"Writers replace rows faster than {MOST_DRAWS} draws could read one; enlarge the buffer."
        )

    def read(self, slots: Integers, expected: Integers, copies: Words) -> Integers:
        """Copy rows into uint64[n, words]; gives the positions, int64[m], of those that were not whole.

        Where `expected` is NO_INDEX any published row will do, and its index is put there.
        """
        failed = np.empty(len(slots), np.int64)
        count = read_rows(self.stamps, self._rows, slots, expected, self.oldest_index, copies, failed)
        return failed[:count]

    def look(self, slots: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Tell the indexes of the rows published in slots (else NO_INDEX), and which slots somebody holds."""
        indexes, held = np.empty(len(slots), np.int64), np.empty(len(slots), np.bool_)
        look(self.stamps, slots, self.oldest_index, indexes, held)
        return indexes, held

    def all_rows(self) -> Rows:
        """Copy every published row, the oldest first."""
        slots = np.arange(min(self.next_index, self.capacity))
        indexes, _ = self.look(slots)
        slots = slots[indexes != NO_INDEX][np.argsort(indexes[indexes != NO_INDEX])]
        copies = self.empty_words(len(slots))
        failed = self.read(slots, np.full(len(slots), NO_INDEX), copies)
        return self.as_rows(np.delete(copies, failed, axis=0))

    def empty_words(self, count: int) -> Words:
        """Make room for the words of `count` rows."""
        return np.empty((count, self._rows.shape[1]), np.uint64)

    def count(self, counter: int, events: int) -> None:
        """Count events for the statistics."""
        if events:
            reserve(self._counters, counter, events)

    def statistics(self) -> Statistics:
        """Read the counters, and ask who is alive."""
        added, sampled, rejected, stale, lost, born = (
            int(self._counters[i]) for i in (PUBLISHED, SAMPLED, REJECTED, STALE, LOST, BORN)
        )
        owners = [owner for owner in self._owners.tolist() if owner[0]]
        alive = sum(is_alive(*owner) for owner in owners)
        rate = added / max(1e-9, (time.time_ns() - born) / 1e9)
        return Statistics(added, sampled, rejected, stale, alive, lost + len(owners) - alive, rate)

    def as_rows(self, copies: Words) -> Rows:
        """Show copied words as records."""
        return copies.view(self._dtype).reshape(-1)

    def clear(self) -> None:
        """Forget every row reserved so far."""
        self._counters[PUBLISHED_BEFORE_CLEAR] = self._counters[PUBLISHED]
        self._counters[CLEARED] = self._counters[NEXT_INDEX]
