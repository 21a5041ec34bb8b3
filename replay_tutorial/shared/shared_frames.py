"""Frames in shared memory: an observation is stored once, although several rows of a process show it.

A row holds the indexes of its frames in the place of its observations. Frames are written before the row that
names them: a writer that is killed in between leaves frames that nobody names, never a row without frames. A
row whose frames have been replaced before it counts as replaced, and another is drawn.

Left out: how a frame is found again (`frame_ring`).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from replay_tutorial.buffers.archive import Damaged, Reader, checked_parts
from replay_tutorial.buffers.fields import Batch, Fields, Rows
from replay_tutorial.buffers.frame_layout import FrameLayout, with_numbers
from replay_tutorial.buffers.gather import Out, put
from replay_tutorial.buffers.jit import Flags, Integers, Words
from replay_tutorial.shared import snapshot
from replay_tutorial.shared.frame_ring import ROWS_AT_ONCE, FrameRing, frame_specs
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import NEXT_INDEX
from replay_tutorial.shared.registry import WriterRegistry
from replay_tutorial.shared.shared_ring import MAX_DRAWS, SharedRing
from replay_tutorial.shared.snapshot import Snapshot

# Returns other rows for positions of a batch.
DrawAgain = Callable[[Integers], Rows]


def frames_lost() -> RuntimeError:
    """Make the error that says why no row can be shown."""
    return RuntimeError(
        "The frames of the stored rows have been replaced before the rows: these share fewer frames than "
        "frames_per_transition counts on. Enlarge it; statistics() has frames_added and rows_added."
    )


def specs_of_frames(layouts: Sequence[FrameLayout], rows: int, frames_per_row: float) -> Specs:
    """Describe the shared arrays for the frames of a number of rows."""
    specs: Specs = {}
    for i, layout in enumerate(layouts):
        specs = {**specs, **frame_specs(f"frames{i}/", layout, rows, frames_per_row)}
    return specs


@contextmanager
def unmoved_if_refused(rng: np.random.Generator) -> Generator[None]:
    """Take a generator's steps back if a call ends in an error; 1 µs, nothing beside the copies of frames."""
    state = rng.bit_generator.state
    try:
        yield
    except (ValueError, RuntimeError):
        rng.bit_generator.state = state
        raise


class SharedFrames:
    """Puts frame indexes in the place of observations, and back.

    Attributes:
        stored_fields: The fields of the rows that are stored.
        rings: The frames, one ring for each observation.
    """

    def __init__(
        self,
        arrays: SharedArrays,
        writers: WriterRegistry,
        fields: Fields,
        layouts: Sequence[FrameLayout],
        rows: int,
    ) -> None:
        """Look into arrays that `specs_of_frames` described."""
        self.stored_fields = with_numbers(fields, layouts)
        self.rings = [
            FrameRing(arrays, writers, f"frames{i}/", layout, rows) for i, layout in enumerate(layouts)
        ]
        self._fields = fields
        self._rows = rows
        self._ring_of = {name: frames for frames in self.rings for name in frames.layout.names}

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return sum(frames.ring.nbytes for frames in self.rings)

    @property
    def added(self) -> int:
        """Frames added so far, of the observation that needed most."""
        return max(int(frames.ring.counters[NEXT_INDEX]) for frames in self.rings)

    def number(self, count: int, columns: Sequence[Any]) -> list[Any]:
        """Write the frames of `count` rows; return the columns with indexes in the place of observations."""
        skipped = max(0, count - self._rows)  # of more rows than there are slots the last ones are written
        numbered = dict(zip(self._fields.fields, columns, strict=True))
        for frames in self.rings:
            given = frames.layout.observations(count, numbered)
            indexes = np.zeros((count, frames.layout.frames_per_row), np.int64)
            for first in range(skipped, count, ROWS_AT_ONCE):  # few at a time: what they share is young
                some = slice(first, first + ROWS_AT_ONCE)
                indexes[some] = frames.number([each[some] for each in given])
            numbered |= frames.layout.numbers_by_name(indexes)
        return list(numbered.values())

    def restore(self, rows: Rows, draw_again: DrawAgain, out: Out) -> Batch:
        """Put observations in the place of frame indexes; `draw_again` replaces rows that lack a frame.

        Raises:
            RuntimeError: If none can be found that has all its frames.
        """
        copies = {name: ring.empty_copies(len(rows), out.get(name)) for name, ring in self._ring_of.items()}
        positions = np.arange(len(rows))
        for _ in range(MAX_DRAWS):
            gone = self._read(rows[positions], positions, copies)
            positions = np.flatnonzero(gone)
            if len(positions) == 0:
                batch = self._to_batch(rows, copies)
                return put(batch, out, **{name: batch[name] for name in out if name in batch})
            rows[positions] = draw_again(positions)
        raise frames_lost()

    def restore_those_there(self, rows: Rows) -> Batch:
        """Put observations in the place of their frames' indexes, and leave out rows that lack a frame."""
        copies = {name: frames.empty_copies(len(rows)) for name, frames in self._ring_of.items()}
        there = ~self._read(rows, np.arange(len(rows)), copies)
        if there.all():
            return self._to_batch(rows, copies)
        left = {name: array[there] for name, array in copies.items()}
        return self._to_batch(rows[there], left)

    def state(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the counters of each ring of frames, and all their arrays by name."""
        counters: list[dict[str, Any]] = []
        arrays: dict[str, Any] = {}
        for i, frames in enumerate(self.rings):
            counted, parts = snapshot.state_of(frames.ring)
            counters.append(counted)
            arrays |= {f"frames{i}/{name}": part for name, part in parts.items()}
        return counters, arrays

    def read_snapshots(
        self, counters: Mapping[str, Any], reader: Reader, rows: Rows
    ) -> list[tuple[SharedRing, Snapshot]]:
        """Read what an archive has of each ring of frames, and of the rows that name them; change nothing.

        Raises:
            Damaged: If no rings can have been so, or a row names a frame that never was.
        """
        read: list[tuple[SharedRing, Snapshot]] = []
        parts = checked_parts(counters, "frames", len(self.rings))
        for i, (frames, counted) in enumerate(zip(self.rings, parts, strict=True)):
            found = snapshot.read(frames.ring, counted, reader, f"frames{i}/")
            for name in frames.layout.names:
                if ((rows[name] < 0) | (rows[name] >= found.counters["next_index"])).any():
                    raise Damaged(f"a row names a frame of {name!r} that never was")
            read.append((frames.ring, found))
        return read

    def _read(self, rows: Rows, places: Integers, copies: dict[str, Words]) -> Flags:
        """Copy the frames of rows to their places; return for each place whether it lacks a frame."""
        gone = np.zeros(places[-1] + 1 if len(places) else 0, np.bool_)
        for name, frames in self._ring_of.items():
            frames.read(rows[name], places, copies[name], gone)
        return gone

    def _to_batch(self, rows: Rows, copies: dict[str, Words]) -> Batch:
        batch = self.stored_fields.to_batch(rows)
        for name, frames in self._ring_of.items():
            batch[name] = frames.join(copies[name])
        return batch
