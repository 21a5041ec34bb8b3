"""Frames in shared memory: each frame is stored once for all rows of a process that contain it.

A row stores the indexes of its frames instead of its observations. The frames lie in shared rings of their
own, with the same protocol as rows: stamped, and visible only when complete. A writer writes frames before
the row that refers to them, so a kill in between leaves unused frames but never a row without frames. Indexes
are never reused. A reader therefore notices when a frame has been overwritten; its row then counts as
overwritten, and another row is drawn.

A writer remembers hashes of the frames that it added last. A hash only finds a candidate: the bytes in the
ring decide whether the frame is the same. Writers do not share frames with each other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import Damaged, Reader, checked_parts
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.fields import Fields, Rows
from replay_tutorial.buffers.gather import Gather, new_arrays, value_type
from replay_tutorial.buffers.images.frame_layout import CHECKED_AT, FrameLayout, with_numbers
from replay_tutorial.buffers.images.frame_search import Hashes, empty_index, number_frames, same_bytes
from replay_tutorial.buffers.priorities import NO_PRIORITY
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers, Matrix, Words, jitable, kernel, types
from replay_tutorial.buffers.runtime.user_warning import warn_user
from replay_tutorial.shared import snapshot
from replay_tutorial.shared.atomics import fence_acquire, fetch_add, load_acquire
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import NEXT_INDEX, published_stamp, read_row, write_rows
from replay_tutorial.shared.registry import WriterRegistry
from replay_tutorial.shared.shared_ring import MAX_ATTEMPTS, MAX_DRAWS, SharedRing, ring_specs
from replay_tutorial.shared.snapshot import Snapshot

# Frames reserved beyond the average need of the rows: a margin, and enough for 64 environments whose rows
# refer to frames from five steps ago, from the first step on.
SPARE = 256
ROOM = SPARE + 1024
# Rows whose frames are stored together.
ROWS_AT_ONCE = 32

StackWords = Annotated[npt.NDArray[np.uint64], types.uint64[:, :, ::1]]  # [rows, frames of a row, words]


class FrameArrays(NamedTuple):
    """A ring of frames in shared memory, and this writer's record of the frames that it added last."""

    counters: Integers
    stamps: Integers  # [capacity]
    frames: Words
    masses: Floats  # [capacity], unused
    young: int  # number of newest frames that rows may still refer to
    hashes: Hashes  # [TABLE_SIZE]
    remembered: Integers  # [TABLE_SIZE], index of the frame with this hash, or NO_INDEX
    owner: int  # the writer


@jitable
def is_in_ring(ring: FrameArrays, index: int, frame: Any) -> bool:
    """Return whether the frame with this index is recent and equal to `frame`, and is not overwritten now."""
    slot = index % ring.stamps.shape[0]
    if load_acquire(ring.counters, NEXT_INDEX) - index > ring.young:
        return False
    if load_acquire(ring.stamps, slot) != published_stamp(index):
        return False
    same = same_bytes(ring.frames[slot].view(np.uint8), frame.view(np.uint8))
    fence_acquire()
    return same and load_acquire(ring.stamps, slot) == published_stamp(index)


@jitable
def append_to_ring(ring: FrameArrays, frame: Any) -> tuple[int, bool]:
    """Append a frame; return its index, and False if another writer holds the slot."""
    index, words = fetch_add(ring.counters, NEXT_INDEX, 1), frame.reshape(1, len(frame))
    stamps, masses = ring.stamps, ring.masses
    return index, write_rows(stamps, ring.frames, masses, words, masses[:1], index, 0, ring.owner) == 1


@kernel
def number_in_ring(
    arrays: Annotated[tuple[Any, ...], FrameArrays],
    observations: StackWords,
    next_observations: StackWords,
    start: int,
    indexes: Matrix,
) -> int:
    """Write the frames of rows to a ring, and their indexes to `indexes`; see `number_frames`.

    Two threads may corrupt each other's record of recent frames. This is harmless, because each entry is
    compared with the ring.
    """
    ring = FrameArrays(*arrays)
    return number_frames(ring, is_in_ring, append_to_ring, observations, next_observations, start, indexes)


@kernel
def read_frames(
    stamps: Integers, frames: Words, indexes: Matrix, places: Integers, copies: StackWords, gone: Flags
) -> None:
    """Copy the frames of rows to `places` in `copies`; set `gone` for places that lack a frame."""
    for i in range(indexes.shape[0]):
        place = places[i]
        for k in range(indexes.shape[1]):
            index = indexes[i, k]
            if gone[place]:
                break
            if index < 0 or read_row(stamps, frames, index % stamps.shape[0], 0, copies[place], k) != index:
                gone[place] = True


def word_count(layout: FrameLayout) -> int:
    """Return the number of 8-byte words in a frame; the last word is padded with zeros."""
    return -(-layout.frame_bytes // 8)


def frame_dtype(layout: FrameLayout) -> np.dtype[np.void]:
    """Return the record dtype of a frame in a ring."""
    return np.dtype([("words", np.uint64, (word_count(layout),))])


def frame_specs(layouts: Sequence[FrameLayout], rows: int, frames_per_row: float) -> Specs:
    """Return the specs of the shared arrays for the frames of `rows` rows: one ring per layout."""
    specs: Specs = {}
    for i, layout in enumerate(layouts):
        capacity = int(rows * frames_per_row) + ROWS_AT_ONCE * layout.frames_per_row + ROOM
        specs = {**specs, **ring_specs(capacity, frame_dtype(layout), f"frames{i}/")}
    return specs


class FrameRing:
    """The frames of one observation field, and of its next observation if both share frames.

    A new row may refer to an existing frame only while the frame is recent, so that the frame outlives the
    row. In a ring of c frames for n rows, the last r frames are recent: r is (c - n) / 4, or c - 1.19 n -
    SPARE if that is larger, as in a small ring. Rows keep all their frames as long as n consecutive rows add
    at most c - r frames.

    Attributes:
        layout: Layout of the frames within an observation.
        ring: The ring of frames.
        remembered: int64[n], indexes of the frames that this process added last.
    """

    def __init__(
        self, arrays: SharedArrays, writers: WriterRegistry, prefix: str, layout: FrameLayout, rows: int
    ) -> None:
        """Use the arrays with this prefix; no frames are remembered initially."""
        self.layout = layout
        self.ring = SharedRing(arrays, frame_dtype(layout), writers, prefix)
        spare = self.ring.capacity - rows
        young = max(spare // 4, spare - rows * 3 // 16 - SPARE)
        ring, (hashes, self.remembered) = self.ring, empty_index()
        self._arrays = (ring.counters, ring.stamps, ring.rows, ring.masses, young, hashes, self.remembered)

    def number(self, observations: Sequence[npt.NDArray[np.generic]]) -> Integers:
        """Write the new frames of observations, one array (n, *shape) per field.

        Return the indexes of all their frames, int64[n, frames per row].
        """
        ring, stacks = self.ring, [self._words(each) for each in observations]
        arrays = (*self._arrays, ring.writers.writer_number())
        indexes = np.empty((len(stacks[0]), self.layout.frames_per_row), np.int64)
        start = attempts = 0
        while True:
            end = number_in_ring(arrays, stacks[0], stacks[-1], start, indexes)
            if end == indexes.size:
                return indexes
            # The frame is tried in another slot; a dead holder's slot is free from the next lap on.
            ring.writers.release_if_dead(ring.stamps, int(indexes.reshape(-1)[end]) % ring.capacity)
            attempts = attempts + 1 if end == start else 1
            start = end
            if attempts == MAX_ATTEMPTS:
                # Give up: the row counts as overwritten, because its frame does not exist.
                start, attempts = end + 1, 0

    def read(self, indexes: Integers, places: Integers, copies: Words, gone: Flags) -> None:
        """Copy the frames of rows, int64[n, stack], to `places`; set `gone` for rows that lack one."""
        read_frames(self.ring.stamps, self.ring.rows, np.ascontiguousarray(indexes), places, copies, gone)

    def join(self, copies: Words) -> npt.NDArray[np.generic]:
        """Assemble observations from copied frames."""
        return self.layout.join(copies.view(np.uint8))

    def _words(self, observations: npt.NDArray[np.generic]) -> StackWords:
        frames = self.layout.split(observations)
        if self.layout.frame_bytes % 8 == 0:
            return np.require(frames.view(np.uint64), requirements=["C", "A", "W"])  # as the kernel requires
        words = np.zeros((*frames.shape[:2], word_count(self.layout)), np.uint64)
        words.view(np.uint8)[..., : self.layout.frame_bytes] = frames
        return words


# Returns replacement rows for positions of a batch.
DrawAgain = Callable[[Integers], Rows]


def frames_lost() -> RuntimeError:
    """Return the exception for rows whose frames have all been overwritten."""
    return RuntimeError(
        "The frames of the stored rows were overwritten before the rows, because the rows share fewer frames "
        "than frames_per_transition assumes. Increase it; see frames_added and rows_added in statistics()."
    )


class SharedFrames:
    """Replaces observations with frame indexes, and frame indexes with observations.

    Attributes:
        rings: One ring of frames per observation.
    """

    def __init__(
        self,
        arrays: SharedArrays,
        writers: WriterRegistry,
        fields: Fields,
        layouts: Sequence[FrameLayout],
        rows: int,
    ) -> None:
        """Use the arrays that `frame_specs` described."""
        self._gather = Gather(with_numbers(fields, layouts))
        self.rings = [
            FrameRing(arrays, writers, f"frames{i}/", layout, rows) for i, layout in enumerate(layouts)
        ]
        self._fields = fields
        self._rows = rows
        self._ring_of = {name: frames for frames in self.rings for name in frames.layout.names}
        self._types = {
            name: value_type(np.dtype(np.uint64), (layout.stack, word_count(layout)))
            for layout in layouts
            for name in layout.names
        }

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return sum(frames.ring.nbytes for frames in self.rings)

    @property
    def added(self) -> int:
        """Number of frames added for the observation with the most frames."""
        return max(int(frames.ring.counters[NEXT_INDEX]) for frames in self.rings)

    def append(
        self,
        ring: SharedRing,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None = None,
        max_priority: float = NO_PRIORITY,
        priorities: Any = None,
    ) -> int:
        """Write the frames of rows, then append the rows to the ring; see `SharedRing.append`."""
        index = ring.append(count, self.number(count, columns), masses, max_priority)
        self.check_sharing(index, index + count)
        return index

    def number(self, count: int, columns: Sequence[Any]) -> list[Any]:
        """Write the frames of `count` rows; return the columns with frame indexes instead of observations."""
        skipped = max(0, count - self._rows)  # of more rows than slots, only the last are written
        numbered = dict(zip(self._fields.fields, columns, strict=True))
        for frames in self.rings:
            given = frames.layout.observations(count, numbered)
            indexes = np.zeros((count, frames.layout.frames_per_row), np.int64)
            # A few rows at a time, so that the frames they share are still recent.
            for first in range(skipped, count, ROWS_AT_ONCE):
                some = slice(first, first + ROWS_AT_ONCE)
                indexes[some] = frames.number([each[some] for each in given])
            numbered |= frames.layout.numbers_by_name(indexes)
        return list(numbered.values())

    def check_sharing(self, first: int, end: int) -> None:
        """Warn if rows share hardly any frames, or lose them; the rows from `first` to `end` were just added.

        Only the process that adds a certain row checks, so that each warning appears once.
        """
        is_early, is_first_lap = first < CHECKED_AT <= end, first < self._rows <= end
        if not (is_early or is_first_lap):
            return
        rows = end - max(0, end - first - self._rows)  # `number` has skipped the others
        for frames in self.rings:
            added, room = int(frames.ring.counters[NEXT_INDEX]), frames.ring.capacity
            if is_early:
                frames.layout.warn_if_hardly_shared(rows, added)
            if is_first_lap and added > room:
                needed = 1.0 + 4.0 / 3.0 * (added / rows - 1.0)
                warn_user(
                    f"The frames of {frames.layout.names[0]!r} do not fit: {rows:,} transitions added "
                    f"{added:,} frames, but there is room for {room:,}, so about "
                    f"{rows * (1.0 - room / added):,.0f} of the transitions have lost frames and cannot be "
                    f"sampled. To keep them, pass frames_per_transition={math.ceil(100 * needed) / 100}."
                )

    def restore(self, rows: Rows, draw_again: DrawAgain) -> Batch:
        """Replace frame indexes with observations; `draw_again` replaces rows that lack a frame."""
        copies = self._empty_copies(len(rows))
        positions = np.arange(len(rows))
        for _ in range(MAX_DRAWS):
            gone = self._read(rows[positions], positions, copies)
            positions = np.flatnonzero(gone)
            if len(positions) == 0:
                return self._to_batch(rows, copies)
            rows[positions] = draw_again(positions)
        raise frames_lost()

    def restore_available(self, rows: Rows) -> tuple[Batch, Flags]:
        """Replace frame indexes with observations in the rows that have all frames; return which they are."""
        copies = self._empty_copies(len(rows))
        there = ~self._read(rows, np.arange(len(rows)), copies)
        if there.all():
            return self._to_batch(rows, copies), there
        left = {name: array[there] for name, array in copies.items()}
        return self._to_batch(rows[there], left), there

    def state(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the counters of each ring of frames, and all their arrays by name."""
        counters: list[dict[str, Any]] = []
        arrays: dict[str, Any] = {}
        for i, frames in enumerate(self.rings):
            counted, parts = snapshot.save_state(frames.ring)
            counters.append(counted)
            arrays |= {f"frames{i}/{name}": part for name, part in parts.items()}
        return counters, arrays

    def read_snapshots(
        self, counters: Mapping[str, Any], reader: Reader, rows: Rows
    ) -> list[tuple[SharedRing, Snapshot]]:
        """Read the rings of frames from an archive and check the frame indexes of `rows`; modify nothing."""
        read: list[tuple[SharedRing, Snapshot]] = []
        parts = checked_parts(counters, "frames", len(self.rings))
        for i, (frames, counted) in enumerate(zip(self.rings, parts, strict=True)):
            found = snapshot.read_ring(frames.ring, counted, reader, f"frames{i}/")
            for name in frames.layout.names:
                if ((rows[name] < 0) | (rows[name] >= found.counters["next_index"])).any():
                    raise Damaged(f"a row refers to a frame of {name!r} that does not exist")
            read.append((frames.ring, found))
        return read

    def _empty_copies(self, count: int) -> dict[str, Words]:
        """Return uninitialised memory for the frames of each field, uint64[count, stack, words]."""
        return new_arrays(count, self._types)

    def _read(self, rows: Rows, places: Integers, copies: dict[str, Words]) -> Flags:
        """Copy the frames of rows to `places`; return for each place whether it lacks a frame."""
        gone = np.zeros(places[-1] + 1 if len(places) else 0, np.bool_)
        for name, frames in self._ring_of.items():
            frames.read(rows[name], places, copies[name], gone)
        return gone

    def _to_batch(self, rows: Rows, copies: dict[str, Words]) -> Batch:
        batch = self._gather.to_batch(rows)
        for name, frames in self._ring_of.items():
            batch[name] = frames.join(copies[name])
        return batch
