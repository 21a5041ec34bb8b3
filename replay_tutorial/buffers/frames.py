"""Frames: store an observation once, although several rows show it.

The next observation of one row is the observation of the row after it, and a stack of four Atari frames
shares three of them with the stack after it. So frames go into a log, each once, numbered from 0, and a row
keeps the numbers. A frame is looked for among those that the newest rows brought, of many environments if
they take turns. Bytes decide whether it is there, not the caller: at the end of an episode, at the
wrap-around of the ring, or with transitions in no order at all, the log only grows faster.

    log   8 9 2 3 4 5 6 7      of 8 frames; frame 10 may go where 2 lies as soon as no row names 2

Left out: a search through the whole log. A frame that comes again later is stored again, because a row that
named it would keep everything since.

1,000,000 transitions of 4 x 84 x 84 uint8 with their next observations: 7.3 GB instead of 56.5 GB.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import Arrays, Damaged, Reader, checked_count, checked_parts
from replay_tutorial.buffers.fields import Batch, Fields, Rows
from replay_tutorial.buffers.frame_layout import FrameLayout, StackCompress, frame_layouts, with_numbers
from replay_tutorial.buffers.frame_search import Frames, hash_frames, number_frames
from replay_tutorial.buffers.gather import Out, in_threads, new_arrays
from replay_tutorial.buffers.jit import Integers

RowsKept = Callable[[], Iterable[Rows]]

# A frame that a row brings is named again by so many rows after it: twelve steps of 64 environments.
NEW_ROWS = 768
NEW_FRAMES = 2048  # among so many is one looked for, if these rows bring more
ROWS_AT_ONCE = 32


class FrameLog:
    """The frames of one observation, and of its next observation if that is shared.

    Attributes:
        layout: How they make up observations.
        next_frame: The number that the next new frame will get.
    """

    def __init__(self, layout: FrameLayout, capacity: int) -> None:
        """Reserve room for one frame per row and a sixty-fourth more, for the first frames of episodes."""
        self.layout = layout
        self._usual_length = capacity + capacity // 64 + layout.frames_per_row * ROWS_AT_ONCE
        self._log = np.zeros((self._usual_length, layout.frame_bytes), np.uint8)
        self.next_frame = 0
        self._first_frame = 0  # those before it may have been written over
        self._forget_newest()

    def _forget_newest(self) -> None:
        self._hashes = np.zeros(NEW_FRAMES, np.uint32)  # that of frame i lies at i % NEW_FRAMES
        self._starts = np.zeros(NEW_ROWS, np.int64)  # the number of the first frame of row i, at i % NEW_ROWS
        self._next_row = 0

    @property
    def memory(self) -> Frames:
        """Where the frames lie."""
        return self._log

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return self._log.nbytes

    def number(self, observations: Sequence[npt.NDArray[Any]], kept: RowsKept) -> Integers:
        """Number the frames of a few rows, in order.

        Args:
            observations: The observations of each field, arrays of shape (n, *shape).
            kept: Copies the rows that are kept, as stored, the oldest first.

        Returns:
            int64[n, frames per row].
        """
        stacks = [self.layout.split(each) for each in observations]
        ids, row = np.empty((len(stacks[0]), self.layout.frames_per_row), np.int64), 0
        while True:
            row, self.next_frame = number_frames(
                *(self._log, self._hashes, self._starts, self._next_row, self.next_frame, self._first_frame),
                *(stacks[0], stacks[-1], row, ids),
            )
            if row == len(ids):
                self._next_row += row
                return ids
            oldest_frame = self.oldest_frame(kept())
            self._make_room(min(oldest_frame, int(ids[:row].min())) if row else oldest_frame)

    def _make_room(self, oldest_frame: int) -> None:
        # Less room would soon be used up, and the oldest rows be looked through again.
        length = len(self._log)
        needed = self.next_frame - oldest_frame + self.layout.frames_per_row + ROWS_AT_ONCE + length // 1024
        if needed > length:
            # Rare: many environments, short episodes, or rows in no order, which may need much more. For a
            # moment both logs are in memory.
            length = needed + length // 64 + (needed - self._usual_length) // 3
            log = np.zeros((length, self._log.shape[1]), np.uint8)
            frames = np.arange(oldest_frame, self.next_frame)
            for some in np.array_split(frames, 1 + len(frames) // 1024):
                log[some % length] = self._log[some % len(self._log)]
            self._log = log
        self._first_frame = oldest_frame

    def take(self, ids: Integers, observations: npt.NDArray[Any]) -> None:
        """Copy the frames `ids`, int64[n, stack], to the observations that consist of them."""
        self.layout.take(self._log, ids % len(self._log), observations)

    def oldest_frame(self, kept: Iterable[Rows]) -> int:
        """Find the oldest frame that rows name, given the rows kept, the oldest first.

        Not all are looked at: a row names none of the frames that were too old already when it came.
        """
        oldest_frame, names = self.next_frame, self.layout.names
        for rows in kept:
            oldest_frame = min(oldest_frame, *(int(rows[name].min()) for name in names))
            # A row of n steps names frames from the first of them and from the last; what comes after the row
            # is no older than the first.
            if min(int(rows[name].max()) for name in names) + 1 - NEW_FRAMES >= oldest_frame:
                break
        return oldest_frame

    def state(self, kept: Iterable[Rows]) -> tuple[dict[str, int], list[Frames]]:
        """Return counters, as JSON, and the frames that rows name, given the rows kept, the oldest first."""
        oldest_frame = self.oldest_frame(kept)
        return {"next": self.next_frame, "oldest": oldest_frame}, self._segments(oldest_frame)

    def from_state(self, counters: dict[str, Any], reader: Reader, name: str) -> "FrameLog":
        """Make a log alike, with its own memory, from what `state` returned; this one stays as it is."""
        log = copy.copy(self)
        log.next_frame = checked_count(counters, "next")
        log._first_frame = checked_count(counters, "oldest", most=log.next_frame)
        count = log.next_frame - log._first_frame
        reader.check(name, (count, self.layout.frame_bytes), np.uint8)
        log._log = np.zeros((max(len(self._log), count), self._log.shape[1]), np.uint8)
        log._forget_newest()
        reader.read_into(name, log._segments(log._first_frame))
        hash_frames(log._log, log._hashes, log._first_frame, log.next_frame)
        return log

    def check(self, ids: Integers) -> None:
        """Refuse numbers of frames that are not there."""
        if not ((ids >= self._first_frame) & (ids < self.next_frame)).all():
            first, last = self._first_frame, self.next_frame - 1
            raise Damaged(f"a row names a frame that is not among {first} to {last}")

    def _segments(self, oldest_frame: int) -> list[Frames]:
        """Return the frames, oldest first, in two views, uint8[n, frame_bytes]: a log wraps around."""
        first = oldest_frame % len(self._log)
        count = min(self.next_frame - oldest_frame, len(self._log) - first)
        return [self._log[first : first + count], self._log[: self.next_frame - oldest_frame - count]]


class FrameStore:
    """Puts frame numbers in the place of observations, and back.

    Attributes:
        fields: The fields of the rows that are stored; a compressed one holds int64[stack] frame numbers.
        logs: One for each observation that is compressed.
        compressed: The names of these, and of their next ones if they share the frames.
        rows_at_once: Rows that are taken in before old ones are given up.
    """

    rows_at_once = ROWS_AT_ONCE

    def __init__(
        self, fields: Fields, next_of: tuple[str, ...], stack_compress: StackCompress, capacity: int
    ) -> None:
        """Prepare a log for every observation named.

        Raises:
            ValueError: If a field named does not exist.
        """
        layouts = frame_layouts(fields, next_of, stack_compress)
        self.logs: list[FrameLog] = [FrameLog(layout, capacity) for layout in layouts]
        self.fields = with_numbers(fields, layouts)
        self.compressed = {name for layout in layouts for name in layout.names}

    def number(self, count: int, columns: Sequence[Any], kept: RowsKept) -> list[Any]:
        """Store the frames of a few rows.

        Args:
            count: How many rows.
            columns: For each field what is assigned to it: shape (count, …), or one value if count is 1.
            kept: Copies the rows that are kept, as stored, the oldest first.

        Returns:
            The columns with numbers in the place of observations.
        """
        numbered = dict(zip(self.fields.fields, columns, strict=True))
        for log in self.logs:
            field, stack = log.layout.field, log.layout.stack
            shape = (count, *field.shape)
            given = [np.asarray(numbered[name], field.dtype).reshape(shape) for name in log.layout.names]
            ids = log.number(given, kept)
            for i, name in enumerate(log.layout.names):
                numbers = ids[:, i * stack : (i + 1) * stack]
                numbered[name] = numbers if count > 1 else numbers[0]
        return list(numbered.values())

    def restore(self, batch: Batch, out: Out, threads: int = 1) -> Batch:
        """Put the observations in the place of their frames' numbers, in the caller's arrays if there are."""
        logs = {name: log for log in self.logs for name in log.layout.names}
        count = len(next(iter(batch.values())))
        fields = {name: log.layout.field for name, log in logs.items() if name not in out}
        made = new_arrays(count, {name: (field.dtype, field.shape) for name, field in fields.items()})
        for name, log in logs.items():
            ids, batch[name] = batch[name], made[name] if name in made else out[name]
            in_threads(
                lambda rows, log=log, ids=ids, name=name: log.take(ids[rows], batch[name][rows]),
                count,
                threads,
            )
        return batch

    def values_of(self, name: str, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a field's values in n rows, given what is stored of it: an array of shape (n, *shape)."""
        for log in self.logs:
            if name in log.layout.names:
                made = np.empty((len(stored), *log.layout.field.shape), log.layout.field.dtype)
                log.take(stored, made)
                return made
        return stored

    @property
    def layout(self) -> list[list[Any]]:
        """Each log's field names and the axis of its stacks, as JSON: what a file must agree with."""
        return [[*log.layout.names, log.layout.axis] for log in self.logs]

    @property
    def memory(self) -> list[Frames]:
        """Where the frames lie, of each log."""
        return [log.memory for log in self.logs]

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return sum(log.nbytes for log in self.logs)

    def state(self, kept: RowsKept) -> tuple[list[dict[str, int]], Arrays]:
        """Return counters, as JSON, and arrays."""
        states = [log.state(kept()) for log in self.logs]
        arrays: Arrays = {f"frames{i}": frames for i, (_, frames) in enumerate(states)}
        return [counters for counters, _ in states], arrays

    def from_state(self, counters: Mapping[str, Any], reader: Reader, rows: Sequence[Rows]) -> "FrameStore":
        """Make a store alike from what `state` returned and the rows that name its frames."""
        store = copy.copy(self)
        store.logs = []
        parts = checked_parts(counters, "frames", len(self.logs))
        for i, (log, counted) in enumerate(zip(self.logs, parts, strict=True)):
            log = log.from_state(counted, reader, f"frames{i}")
            for ids in [part[name] for part in rows for name in log.layout.names if len(part)]:
                log.check(ids)
            store.logs.append(log)
        return store
