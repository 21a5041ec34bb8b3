"""Frames: store an observation once, although several rows show it.

The next observation of one row is the observation of the row after it, and a stack of four Atari frames shares
three of them with the stack after it. So frames go into a log, each once, numbered from 0, and a row keeps the
numbers. Whether a frame is already there is decided by comparing its bytes, not by trusting the caller: at the
end of an episode, at the seam of the ring, or with transitions in no order at all, the log only grows faster.

Left out: a search through the whole log. A frame is looked for where the preceding row says it should be, and at
the log's end (where it stands if the picture has not moved).

1,000,000 transitions of 4 x 84 x 84 uint8 with their next observations: 7.3 GB instead of 56.5 GB.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Batch, Field, Fields, Rows
from replay_tutorial.buffers.jit import kernel
from replay_tutorial.buffers.n_step import names_of

Ids = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NO_FRAME = -1
ROWS_AT_ONCE = 32  # rows taken in before old frames are given up again: the log has room for all their frames


@kernel("boolean(uint8[::1], uint8[::1])")
def same_bytes(left: Bytes, right: Bytes) -> bool:
    """Compare without stopping early: a loop without a way out is compiled to vector instructions."""
    difference = np.uint8(0)
    for i in range(left.shape[0]):
        difference |= left[i] ^ right[i]
    return difference == 0


@kernel("int64(uint8[:, ::1], int64, uint8[:, :, ::1], int64, int64[::1], int64[:, ::1])")
def number_frames(log: Bytes, next_frame: int, frames: Bytes, stack: int, previous: Ids, ids: Ids) -> int:
    """Number the frames of rows, append to the log those that are new, and give the next frame's number.

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
        names: The fields that it stands for.
        axis: The axis of the observation along which frames are stacked; None if it is one frame.
        stack: Frames in a stack; 1 if the observation is not stacked.
        next_frame: The number that the next new frame will get.
        previous: int64[len(names) * stack], the frames of the newest row; NO_FRAME before there is one.
    """

    def __init__(self, field: Field, names: tuple[str, ...], axis: int | None, capacity: int) -> None:
        """Reserve room for one frame a row and a sixty-fourth more, for the first frames of episodes."""
        self.names = names
        self._field = field
        self.axis = axis
        self.stack = 1 if axis is None else field.shape[axis]
        self._room_for_rows_at_once = len(names) * self.stack * ROWS_AT_ONCE
        self._frame_shape = field.shape if axis is None else (*field.shape[:axis], *field.shape[axis + 1 :])
        frame_bytes = field.dtype.itemsize * int(np.prod(self._frame_shape))
        self._log = np.zeros((capacity + capacity // 64 + self._room_for_rows_at_once, frame_bytes), np.uint8)
        self.next_frame = 0
        self.forget_previous()

    @property
    def nbytes(self) -> int:
        """Bytes reserved for frames."""
        return self._log.nbytes

    def forget_previous(self) -> None:
        """Let the next row begin anew: the frames of the newest one need not be kept."""
        self.previous = np.full(len(self.names) * self.stack, NO_FRAME, np.int64)

    def number(self, rows: Rows, oldest_frame: int) -> Ids:
        """Number the frames of at most ROWS_AT_ONCE rows, in order.

        Args:
            rows: Records with the observations in full.
            oldest_frame: The least number that a row still needs.

        Returns:
            int64[n, len(names), stack].
        """
        needed = self.next_frame - oldest_frame + self._room_for_rows_at_once
        if needed > len(self._log):
            self._grow(needed + len(self._log) // 4, oldest_frame)
        frames = np.concatenate([self._split(rows[name]) for name in self.names], axis=1)
        ids = np.zeros(frames.shape[:2], np.int64)
        self.next_frame = number_frames(self._log, self.next_frame, frames, self.stack, self.previous, ids)
        return ids.reshape(len(rows), len(self.names), self.stack)

    def observations(self, ids: Ids) -> npt.NDArray[Any]:
        """Copy the observations that consist of frames `ids`, int64[n, stack]."""
        frames = self._log.take(ids % len(self._log), axis=0).view(self._field.dtype)
        frames = frames.reshape(*ids.shape, *self._frame_shape)
        return (
            frames[:, 0] if self.axis is None else np.ascontiguousarray(np.moveaxis(frames, 1, 1 + self.axis))
        )

    def segments(self, oldest_frame: int) -> list[Bytes]:
        """Show the frames, oldest first, as two views of shape (n, frame bytes): up to the seam, and after it."""
        first = oldest_frame % len(self._log)
        count = min(self.next_frame - oldest_frame, len(self._log) - first)
        return [self._log[first : first + count], self._log[: self.next_frame - oldest_frame - count]]

    def restored(self, next_frame: int, count: int) -> "FrameLog":
        """Make a log alike with memory of its own, and room for `count` frames that its `segments` are to be filled with."""
        log = copy.copy(self)
        log.forget_previous()
        log.next_frame = next_frame
        length = max(len(self._log), count + self._room_for_rows_at_once)
        log._log = np.zeros((length, self._log.shape[1]), np.uint8)
        return log

    def _split(self, observations: npt.NDArray[Any]) -> Bytes:
        if self.axis is not None:
            observations = np.moveaxis(observations, 1 + self.axis, 1)
        plain = np.ascontiguousarray(observations).reshape(len(observations), self.stack, -1)
        return plain.view(np.uint8)

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
    """

    def __init__(
        self,
        fields: Fields,
        next_of: tuple[str, ...],
        stack_compress: str | Sequence[str] | Mapping[str, int] | None,
        capacity: int,
    ) -> None:
        """Prepare a log for every observation named.

        Raises:
            ValueError: If a field named does not exist.
        """
        axes = stack_axes(fields, stack_compress)
        self.logs: list[FrameLog] = []
        for name in dict.fromkeys((*next_of, *axes)):
            if name.removeprefix("next_") in next_of and name not in next_of:
                continue  # stack_compress names the next observation too, which is in its observation's log
            names = (name, f"next_{name}") if name in next_of else (name,)
            self.logs.append(FrameLog(fields.fields[name], names, axes.get(name), capacity))
        numbers = {name: {"shape": log.stack, "dtype": np.int64} for log in self.logs for name in log.names}
        self.fields = Fields({**fields.env_dict, **numbers})

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
            ids = log.number(rows, oldest_frame(log, oldest))
            for i, name in enumerate(log.names):
                stored[name] = ids[:, i]
        compressed = {name for log in self.logs for name in log.names}
        for name in self.fields.fields.keys() - compressed:
            stored[name] = rows[name]
        return stored

    def restore(self, batch: Batch) -> Batch:
        """Put the observations in the place of their frames' numbers."""
        for log in self.logs:
            for name in log.names:
                batch[name] = log.observations(batch[name])
        return batch


def oldest_frame(log: FrameLog, oldest: Rows) -> int:
    """Find the least frame that is still needed, given the oldest row kept (one record, or none)."""
    if len(oldest) == 0:
        return log.next_frame
    return min(int(oldest[name].min()) for name in log.names)


def with_next(fields: Fields, next_of: tuple[str, ...]) -> Fields:
    """Add the field `next_…` of every observation in `next_of`.

    Raises:
        ValueError: If there is no such observation, or its next one is described in another way.
    """
    env_dict = fields.env_dict
    for name in next_of:
        if name not in env_dict:
            raise ValueError(f"next_of names {name!r}; there are {list(env_dict)}.")
        following = env_dict.setdefault(f"next_{name}", env_dict[name])
        if following != env_dict[name]:
            raise ValueError(
                f"next_of: 'next_{name}' must be like {name!r}, {env_dict[name]}, not {following}."
            )
    return Fields(env_dict)


def stack_axes(
    fields: Fields, stack_compress: str | Sequence[str] | Mapping[str, int] | None
) -> dict[str, int]:
    """Find the axis along which each stacked observation is stacked: the shorter of its first and last, else as told."""
    if stack_compress is None:
        return {}
    told = dict(stack_compress) if isinstance(stack_compress, Mapping) else {}
    axes: dict[str, int] = {}
    for name in told or names_of(
        stack_compress if isinstance(stack_compress, str) else tuple(stack_compress)
    ):
        shape = fields.fields[name].shape if name in fields.fields else ()
        if not shape:
            raise ValueError(
                f"stack_compress names {name!r}, which is no field with an axis; there are {list(fields.fields)}."
            )
        axis = told.get(name, 0 if shape[0] < shape[-1] else len(shape) - 1)
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"stack_compress: {name!r} has the shape {shape}, and so no axis {axis}.")
        axes[name] = axis % len(shape)
    return axes
