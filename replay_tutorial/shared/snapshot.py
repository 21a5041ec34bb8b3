"""Saving a shared buffer while other processes write, and restoring it.

Every row is copied, complete or not. Its index is read before and after the copy; the row counts only if the
two are equal. Restoring writes the rows with the writers' protocol, under their old indexes. The
registrations of the old processes are not restored.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.archive import (
    Arrays,
    Damaged,
    Reader,
    checked_count,
    checked_generator,
    open_archive,
)
from replay_tutorial.buffers.runtime.interrupts import run_in_thread
from replay_tutorial.buffers.runtime.jit import Floats, Integers, Words
from replay_tutorial.buffers.schemes.sample_counts import check_times
from replay_tutorial.shared import protocol
from replay_tutorial.shared.protocol import NEXT_INDEX, NO_INDEX, raise_max, swap, write_rows
from replay_tutorial.shared.shared_ring import SharedRing

# Counters that a file contains, named as in `protocol`.
KEPT = ["next_index", "published", "cleared", "sampled", "rejected", "stale", "dropped"]
SAVED: dict[str, int] = {name: getattr(protocol, name.upper()) for name in KEPT}


def state_of(buffer: Any) -> tuple[dict[str, Any], Arrays]:
    """Return what `save` writes of a shared buffer: its counters and arrays."""
    ring: SharedRing = buffer._ring
    frames, counts = buffer._stages, buffer._counts
    counters, arrays = save_state(ring)
    indexes, count = arrays.pop("indexes"), min(int(counters["next_index"]), ring.capacity)
    slots = np.arange(count)
    if frames is not None:
        counters["frames"], of_frames = frames.state()
        arrays |= of_frames
    if counts is not None:
        arrays["times_sampled"] = lambda: [counts.of(ring.indexes(slots))]
    if "alpha" in buffer._layout:
        arrays |= {"seen": [buffer._block["seen"]], "masses": lambda: [buffer._masses(slots)]}
    own = {"episode_len": buffer._episode_len(), "random_state": buffer._rng.state}
    # The indexes come last: rows that change before the indexes are written are left out.
    return counters | own, arrays | {"indexes": indexes}


def load(buffer: Any, path: str | PathLike[str]) -> None:
    """Restore a file into a new shared buffer; see `MPReplayBuffer.load`."""
    with open_archive(path, buffer._layout) as (counters, reader):
        fill, ahead = read_buffer(buffer, counters, reader), buffer._read_ahead(counters, reader)
    run_in_thread(fill)
    buffer._loaded_ahead = ahead


def read_buffer(buffer: Any, counters: dict[str, Any], reader: Reader) -> Callable[[], None]:
    """Read an archive without changing the buffer; return a function that fills the rings."""
    ring: SharedRing = buffer._ring
    frames, counts = buffer._stages, buffer._counts
    generator, episode_len = checked_generator(counters), checked_count(counters, "episode_len")
    rows = read_ring(ring, counters, reader)
    count = min(rows.counters["next_index"], ring.capacity)
    masses, largest_priority, times = np.zeros(count), np.zeros(1), np.zeros(count, np.int64)
    if has_priorities := "alpha" in buffer._layout:
        reader.read_into("masses", [masses])
        reader.read_into("seen", [largest_priority])
        ring.rules.check_loaded(masses, float(largest_priority[0]))
    if counts is not None:
        reader.read_into("times_sampled", [times])
        check_times(times)
    of_frames: list[tuple[SharedRing, Snapshot]] = []
    if frames is not None:
        of_frames = frames.read_snapshots(counters, reader, ring.as_rows(rows.words))

    def fill() -> None:
        reserve_indexes([(ring, rows), *of_frames])
        if counts is not None:  # before another process can sample and count the rows
            counts.restore(rows.indexes, times[rows.slots])
        for frame_ring, read in of_frames:
            restore(frame_ring, read)
        restore(ring, rows, masses)
        buffer._rng, ring.handle_counts[1] = generator, ring.handle_counts[0] - episode_len
        if has_priorities:
            raise_max(ring.largest_priority, float(largest_priority[0]))

    return fill


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
