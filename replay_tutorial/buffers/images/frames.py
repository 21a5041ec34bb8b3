"""Frame storage: a frame that occurs in several observations is stored once.

The next observation of a row is the observation of the following row, and a stack of four Atari frames shares
three of them with the next stack. Frames are therefore numbered and appended to a log, and a row stores frame
numbers. One million transitions of 4 x 84 x 84 uint8, with next observations, take 7.3 GB and not 56.5 GB.

    log   8 9 2 3 4 5 6 7      capacity 8; frame 10 may overwrite frame 2 once no row refers to it

Each new frame is looked up among the most recent frames, which may come from several environments in turn,
and compared byte by byte. The caller doesn't have to mark anything: the end of an episode, the wrap-around,
or transitions in arbitrary order only make the log grow faster. Older frames are not searched, because a row
that refers to an old frame would keep all later frames in memory.

Built in chapter 02, *Episodes and n-step returns*.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import Arrays, Damaged, Reader, checked_count, checked_parts
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.fields import Fields, Rows
from replay_tutorial.buffers.gather import new_arrays, value_type
from replay_tutorial.buffers.images.frame_layout import DedupeFrames, FrameLayout, frame_layouts, with_numbers
from replay_tutorial.buffers.images.frame_search import empty_index, index_log, number_in_log
from replay_tutorial.buffers.rows import check_memory
from replay_tutorial.buffers.runtime.jit import Bytes, Integers

RowsKept = Callable[[], Iterable[Rows]]  # returns copies of the stored rows, oldest first

# The number of newest frames that are searched: smaller for a small buffer, because a row that refers to a
# frame keeps all later frames. The minimum covers 12 steps of 64 environments with one new frame each.
SEARCHED, MIN_SEARCHED = 2048, 768
ROWS_AT_ONCE = 32


def usual_length(layout: FrameLayout, capacity: int) -> int:
    """Return the number of frames to reserve: one per row, and 1/64 more for the first frames of episodes."""
    return capacity + capacity // 64 + layout.frames_per_row * ROWS_AT_ONCE


class FrameLog:
    """The frames of one observation, and of its next observation if they share frames.

    Attributes:
        layout: How observations consist of frames.
        memory: The frames, uint8[length, bytes].
    """

    def __init__(self, layout: FrameLayout, capacity: int) -> None:
        """Reserve memory for the usual number of frames."""
        self.layout = layout
        self._usual_length = usual_length(layout, capacity)
        self._searched = min(SEARCHED, max(MIN_SEARCHED, capacity // 4))
        self.memory = np.zeros((self._usual_length, layout.frame_bytes), np.uint8)
        self._ends = np.zeros(2, np.int64)  # first frame that must be kept, next new frame
        self._index = empty_index()
        self.late = 0  # frames added while an n-step row was pending, before rows with later first steps

    @property
    def frames_added(self) -> int:
        """Number of frames stored so far, including those that have been overwritten."""
        return int(self._ends[1])

    def _plain(self) -> tuple[Any, ...]:
        """Return the fields of a `Log`, for the kernels."""
        return self.memory, self._ends, self._searched, *self._index

    def number(self, observations: Sequence[npt.NDArray[Any]], kept: RowsKept) -> Integers:
        """Store the frames of observations, one array (n, *shape) per field.

        Return the number of each frame, int64[n, frames per row].
        """
        stacks = [self.layout.split(each) for each in observations]
        ids, done = np.empty((len(stacks[0]), self.layout.frames_per_row), np.int64), 0
        while (done := number_in_log(self._plain(), stacks[0], stacks[-1], done, ids)) < ids.size:
            self._make_room(min([self.oldest_frame(kept()), *ids.flat[:done].tolist()]))
        return ids

    def _make_room(self, oldest_frame: int) -> None:
        # Free more than one frame, because each call has to scan the oldest rows.
        length, next_frame = len(self.memory), int(self._ends[1])
        needed = next_frame - oldest_frame + self.layout.frames_per_row + ROWS_AT_ONCE + length // 1024
        if needed > length:
            # Rare: many environments, short episodes, or rows in random order, which may need much more
            # memory. Both logs exist during the copy.
            length = needed + length // 64 + (needed - self._usual_length) // 3
            log = np.zeros((length, self.layout.frame_bytes), np.uint8)
            frames = np.arange(oldest_frame, next_frame)
            for some in np.array_split(frames, 1 + len(frames) // 1024):
                log[some % length] = self.memory[some % len(self.memory)]
            self.memory = log
        self._ends[0] = oldest_frame

    def take(self, ids: Integers, observations: npt.NDArray[Any]) -> None:
        """Fill observations with the frames `ids`, int64[n, stack]."""
        self.layout.take(self.memory, ids % len(self.memory), observations)

    def oldest_frame(self, kept: Iterable[Rows]) -> int:
        """Return the oldest frame that the rows `kept` (oldest first) refer to.

        Stop as soon as later rows can't refer to an older frame, because new rows only refer to recent
        frames.
        """
        oldest_frame, names = int(self._ends[1]), self.layout.names
        for rows in kept:
            oldest_frame = min(oldest_frame, *(int(rows[name].min()) for name in names))
            # An n-step row refers to frames of its first and last step; frames of later rows are not older
            # than those of its first, unless it is of another environment, and was pending for longer.
            searched = self._searched + self.late
            if min(int(rows[name].max()) for name in names) + 1 - searched >= oldest_frame:
                break
        return oldest_frame

    def state(self, kept: Iterable[Rows]) -> tuple[dict[str, int], list[Bytes]]:
        """Return counters, as JSON, and the frames that the rows `kept` (oldest first) refer to."""
        oldest_frame = self.oldest_frame(kept)
        return {"next": int(self._ends[1]), "oldest": oldest_frame}, self._segments(oldest_frame)

    def from_state(self, counters: dict[str, Any], reader: Reader, name: str) -> "FrameLog":
        """Return a new log with the saved state, without changing this one."""
        log = copy.copy(self)
        next_frame = checked_count(counters, "next")
        oldest_frame = checked_count(counters, "oldest", most=next_frame)
        count = next_frame - oldest_frame
        reader.check(name, (count, self.layout.frame_bytes), np.uint8)
        log.memory = np.zeros((max(len(self.memory), count), self.layout.frame_bytes), np.uint8)
        log._ends, log._index = np.array([oldest_frame, next_frame]), empty_index()
        reader.read_into(name, log._segments(oldest_frame))
        index_log(log._plain())
        return log

    def check(self, ids: Integers) -> None:
        """Raise Damaged if a frame number is not in the log."""
        first, end = self._ends
        if not ((ids >= first) & (ids < end)).all():
            raise Damaged(f"a row refers to a frame outside the range from {first} to {end - 1}")

    def _segments(self, oldest_frame: int) -> list[Bytes]:
        """Return the frames, oldest first, as two views, uint8[n, frame_bytes], split at the wrap-around."""
        first, stored = oldest_frame % len(self.memory), int(self._ends[1]) - oldest_frame
        count = min(stored, len(self.memory) - first)
        return [self.memory[first : first + count], self.memory[: stored - count]]


class FrameStore:
    """Replaces observations with frame numbers, and frame numbers with observations.

    Attributes:
        fields: The fields of stored rows; a compressed field holds int64[stack] frame numbers.
        logs: One log for each compressed observation.
        rows_at_once: Number of rows added at once, before the rows that they replace are released.
    """

    rows_at_once = ROWS_AT_ONCE

    def __init__(
        self, fields: Fields, dedupe_next: tuple[str, ...], dedupe_frames: DedupeFrames, capacity: int
    ) -> None:
        """Create a log for every compressed observation; raise MemoryError if the rows can't fit."""
        layouts = frame_layouts(fields, dedupe_next, dedupe_frames)
        self.fields = with_numbers(fields, layouts)
        frame_bytes = sum(usual_length(layout, capacity) * layout.frame_bytes for layout in layouts)
        check_memory(capacity * self.fields.dtype.itemsize + frame_bytes)
        self.logs: list[FrameLog] = [FrameLog(layout, capacity) for layout in layouts]
        self._types = {
            name: value_type(layout.field.dtype, layout.field.shape)
            for layout in layouts
            for name in layout.names
        }

    def number(self, count: int, columns: Sequence[Any], kept: RowsKept) -> list[Any]:
        """Store the frames of `count` rows; return the columns with frame numbers instead of observations."""
        numbered = dict(zip(self.fields.fields, columns, strict=True))
        for log in self.logs:
            ids = log.number(log.layout.observations(count, numbered), kept)
            numbered |= log.layout.numbers_by_name(ids if count > 1 else ids[0])
        return list(numbered.values())

    def expect_late_rows(self, steps: int) -> None:
        """Allow for rows that are stored up to `steps` steps after later ones of other environments."""
        for log in self.logs:
            log.late = steps * log.layout.frames_per_row

    def check_sharing(self, rows: int) -> None:
        """Warn about each observation of which `rows` rows share hardly any frames."""
        for log in self.logs:
            log.layout.warn_if_hardly_shared(rows, log.frames_added)

    def restore(self, batch: Batch) -> Batch:
        """Replace frame numbers in a batch with observations, and return the batch."""
        made = new_arrays(len(next(iter(batch.values()))), self._types)
        for log in self.logs:
            for name in log.layout.names:
                log.take(batch[name], made[name])
        batch.update(made)
        return batch

    def values_of(self, name: str, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert n stored values of a field to observations, an array of shape (n, *shape)."""
        for log in self.logs:
            if name in log.layout.names:
                made = np.empty((len(stored), *log.layout.field.shape), log.layout.field.dtype)
                log.take(stored, made)
                return made
        return stored

    @property
    def layout(self) -> list[list[Any]]:
        """The field names and stack axis of each log, as JSON; must equal those in a loaded file."""
        return [[*log.layout.names, log.layout.axis] for log in self.logs]

    @property
    def memory(self) -> list[Bytes]:
        """The memory of each log."""
        return [log.memory for log in self.logs]

    def state(self, kept: RowsKept) -> tuple[list[dict[str, int]], Arrays]:
        """Return the counters of the logs, as JSON, and their frames."""
        states = [log.state(kept()) for log in self.logs]
        arrays: Arrays = {f"frames{i}": frames for i, (_, frames) in enumerate(states)}
        return [counters for counters, _ in states], arrays

    def from_state(self, counters: Mapping[str, Any], reader: Reader, rows: Sequence[Rows]) -> "FrameStore":
        """Return a new store with the saved state; `rows` are checked to refer to existing frames."""
        store = copy.copy(self)
        store.logs = []
        parts = checked_parts(counters, "frames", len(self.logs))
        for i, (log, counted) in enumerate(zip(self.logs, parts, strict=True)):
            log = log.from_state(counted, reader, f"frames{i}")
            for ids in [part[name] for part in rows for name in log.layout.names if len(part)]:
                log.check(ids)
            store.logs.append(log)
        return store
