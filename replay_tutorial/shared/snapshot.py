"""Snapshots: a shared ring as an archive, while others go on writing, and back.

Every row is copied, torn or not. Its index is looked at before and after: if it is the same, the row did not
change in between, and counts. A ring is filled again as any writer would fill it, under the old indexes.

Left out: the writers' processes; they are others by then.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.archive import Damaged, Reader, checked_count
from replay_tutorial.buffers.jit import Floats, Integers, Words
from replay_tutorial.shared import protocol
from replay_tutorial.shared.protocol import NEXT_INDEX, NO_INDEX, swap, write_rows
from replay_tutorial.shared.shared_ring import SharedRing

# The counters that a file keeps, by their names in `protocol`.
KEPT = ["next_index", "published", "cleared", "sampled", "rejected", "stale", "dropped"]
SAVED: dict[str, int] = {name: getattr(protocol, name.upper()) for name in KEPT}


def state_of(ring: SharedRing) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a ring's counters, and its arrays slot by slot; the indexes must be written last."""
    counters = {name: int(ring.counters[place]) for name, place in SAVED.items()}
    slots = np.arange(min(counters["next_index"], ring.capacity))
    before = ring.indexes(slots)

    def indexes() -> list[Integers]:
        same = (before == ring.indexes(slots)) & (before < counters["next_index"])
        return [np.where(same, before, NO_INDEX)]

    return counters, {"rows": [ring.rows[: len(slots)]], "indexes": indexes}


class Snapshot(NamedTuple):
    """A ring as an archive has it, read and checked.

    Attributes:
        counters: As `state_of` returned them.
        slots: int64[n], those that hold a row, the oldest first.
        indexes: int64[n], of the rows in them.
        words: uint64[n, words].
    """

    counters: dict[str, int]
    slots: Integers
    indexes: Integers
    words: Words


def read(ring: SharedRing, counters: Mapping[str, Any], reader: Reader, prefix: str = "") -> Snapshot:
    """Read what an archive has of a ring, arrays named after a prefix; change nothing.

    Raises:
        Damaged: If no ring can have been so.
    """
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


def begin(rings: Sequence[tuple[SharedRing, Snapshot]]) -> None:
    """Take the indexes of new rings, so that whoever adds from now on comes after the snapshots' rows.

    Raises:
        RuntimeError: If too many processes use them.
        ValueError: If anything has been added to one of them. Nothing has changed then.
    """
    rings[0][0].writers.mine()
    used = [ring.next_index for ring, _ in rings if ring.next_index]
    # Whoever adds after that look makes a swap fail.
    if used or not all(swap(ring.counters, NEXT_INDEX, 0, s.counters["next_index"]) for ring, s in rings):
        added = [*used, rings[0][0].next_index][0]
        raise ValueError(f"load fills a new buffer; {added} rows have been added to this one. Make another.")


def write(ring: SharedRing, snapshot: Snapshot, masses: Floats | None = None) -> None:
    """Write the rows of a snapshot, with which the ring has begun, under their old indexes.

    `masses`, float64[n], are those of the rows in the first n slots; None if they have none.
    """
    _, slots, indexes, words = snapshot
    masses = np.zeros(len(slots)) if masses is None else masses[slots]
    owner, gaps = ring.writers.mine(), np.flatnonzero(np.diff(indexes) != 1) + 1
    for first, end in pairwise([0, *gaps.tolist(), len(indexes)]):
        if first < end:
            index, some, some_masses = int(indexes[first]), words[first:end], masses[first:end]
            write_rows(ring.stamps, ring.rows, ring.masses, some, some_masses, index, 0, owner)
    for name, place in SAVED.items():
        if place != NEXT_INDEX:
            ring.count(place, snapshot.counters[name])
