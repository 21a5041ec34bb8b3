"""Frame search: number frames, and store only those that are new.

The frames that were added last are remembered by a hash. It says which frame may be the same one, and only
with that one are bytes compared: two frames with the same hash are rare, and do no harm. Frames are stored in
a log here, and in a ring of many processes in `shared`.

Left out: how much of a log is kept (`frames`).
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Bytes, Integers, int64, jitable, kernel, types, uint64

# Frames that can be remembered: each in one of two places, the older gives way.
REMEMBERED_BITS = 14
REMEMBERED = 1 << REMEMBERED_BITS
NO_FRAME = -1

Frame = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 1, "C", readonly=True)]
# [rows, frames of an observation, bytes]
Stacks = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 3, "C", readonly=True)]
Hashes = Annotated[npt.NDArray[np.uint64], types.uint64[::1]]
IntegerRows = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]


class Log(NamedTuple):
    """Frames of one process: frame i lies at i % length."""

    frames: Bytes  # [length, bytes]
    ends: Integers  # [2], the oldest frame that has not been written over, and the next new one
    young: int  # among how many of the newest frames one is looked for
    hashes: Hashes  # [REMEMBERED]
    remembered: Integers  # [REMEMBERED], the number of the frame with this hash, NO_FRAME for none


@kernel
def hash_of(frame: Frame) -> np.uint64:
    """Hash a frame: multiply the halves of each word, each mixed with numbers of its own, and sum up."""
    prime = uint64(0x9E3779B97F4A7C15)
    whole, mixed, low_half = len(frame) // 8 * 8, uint64(0), uint64(0xFFFFFFFF)
    words = frame[:whole].view(np.uint64)
    for i in range(len(words)):
        word = words[i] ^ (uint64(i + 1) * prime)
        mixed += (word & low_half) * (word >> uint64(32))
    for i in range(whole, len(frame)):
        mixed = (mixed ^ uint64(frame[i])) * prime
    return (mixed ^ (mixed >> uint64(29))) * prime


@kernel
def same_bytes(left: Frame, right: Frame) -> bool:
    """Compare without stopping early: a loop without a way out is compiled to vector instructions."""
    whole, difference = len(left) // 8 * 8, uint64(0)
    left_words, right_words = left[:whole].view(np.uint64), right[:whole].view(np.uint64)
    for i in range(len(left_words)):
        difference |= left_words[i] ^ right_words[i]
    for i in range(whole, len(left)):
        difference |= uint64(left[i] ^ right[i])
    return difference == uint64(0)


@jitable
def number_frames(
    store: Any,
    has: Callable[..., bool],
    append: Callable[..., tuple[int, bool]],
    observations: Any,
    next_observations: Any,
    start: int,
    numbers: IntegerRows,
) -> int:
    """Find the number of each frame of some rows, or append the frame to the store.

    Args:
        store: Where frames lie; its `hashes` and `remembered` say which were appended last.
        has: Whether a frame has a number, may be found under it, and has the same bytes.
        append: Appends a frame; returns the number it gets, and whether there was room.
        observations: Frames of the rows, [rows, frames of an observation, bytes or words].
        next_observations: Those that follow in each row; of no matter if a row names no more than the first.
        start: Where to begin: counts the frames of all rows.
        numbers: int64[rows, frames of a row], where the numbers go.

    Returns:
        The frame for which there was no room, or how many there are.
    """
    stack, per_row = observations.shape[1], numbers.shape[1]
    for frame in range(start, numbers.size):
        row, i = frame // per_row, frame % per_row
        new = observations[row, i] if i < stack else next_observations[row, i - stack]
        code = hash_of(new.view(np.uint8))
        found = NO_FRAME
        for place in (place_of(code), place_of(code) ^ 1):
            number = store.remembered[place]
            if found == NO_FRAME and store.hashes[place] == code and has(store, number, new):
                found = number
        if found == NO_FRAME:
            found, appended = append(store, new)
            numbers[row, i] = found
            if not appended:
                return frame
            remember(store, code, found)
        numbers[row, i] = found
    return numbers.size


@jitable
def place_of(code: np.uint64) -> int:
    """Return the first of the two places of a hash; the other is its neighbour."""
    return int64(code >> uint64(64 - REMEMBERED_BITS))


@jitable
def remember(store: Any, code: np.uint64, number: int) -> None:
    """Put a frame in the place of the older of two."""
    place = place_of(code)
    if store.remembered[place] > store.remembered[place ^ 1]:
        place ^= 1
    store.hashes[place], store.remembered[place] = code, number


@jitable
def is_in_log(log: Log, number: int, frame: Frame) -> bool:
    """Return whether a young frame of a log has these bytes."""
    oldest = max(log.ends[0], log.ends[1] - log.young)
    return number >= oldest and same_bytes(log.frames[number % len(log.frames)], frame)


@jitable
def append_to_log(log: Log, frame: Frame) -> tuple[int, bool]:
    """Append a frame to a log, unless it is full."""
    number = log.ends[1]
    if number - log.ends[0] == len(log.frames):
        return number, False
    for byte in range(len(frame)):  # compiled to memcpy; assigning the frame takes 14 times as long
        log.frames[number % len(log.frames), byte] = frame[byte]
    log.ends[1] = number + 1
    return number, True


PlainLog = Annotated[tuple[Any, ...], Log]


@kernel
def number_in_log(
    plain: PlainLog, observations: Stacks, next_observations: Stacks, start: int, numbers: IntegerRows
) -> int:
    """Number the frames of rows in a log; see `number_frames`."""
    log = Log(*plain)
    return number_frames(log, is_in_log, append_to_log, observations, next_observations, start, numbers)


@kernel
def remember_log(plain: PlainLog) -> None:
    """Remember the young frames of a log."""
    log = Log(*plain)
    for number in range(max(log.ends[0], log.ends[1] - log.young), log.ends[1]):
        remember(log, hash_of(log.frames[number % len(log.frames)]), number)


def empty_memory() -> tuple[Hashes, Integers]:
    """Make `hashes` and `remembered` of a process that has added no frame."""
    return np.zeros(REMEMBERED, np.uint64), np.full(REMEMBERED, NO_FRAME)
