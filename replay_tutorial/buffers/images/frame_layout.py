"""Frame layouts: how observations are split into frames and reassembled, and which observations share frames.

An observation is a single frame or a stack of frames along one axis. If bytes are stacked along the last
axis, the pixels of the frames are interleaved, and kernels convert between the two layouts:

    frames        a0 a1 a2 …    b0 b1 b2 …    c0 c1 c2 …
    their stack   a0 b0 c0 a1 b1 c1 a2 b2 c2 …

If the number of frames is known at compile time, a loop moves 16 to 64 pixels with a few instructions, as
fast as they can be read; otherwise it moves them one by one. The length of a tuple is part of its type, so
common numbers of frames are passed as tuples. The frames are stored by `frames` or, for several
processes, by `shared.shared_frames`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Field, Fields, field_names
from replay_tutorial.buffers.runtime.jit import Bytes, Integers, Matrix, jitable, kernel, types
from replay_tutorial.buffers.runtime.user_warning import warn_user

Stacks = Annotated[npt.NDArray[np.uint8], types.uint8[:, :, ::1]]  # [rows, frames of a stack, bytes]
# [rows, bytes]
ReadOnlyRows = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 2, "C", readonly=True)]
DedupeFrames = str | Sequence[str] | Mapping[str, int] | None

LONGEST_STACK = 16  # frames; a longer axis is not taken to be the stack
CHECKED_AT = 1000  # rows, after which it is checked once whether they share frames
HARDLY_SHARED = 0.9  # of the frames that would be added if stacks (or single observations) shared none


@jitable
def interleave(frames: tuple[Any, ...], stack: Any) -> None:
    """Interleave the pixels of frames."""
    for pixel in range(len(stack) // len(frames)):
        for i in range(len(frames)):
            stack[pixel * len(frames) + i] = frames[i][pixel]


@jitable
def deinterleave(stack: Any, frames: tuple[Any, ...]) -> None:
    """Split interleaved pixels into frames: the inverse of `interleave`."""
    for pixel in range(len(stack) // len(frames)):
        for i in range(len(frames)):
            frames[i][pixel] = stack[pixel * len(frames) + i]


@kernel
def interleave_frames(frames: Bytes, numbers: Matrix, stacks: Bytes) -> None:
    """Interleave the frames of each row, given by `numbers`; frames may be longer than needed."""
    depth = numbers.shape[1]
    for row in range(numbers.shape[0]):
        f, n, stack = frames, numbers[row], stacks[row]
        if depth == 2:
            interleave((f[n[0]], f[n[1]]), stack)
        elif depth == 3:
            interleave((f[n[0]], f[n[1]], f[n[2]]), stack)
        elif depth == 4:
            interleave((f[n[0]], f[n[1]], f[n[2]], f[n[3]]), stack)
        elif depth == 8:
            first = (f[n[0]], f[n[1]], f[n[2]], f[n[3]])
            interleave((*first, f[n[4]], f[n[5]], f[n[6]], f[n[7]]), stack)
        else:
            for i in range(depth):
                frame = f[n[i]]
                for pixel in range(len(stack) // depth):
                    stack[pixel * depth + i] = frame[pixel]


@kernel
def split_stacks(stacks: ReadOnlyRows, frames: Stacks) -> None:
    """Split the stacks of all rows into frames: the inverse of `interleave_frames`."""
    depth = frames.shape[1]
    for row in range(stacks.shape[0]):
        stack, f = stacks[row], frames[row]
        if depth == 2:
            deinterleave(stack, (f[0], f[1]))
        elif depth == 3:
            deinterleave(stack, (f[0], f[1], f[2]))
        elif depth == 4:
            deinterleave(stack, (f[0], f[1], f[2], f[3]))
        elif depth == 8:
            deinterleave(stack, (f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]))
        else:
            for i in range(depth):
                for pixel in range(f.shape[1]):
                    f[i, pixel] = stack[pixel * depth + i]


class FrameLayout:
    """The frames of an observation, and of its next observation if they share frames.

    Attributes:
        names: The fields that consist of these frames.
        field: The first of these fields; the other has the same shape and dtype.
        axis: The axis along which frames are stacked, or None for a single frame.
        stack: Number of frames in an observation; 1 if it is not stacked.
        frame_bytes: Size of a frame in bytes.
    """

    def __init__(self, field: Field, names: tuple[str, ...], axis: int | None) -> None:
        """Describe a field that is stacked along `axis`, or that is a single frame if `axis` is None."""
        self.names = names
        self.field = field
        self.axis = axis
        self.stack = 1 if axis is None else field.shape[axis]
        # Every observation can be viewed as an array of shape (before, stack, after).
        self._before = math.prod(field.shape[: axis or 0])
        self._after = math.prod(field.shape) // (self._before * self.stack)
        self.frame_bytes = field.dtype.itemsize * self._before * self._after
        self._bytes_alternate = self._after * field.dtype.itemsize == 1
        self._places = [  # position of each field's frames among the frames of a row
            (name, (..., slice(i * self.stack, (i + 1) * self.stack))) for i, name in enumerate(names)
        ]

    @property
    def frames_per_row(self) -> int:
        """Number of frames that a row refers to."""
        return len(self.names) * self.stack

    def warn_if_hardly_shared(self, rows: int, frames: int) -> None:
        """Warn if so many frames were added with `rows` rows that compression is of little use."""
        unshared = self.stack if self.stack > 1 else len(self.names)
        if unshared == 1 or frames < HARDLY_SHARED * unshared * rows:
            return
        name, shape = self.names[0], self.field.shape
        axis = f", and check the stack axis: it is axis {self.axis} of the shape {shape}" * (self.stack > 1)
        warn_user(
            f"The frames of {name!r} are hardly shared: {rows:,} transitions added {frames:,} frames, so "
            f"they take {frames * self.frame_bytes / rows:,.0f} bytes per transition instead of about "
            f"{self.frame_bytes:,} ({self.frames_per_row * self.frame_bytes:,} without dedupe_next and "
            "dedupe_frames). Add consecutive steps in their order, with the observations exactly as the "
            f"environment returns them{axis}."
        )

    def observations(self, count: int, columns: Mapping[str, Any]) -> list[npt.NDArray[Any]]:
        """Return the observations of each field, arrays of shape (n, *shape)."""
        shape = (count, *self.field.shape)
        return [np.asarray(columns[name], self.field.dtype).reshape(shape) for name in self.names]

    def numbers_by_name(self, numbers: Integers) -> dict[str, Integers]:
        """Split the frame numbers of rows, int64[..., frames of a row], by field."""
        return {name: numbers[place] for name, place in self._places}

    def split(self, observations: npt.NDArray[Any]) -> Stacks:
        """Split observations, an array of shape (n, *shape), into frames, uint8[n, stack, frame_bytes].

        The result may be a view, and read-only.
        """
        count, plain = len(observations), np.ascontiguousarray(observations)
        if self._before == 1:
            return plain.reshape(count, self.stack, self._after).view(np.uint8)
        frames = np.empty((count, self.stack, self.frame_bytes), np.uint8)
        if self._bytes_alternate:
            split_stacks(plain.reshape(count, self.stack * self.frame_bytes).view(np.uint8), frames)
        else:
            stacks, typed = self._stacks(plain), frames.view(self.field.dtype)
            for i in range(self.stack):
                typed[:, i].reshape(count, self._before, self._after)[...] = stacks[:, :, i]
        return frames

    def join(self, frames: Stacks) -> npt.NDArray[Any]:
        """Reassemble observations: the inverse of `split`. Frames may have padding at the end."""
        count = len(frames)
        if self._before == 1:
            plain = np.ascontiguousarray(frames[:, :, : self.frame_bytes])
            return plain.view(self.field.dtype).reshape(count, *self.field.shape)
        observations = np.empty((count, *self.field.shape), self.field.dtype)
        numbers = np.arange(count * self.stack).reshape(count, self.stack)
        self.take(frames.reshape(count * self.stack, frames.shape[2]), numbers, observations)
        return observations

    def take(self, log: Bytes, numbers: Integers, observations: npt.NDArray[Any]) -> None:
        """Fill observations, (n, *shape) and contiguous, with the frames `numbers`, int64[n, stack]."""
        count = len(numbers)
        if self._before == 1:
            frames = np.ndarray((count, self.stack, self.frame_bytes), np.uint8, observations)
            log.take(numbers, axis=0, out=frames, mode="clip")
        elif self._bytes_alternate:
            interleave_frames(log, numbers, np.ndarray((count, self.field.nbytes), np.uint8, observations))
        else:
            stacks = self._stacks(observations)
            for i in range(self.stack):
                frames = log.take(numbers[:, i], axis=0)[:, : self.frame_bytes]
                stacks[:, :, i] = frames.view(self.field.dtype).reshape(count, self._before, self._after)

    def _stacks(self, observations: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return observations.reshape(len(observations), self._before, self.stack, self._after)


def frame_layouts(
    fields: Fields, dedupe_next: tuple[str, ...], dedupe_frames: DedupeFrames
) -> list[FrameLayout]:
    """Return the layout of every observation that is stored as frames."""
    axes = stack_axes(fields, dedupe_frames)
    layouts: list[FrameLayout] = []
    for name in dict.fromkeys((*dedupe_next, *axes)):
        if name.removeprefix("next_") in dedupe_next and name not in dedupe_next:
            continue  # a next observation in dedupe_frames that already shares its observation's frames
        names = (name, f"next_{name}") if name in dedupe_next else (name,)
        layouts.append(FrameLayout(fields.fields[name], names, axes.get(name)))
    return layouts


def with_numbers(fields: Fields, layouts: Sequence[FrameLayout]) -> Fields:
    """Replace each observation that is stored as frames with a field of frame numbers, int64[stack]."""
    numbers = {
        name: {"shape": layout.stack, "dtype": np.int64} for layout in layouts for name in layout.names
    }
    return Fields({**fields.specs, **numbers})


def with_next(fields: Fields, dedupe_next: tuple[str, ...]) -> Fields:
    """Add a field `next_…` for every observation in `dedupe_next`."""
    specs = fields.specs
    for name in dedupe_next:
        if name.removeprefix("next_") in set(dedupe_next) - {name}:
            raise ValueError(
                f"dedupe_next: {name!r} is the next observation of another field in dedupe_next."
            )
        if name not in specs:
            raise ValueError(f"dedupe_next: there is no field {name!r}; the fields are {list(specs)}.")
        following = specs.setdefault(f"next_{name}", specs[name])
        if following != specs[name]:
            raise ValueError(
                f"dedupe_next: 'next_{name}' must have the same shape and dtype as {name!r}: {specs[name]}, "
                f"not {following}."
            )
    return Fields(specs)


def stack_axes(fields: Fields, dedupe_frames: DedupeFrames) -> dict[str, int]:
    """Return the axis of each stack: as specified, or found by `stack_axis`."""
    if dedupe_frames is None:
        return {}
    specified = dict(dedupe_frames) if isinstance(dedupe_frames, Mapping) else {}
    axes: dict[str, int] = {}
    for name in specified or field_names(dedupe_frames):
        shape = fields.fields[name].shape if name in fields.fields else ()
        if not shape:
            raise ValueError(
                f"dedupe_frames: {name!r} is not a field with at least one axis; "
                f"the fields are {list(fields.fields)}."
            )
        axis = specified[name] if name in specified else stack_axis(name, shape)
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"dedupe_frames: {name!r} has the shape {shape}, which has no axis {axis}.")
        axes[name] = axis % len(shape)
    return axes


def stack_axis(name: str, shape: tuple[int, ...]) -> int:
    """Return which of the first and the last axis is the stack.

    With three axes, it is the shorter one, because the others are the sides of an image. Otherwise, the last
    axis of colour images or of vectors may be as short as a stack. Raise ValueError if both can be the stack,
    as in (4, 64, 64, 3).
    """
    last = len(shape) - 1
    ends = [axis for axis in (0, last) if shape[axis] == min(shape[0], shape[last])]
    if len(shape) != 3:
        ends = [axis for axis in (0, last) if 1 < shape[axis] <= LONGEST_STACK] or ends
    if len(set(ends)) > 1:
        raise ValueError(
            f"dedupe_frames: {name!r} has the shape {shape}, so the frames may be stacked along axis 0, of "
            f"length {shape[0]}, or along axis {last}, of length {shape[last]}. Pass "
            f"dedupe_frames={{{name!r}: 0}} or dedupe_frames={{{name!r}: {last}}}."
        )
    return ends[0]
