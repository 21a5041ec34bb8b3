"""Frames: store an observation once, although several rows show it.

The next observation of one row is the observation of the row after it, and a stack of four Atari frames
shares three of them with the stack after it. So frames go into a log, each once, numbered from 0, and a row
keeps the numbers. Whether a frame is already there is decided by comparing its bytes, not by trusting the
caller: at the end of an episode, at the wrap-around of the ring, or with transitions in no order at all, the
log only grows faster.

Left out: a search through the whole log. A frame is looked for where the preceding row says it should be, and
at the log's end (where it stands if the picture has not moved).

1,000,000 transitions of 4 x 84 x 84 uint8 with their next observations: 7.3 GB instead of 56.5 GB.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import Arrays, Damaged, Reader, checked_count, checked_parts
from replay_tutorial.buffers.fields import Batch, Fields, Rows
from replay_tutorial.buffers.frame_layout import FrameLayout, StackCompress, frame_layouts, with_numbers
from replay_tutorial.buffers.gather import Out, put
from replay_tutorial.buffers.jit import Integers, kernel, types

Bytes = Annotated[npt.NDArray[np.uint8], types.uint8[::1]]
Frames = Annotated[npt.NDArray[np.uint8], types.uint8[:, ::1]]  # [frames, bytes]
Stacks = Annotated[npt.NDArray[np.uint8], types.uint8[:, :, ::1]]  # [rows, frames of a row, bytes]
IntegerRows = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]

NO_FRAME = -1
ROWS_AT_ONCE = 32  # rows taken in before old frames are given up again: the log has room for all their frames


@kernel
def same_bytes(left: Bytes, right: Bytes) -> bool:
    """Compare without stopping early: a loop without a way out is compiled to vector instructions."""
    difference = np.uint8(0)
    for i in range(left.shape[0]):
        difference |= left[i] ^ right[i]
    return difference == 0


@kernel
def number_frames(
    log: Frames, next_frame: int, frames: Stacks, stack: int, previous: Integers, ids: IntegerRows
) -> int:
    """Number the frames of rows, append to the log those that are new, and return the next frame's number.

    A row's frames are those of the observation and, if it is kept too, those of the next observation.
    """
    per_row = frames.shape[1]
    for row in range(frames.shape[0]):
        for i in range(per_row):
            if i >= stack:  # a next observation: the observation, one frame on
                expected = ids[row, i - stack + 1] if i + 1 < per_row else NO_FRAME
            elif per_row > stack:  # an observation: the next observation of the preceding row
                expected = previous[stack + i]
            else:  # an observation without its next: the preceding one, one frame on
                expected = previous[i + 1] if i + 1 < stack else NO_FRAME
            found = NO_FRAME
            for candidate in (expected, next_frame - 1):
                if (
                    found == NO_FRAME
                    and candidate >= 0
                    and same_bytes(log[candidate % len(log)], frames[row, i])
                ):
                    found = candidate
            if found == NO_FRAME:
                log[next_frame % len(log)] = frames[row, i]
                found = next_frame
                next_frame += 1
            ids[row, i] = found
        previous[:] = ids[row]
    return next_frame


class FrameLog:
    """The frames of one observation, and of its next observation if that is shared.

    Attributes:
        layout: How they make up observations.
        next_frame: The number that the next new frame will get.
        previous: int64[frames per row], the frames of the newest row; NO_FRAME before there is one.
    """

    def __init__(self, layout: FrameLayout, capacity: int) -> None:
        """Reserve room for one frame per row and a sixty-fourth more, for the first frames of episodes."""
        self.layout = layout
        self._room_for_rows_at_once = layout.frames_per_row * ROWS_AT_ONCE
        length = capacity + capacity // 64 + self._room_for_rows_at_once
        self._log = np.zeros((length, layout.frame_bytes), np.uint8)
        self.next_frame = 0
        self.forget_previous()

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return self._log.nbytes

    def forget_previous(self) -> None:
        """Let the next row begin anew: the frames of the newest one need not be kept."""
        self.previous = np.full(self.layout.frames_per_row, NO_FRAME, np.int64)

    def number(self, rows: Rows, oldest_frame: int) -> Integers:
        """Number the frames of at most ROWS_AT_ONCE rows, in order.

        Args:
            rows: Records with the observations in full.
            oldest_frame: The smallest number that a row still needs.

        Returns:
            int64[n, len(names), stack].
        """
        needed = self.next_frame - oldest_frame + self._room_for_rows_at_once
        if needed > len(self._log):
            self._grow(needed + len(self._log) // 4, oldest_frame)
        layout = self.layout
        frames = np.concatenate([layout.split(rows[name]) for name in layout.names], axis=1)
        ids = np.zeros(frames.shape[:2], np.int64)
        self.next_frame = number_frames(self._log, self.next_frame, frames, layout.stack, self.previous, ids)
        return ids.reshape(len(rows), len(layout.names), layout.stack)

    def observations(self, ids: Integers) -> npt.NDArray[Any]:
        """Copy the observations that consist of frames `ids`, int64[n, stack]."""
        return self.layout.join(self._log.take(ids % len(self._log), axis=0))

    def oldest_frame(self, oldest: Rows) -> int:
        """Find the first frame that is still needed, given the oldest row kept (one record, or none)."""
        if len(oldest) == 0:
            return self.next_frame
        return min(int(oldest[name].min()) for name in self.layout.names)

    def segments(self, oldest_frame: int) -> list[Bytes]:
        """Return the frames, oldest first, in two views, uint8[n, frame_bytes]: a log wraps around."""
        first = oldest_frame % len(self._log)
        count = min(self.next_frame - oldest_frame, len(self._log) - first)
        return [self._log[first : first + count], self._log[: self.next_frame - oldest_frame - count]]

    def restored(self, next_frame: int, count: int) -> "FrameLog":
        """Make a log alike with its own memory, for `count` frames that are to be read into `segments`."""
        log = copy.copy(self)
        log.forget_previous()
        log.next_frame = next_frame
        length = max(len(self._log), count + self._room_for_rows_at_once)
        log._log = np.zeros((length, self._log.shape[1]), np.uint8)
        return log

    def _grow(self, length: int, oldest_frame: int) -> None:
        # Rare: episodes shorter than 64 steps, or rows in no order. For a moment both logs are in memory.
        log = np.zeros((length, self._log.shape[1]), np.uint8)
        frames = np.arange(oldest_frame, self.next_frame)
        for some in np.array_split(frames, 1 + len(frames) // 1024):
            log[some % length] = self._log[some % len(self._log)]
        self._log = log


class FrameStore:
    """Puts frame numbers in the place of observations, and back.

    Attributes:
        fields: The fields of the rows that are stored; a compressed one holds int64[stack] frame numbers.
        logs: One for each observation that is compressed.
        compressed: The names of these, and of their next ones if they share the frames.
    """

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

    def number(self, rows: Rows, oldest: Rows) -> Rows:
        """Store the frames of at most ROWS_AT_ONCE rows.

        Args:
            rows: Records with the observations in full.
            oldest: The oldest row that is kept, as stored: one record, or none.

        Returns:
            Records to store.
        """
        stored = np.zeros(len(rows), self.fields.dtype)
        for log in self.logs:
            ids = log.number(rows, log.oldest_frame(oldest))
            for i, name in enumerate(log.layout.names):
                stored[name] = ids[:, i]
        for name in self.fields.fields.keys() - self.compressed:
            stored[name] = rows[name]
        return stored

    def restore(self, batch: Batch, out: Out, threads: int = 1) -> Batch:
        """Put the observations in the place of their frames' numbers, in the caller's arrays if there are."""
        for log in self.logs:
            for name in log.layout.names:
                put(batch, out, **{name: log.observations(batch[name])})
        return batch

    def forget_previous(self) -> None:
        """Let the next row begin anew: the frames of the newest one need not be kept."""
        for log in self.logs:
            log.forget_previous()

    @property
    def layout(self) -> list[list[Any]]:
        """Each log's field names and the axis of its stacks, as JSON: what a file must agree with."""
        return [[*log.layout.names, log.layout.axis] for log in self.logs]

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return sum(log.nbytes for log in self.logs)

    def state(self, oldest: Rows) -> tuple[list[dict[str, int]], Arrays]:
        """Return counters, as JSON, and arrays, given the oldest row kept (one record, or none)."""
        counters: list[dict[str, int]] = []
        arrays: Arrays = {}
        for i, log in enumerate(self.logs):
            oldest_frame = log.oldest_frame(oldest)
            counters.append({"next": log.next_frame, "oldest": oldest_frame})
            arrays[f"frames{i}"] = log.segments(oldest_frame)
            arrays[f"previous{i}"] = [log.previous]
        return counters, arrays

    def from_state(self, counters: Mapping[str, Any], reader: Reader, rows: Sequence[Rows]) -> "FrameStore":
        """Make a store alike from what `state` returned and the rows that name its frames."""
        store = copy.copy(self)
        store.logs = []
        parts = checked_parts(counters, "frames", len(self.logs))
        for i, (log, numbers) in enumerate(zip(self.logs, parts, strict=True)):
            next_frame = checked_count(numbers, "next")
            oldest_frame = checked_count(numbers, "oldest", most=next_frame)
            count = next_frame - oldest_frame
            reader.check(f"frames{i}", (count, log.layout.frame_bytes), np.uint8)
            log = log.restored(next_frame, count)
            reader.read_into(f"frames{i}", log.segments(oldest_frame))
            reader.read_into(f"previous{i}", [log.previous])
            named = [part[name] for part in rows for name in log.layout.names if len(part)]
            for ids in [*named, log.previous[log.previous != NO_FRAME]]:
                if not ((ids >= oldest_frame) & (ids < next_frame)).all():
                    raise Damaged(f"a row names a frame that is not among {oldest_frame} to {next_frame - 1}")
            store.logs.append(log)
        return store
