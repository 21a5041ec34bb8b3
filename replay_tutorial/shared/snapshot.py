"""Snapshots: a shared ring as an archive, while others go on writing, and back.

Every row is copied, torn or not. Its index is looked at before and after: if it is the same, the row did not change
in between, and counts. A ring is filled again as any writer would fill it, under the old indexes.

Left out: the writers' processes; they are others by then.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import ReadInto, checked_count
from replay_tutorial.shared.protocol import (
    CLEARED,
    DROPPED,
    NEXT_INDEX,
    NO_INDEX,
    PUBLISHED,
    PUBLISHED_BEFORE_CLEAR,
    REJECTED,
    SAMPLED,
    STALE,
    Integers,
    swap,
    write_rows,
)
from replay_tutorial.shared.ring import SharedRing

SAVED = {
    "next_index": NEXT_INDEX,
    "published": PUBLISHED,
    "published_before_clear": PUBLISHED_BEFORE_CLEAR,
    "cleared": CLEARED,
    "sampled": SAMPLED,
    "rejected": REJECTED,
    "stale": STALE,
    "dropped": DROPPED,
}


def taken_apart(ring: SharedRing) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give a ring's counters, and its arrays slot by slot; the indexes must be written last."""
    counters = {name: int(ring.counters[place]) for name, place in SAVED.items()}
    slots = np.arange(min(counters["next_index"], ring.capacity))
    before = ring.indexes(slots)

    def indexes() -> list[Integers]:
        same = (before == ring.indexes(slots)) & (before < counters["next_index"])
        return [np.where(same, before, NO_INDEX)]

    return counters, {"rows": [ring.rows[: len(slots)]], "indexes": indexes}


def restore(
    ring: SharedRing, counters: Mapping[str, Any], read_into: ReadInto, masses: npt.NDArray[np.float64]
) -> None:
    """Write the rows of an archive under their old indexes.

    Args:
        ring: The ring, to which no row has been added.
        counters: As `taken_apart` gave them.
        read_into: Reads an array of the archive.
        masses: float64[n], of the row in each of the first n slots.

    Raises:
        ValueError: If rows have been added, or the file is damaged. Nothing has changed then.
    """
    read = {name: checked_count(counters, name) for name in SAVED}
    count = min(read["next_index"], ring.capacity)
    indexes, words = np.empty(count, np.int64), ring.empty_words(count)
    read_into("indexes", [indexes])
    read_into("rows", [words])
    there = np.flatnonzero(indexes != NO_INDEX)
    there = there[np.argsort(indexes[there])]
    fits = (indexes[there] >= 0) & (indexes[there] < read["next_index"])
    if not (fits & (indexes[there] % ring.capacity == there)).all():
        raise ValueError("The file is damaged: an index does not fit its slot.")
    if not swap(ring.counters, NEXT_INDEX, 0, read["next_index"]):
        raise ValueError(
            f"load fills a new buffer; {ring.next_index} rows have been added to this one. Make another."
        )
    for run in np.split(there, np.flatnonzero(np.diff(indexes[there]) != 1) + 1):
        if len(run):  # whoever adds from now on comes after these rows
            first, owner = int(indexes[run[0]]), ring.owners.mine()
            write_rows(ring.stamps, ring.rows, ring.masses, words[run], masses[run], first, 0, owner)
    for name, place in SAVED.items():
        if place != NEXT_INDEX:
            ring.count(place, read[name])
