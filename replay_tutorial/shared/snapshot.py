"""Snapshots of a shared ring: saving it while other processes write, and restoring it.

Every row is copied, complete or not. Its index is read before and after the copy; the row counts only if the
two are equal. Restoring writes the rows with the writers' protocol, under their old indexes. The
registrations of the old processes are not restored.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.archive import Damaged, Reader, checked_count
from replay_tutorial.buffers.runtime.jit import Floats, Integers, Words
from replay_tutorial.shared import protocol
from replay_tutorial.shared.protocol import NEXT_INDEX, NO_INDEX, swap, write_rows
from replay_tutorial.shared.shared_ring import SharedRing

# Counters that a file contains, named as in `protocol`.
KEPT = ["next_index", "published", "cleared", "sampled", "rejected", "stale", "dropped"]
SAVED: dict[str, int] = {name: getattr(protocol, name.upper()) for name in KEPT}


def save_state(ring: SharedRing) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a ring's counters and its arrays in slot order. The indexes must be written last."""
    counters = {name: int(ring.counters[place]) for name, place in SAVED.items()}
    slots = np.arange(min(counters["next_index"], ring.capacity))
    before = ring.indexes(slots)

    def indexes() -> list[Integers]:
        same = (before == ring.indexes(slots)) & (before < counters["next_index"])
        return [np.where(same, before, NO_INDEX)]

    return counters, {"rows": [ring.rows[: len(slots)]], "indexes": indexes}


class Snapshot(NamedTuple):
    """The contents of a ring, read from an archive and checked.

    Attributes:
        counters: Counters, as returned by `save_state`.
        slots: int64[n], the slots that hold a row, oldest first.
        indexes: int64[n], the indexes of these rows.
        words: uint64[n, words], the rows.
    """

    counters: dict[str, int]
    slots: Integers
    indexes: Integers
    words: Words


def read_ring(ring: SharedRing, counters: Mapping[str, Any], reader: Reader, prefix: str = "") -> Snapshot:
    """Read a ring's contents from the arrays with a prefix, without changing the ring."""
    counts = {name: checked_count(counters, name) for name in SAVED}
    checked_count(counts, "cleared", most=counts["next_index"])
    count = min(counts["next_index"], ring.capacity)
    indexes, words = np.empty(count, np.int64), ring.empty_words(count)
    reader.read_into(f"{prefix}indexes", [indexes])
    reader.read_into(f"{prefix}rows", [words])
    there = np.flatnonzero(indexes != NO_INDEX)
    there = there[np.argsort(indexes[there])]
    fits = (indexes[there] >= counts["cleared"]) & (indexes[there] < counts["next_index"])
    if not (fits & (indexes[there] % ring.capacity == there)).all():
        raise Damaged(f"an index in {prefix}indexes does not fit its slot")
    return Snapshot(counts, there, indexes[there], words[there])


def reserve_indexes(rings: Sequence[tuple[SharedRing, Snapshot]]) -> None:
    """Reserve the indexes of the snapshots in new rings, so that rows added from now on follow them.

    Raise ValueError, and leave the rings unchanged, if rows have already been added to one of them.
    """
    rings[0][0].writers.writer_number()
    used = [ring.next_index for ring, _ in rings if ring.next_index]
    # If a process adds after this check, a swap fails.
    if used or not all(swap(ring.counters, NEXT_INDEX, 0, s.counters["next_index"]) for ring, s in rings):
        added = [*used, rings[0][0].next_index][0]
        raise ValueError(f"load requires a new buffer, but {added} rows have been added to this one.")


def restore(ring: SharedRing, snapshot: Snapshot, masses: Floats | None = None) -> None:
    """Write the rows of a snapshot under their old indexes, which `reserve_indexes` has reserved.

    `masses`, float64[n], are the masses of the first n slots; None if the rows have none.
    """
    _, slots, indexes, words = snapshot
    masses = np.zeros(len(slots)) if masses is None else masses[slots]
    owner, gaps = ring.writers.writer_number(), np.flatnonzero(np.diff(indexes) != 1) + 1
    for first, end in pairwise([0, *gaps.tolist(), len(indexes)]):
        if first < end:
            index, some, some_masses = int(indexes[first]), words[first:end], masses[first:end]
            write_rows(ring.stamps, ring.rows, ring.masses, some, some_masses, index, 0, owner)
    for name, place in SAVED.items():
        if place != NEXT_INDEX:
            ring.count(place, snapshot.counters[name])
