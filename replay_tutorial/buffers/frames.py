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
from replay_tutorial.buffers.frame_search import empty_memory, number_in_log, remember_log
from replay_tutorial.buffers.gather import Out, in_threads, new_arrays
from replay_tutorial.buffers.jit import Bytes, Integers

RowsKept = Callable[[], Iterable[Rows]]  # copies the rows that are kept, as stored, the oldest first

# A frame is looked for among so many of the newest, fewer in a small buffer: what is found keeps all since.
# The fewest are a frame a step of 64 environments for twelve steps.
YOUNG, LEAST_YOUNG = 2048, 768
ROWS_AT_ONCE = 32


class FrameLog:
    """The frames of one observation, and of its next observation if that is shared.

    Attributes:
        layout: How they make up observations.
        memory: Where they lie, uint8[length, bytes].
    """

    def __init__(self, layout: FrameLayout, capacity: int) -> None:
        """Reserve room for one frame per row and a sixty-fourth more, for the first frames of episodes."""
        self.layout = layout
        self._usual_length = capacity + capacity // 64 + layout.frames_per_row * ROWS_AT_ONCE
        self._young = min(YOUNG, max(LEAST_YOUNG, capacity // 4))
        self.memory = np.zeros((self._usual_length, layout.frame_bytes), np.uint8)
        self._ends = np.zeros(2, np.int64)  # of the frames that are there; those before may be written over
        self._remembered = empty_memory()

    def _plain(self) -> tuple[Any, ...]:
        """Return what kernels take as a `Log`."""
        return self.memory, self._ends, self._young, *self._remembered

    def number(self, observations: Sequence[npt.NDArray[Any]], kept: RowsKept) -> Integers:
        """Number the frames of each field's observations, (n, *shape), in order: int64[n, frames per row]."""
        stacks = [self.layout.split(each) for each in observations]
        ids, done = np.empty((len(stacks[0]), self.layout.frames_per_row), np.int64), 0
        while (done := number_in_log(self._plain(), stacks[0], stacks[-1], done, ids)) < ids.size:
            self._make_room(min([self.oldest_frame(kept()), *ids.flat[:done].tolist()]))
        return ids

    def _make_room(self, oldest_frame: int) -> None:
        # Less room would soon be used up, and the oldest rows be looked through again.
        length, next_frame = len(self.memory), int(self._ends[1])
        needed = next_frame - oldest_frame + self.layout.frames_per_row + ROWS_AT_ONCE + length // 1024
        if needed > length:
            # Rare: many environments, short episodes, or rows in no order, which may need much more. For a
            # moment both logs are in memory.
            length = needed + length // 64 + (needed - self._usual_length) // 3
            log = np.zeros((length, self.layout.frame_bytes), np.uint8)
            frames = np.arange(oldest_frame, next_frame)
            for some in np.array_split(frames, 1 + len(frames) // 1024):
                log[some % length] = self.memory[some % len(self.memory)]
            self.memory = log
        self._ends[0] = oldest_frame

    def take(self, ids: Integers, observations: npt.NDArray[Any]) -> None:
        """Copy the frames `ids`, int64[n, stack], to the observations that consist of them."""
        self.layout.take(self.memory, ids % len(self.memory), observations)

    def oldest_frame(self, kept: Iterable[Rows]) -> int:
        """Find the oldest frame that rows name, given the rows kept, the oldest first.

        Not all are looked at: a row names none of the frames that were too old already when it came.
        """
        oldest_frame, names = int(self._ends[1]), self.layout.names
        for rows in kept:
            oldest_frame = min(oldest_frame, *(int(rows[name].min()) for name in names))
            # A row of n steps names frames from the first of them and from the last; what comes after the row
            # is no older than the first.
            if min(int(rows[name].max()) for name in names) + 1 - self._young >= oldest_frame:
                break
        return oldest_frame

    def state(self, kept: Iterable[Rows]) -> tuple[dict[str, int], list[Bytes]]:
        """Return counters, as JSON, and the frames that rows name, given the rows kept, the oldest first."""
        oldest_frame = self.oldest_frame(kept)
        return {"next": int(self._ends[1]), "oldest": oldest_frame}, self._segments(oldest_frame)

    def from_state(self, counters: dict[str, Any], reader: Reader, name: str) -> "FrameLog":
        """Make a log alike, with its own memory, from what `state` returned; this one stays as it is."""
        log = copy.copy(self)
        next_frame = checked_count(counters, "next")
        oldest_frame = checked_count(counters, "oldest", most=next_frame)
        count = next_frame - oldest_frame
        reader.check(name, (count, self.layout.frame_bytes), np.uint8)
        log.memory = np.zeros((max(len(self.memory), count), self.layout.frame_bytes), np.uint8)
        log._ends, log._remembered = np.array([oldest_frame, next_frame]), empty_memory()
        reader.read_into(name, log._segments(oldest_frame))
        remember_log(log._plain())
        return log

    def check(self, ids: Integers) -> None:
        """Refuse numbers of frames that are not there."""
        first, end = self._ends
        if not ((ids >= first) & (ids < end)).all():
            raise Damaged(f"a row names a frame that is not among {first} to {end - 1}")

    def _segments(self, oldest_frame: int) -> list[Bytes]:
        """Return the frames, oldest first, in two views, uint8[n, frame_bytes]: a log wraps around."""
        first, stored = oldest_frame % len(self.memory), int(self._ends[1]) - oldest_frame
        count = min(stored, len(self.memory) - first)
        return [self.memory[first : first + count], self.memory[: stored - count]]


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
        """Prepare a log for every observation named."""
        layouts = frame_layouts(fields, next_of, stack_compress)
        self.logs: list[FrameLog] = [FrameLog(layout, capacity) for layout in layouts]
        self.fields = with_numbers(fields, layouts)
        self.compressed = {name for layout in layouts for name in layout.names}

    def number(self, count: int, columns: Sequence[Any], kept: RowsKept) -> list[Any]:
        """Store the frames of `count` rows; return the columns with numbers in the place of observations."""
        numbered = dict(zip(self.fields.fields, columns, strict=True))
        for log in self.logs:
            ids = log.number(log.layout.observations(count, numbered), kept)
            numbered |= log.layout.numbers_by_name(ids if count > 1 else ids[0])
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
    def memory(self) -> list[Bytes]:
        """Where the frames lie, of each log."""
        return [log.memory for log in self.logs]

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return sum(log.memory.nbytes for log in self.logs)

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
