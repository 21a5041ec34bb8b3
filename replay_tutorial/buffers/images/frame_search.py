"""Frame deduplication: finds the number of a frame that is already stored, and appends only new frames.

A hash table maps the hashes of recent frames to their numbers. Only a frame with the same hash is compared
byte by byte, so that hash collisions are harmless. Frames are stored in a log here, and in a shared ring in
`shared`.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.runtime.jit import Bytes, Integers, Matrix, int64, jitable, kernel, types, uint64

# Size of the hash table. Each frame has two possible places; a new frame replaces the older entry.
TABLE_BITS = 14
TABLE_SIZE = 1 << TABLE_BITS
NO_FRAME = -1

Frame = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 1, "C", readonly=True)]
# [rows, frames of an observation, bytes]
Stacks = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 3, "C", readonly=True)]
Hashes = Annotated[npt.NDArray[np.uint64], types.uint64[::1]]


class Log(NamedTuple):
    """The frames of one process; frame i is stored at i % length."""

    frames: Bytes  # [length, bytes]
    ends: Integers  # [2], the oldest stored frame, and the next new one
    searched: int  # number of newest frames that are searched
    hashes: Hashes  # [TABLE_SIZE]
    remembered: Integers  # [TABLE_SIZE], the number of the frame with this hash, or NO_FRAME


@kernel
def hash_of(frame: Frame) -> np.uint64:
    """Hash a frame: XOR each word with a multiple of a prime, multiply its halves, and sum the products."""
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
    """Return whether two frames are equal; without an early exit, so that the loop is vectorized."""
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
    numbers: Matrix,
) -> int:
    """Write the number of each frame of some rows; append the frames that are not found to the store.

    Args:
        store: The frame storage, with the hash table `hashes` and `remembered`.
        has: Function (store, number, frame): returns whether frame `number` is stored, may be reused and
            has the same bytes.
        append: Function (store, frame): appends a frame; returns its number, and whether there was space.
        observations: Frames of the rows, [rows, frames of an observation, bytes or words].
        next_observations: Frames of the next observations; ignored if rows have only one observation.
        start: Position of the first frame to process, among the frames of all rows.
        numbers: Output, int64[rows, frames of a row].

    Returns:
        The position of the first frame for which there was no space, or the number of frames.
    """
    stack, per_row = observations.shape[1], numbers.shape[1]
    for frame in range(start, numbers.size):
        row, i = frame // per_row, frame % per_row
        new = observations[row, i] if i < stack else next_observations[row, i - stack]
        code = hash_of(new.view(np.uint8))
        found = NO_FRAME
        for place in (first_place(code), first_place(code) ^ 1):
            number = store.remembered[place]
            if found == NO_FRAME and store.hashes[place] == code and has(store, number, new):
                found = number
        if found == NO_FRAME:
            found, appended = append(store, new)
            numbers[row, i] = found
            if not appended:
                return frame
            add_to_table(store, code, found)
        numbers[row, i] = found
    return numbers.size


@jitable
def first_place(code: np.uint64) -> int:
    """Return the first of a hash's two places in the table; the second is `place ^ 1`."""
    return int64(code >> uint64(64 - TABLE_BITS))


@jitable
def add_to_table(store: Any, code: np.uint64, number: int) -> None:
    """Add a frame to the hash table, in place of the older of two entries."""
    place = first_place(code)
    if store.remembered[place] > store.remembered[place ^ 1]:
        place ^= 1
    store.hashes[place], store.remembered[place] = code, number


@jitable
def is_in_log(log: Log, number: int, frame: Frame) -> bool:
    """Return whether frame `number` is among those searched and has the same bytes as `frame`."""
    oldest = max(log.ends[0], log.ends[1] - log.searched)
    return number >= oldest and same_bytes(log.frames[number % len(log.frames)], frame)


@jitable
def append_to_log(log: Log, frame: Frame) -> tuple[int, bool]:
    """Append a frame unless the log is full; return its number and whether it was appended."""
    number = log.ends[1]
    if number - log.ends[0] == len(log.frames):
        return number, False
    for byte in range(len(frame)):  # compiled to memcpy; a slice assignment takes 14 times as long
        log.frames[number % len(log.frames), byte] = frame[byte]
    log.ends[1] = number + 1
    return number, True


PlainLog = Annotated[tuple[Any, ...], Log]


@kernel
def number_in_log(
    plain: PlainLog, observations: Stacks, next_observations: Stacks, start: int, numbers: Matrix
) -> int:
    """Call `number_frames` for a log."""
    log = Log(*plain)
    return number_frames(log, is_in_log, append_to_log, observations, next_observations, start, numbers)


@kernel
def index_log(plain: PlainLog) -> None:
    """Add the newest frames of a log to its hash table, after loading."""
    log = Log(*plain)
    for number in range(max(log.ends[0], log.ends[1] - log.searched), log.ends[1]):
        add_to_table(log, hash_of(log.frames[number % len(log.frames)]), number)


def empty_index() -> tuple[Hashes, Integers]:
    """Return `hashes` and `remembered` of an empty hash table."""
    return np.zeros(TABLE_SIZE, np.uint64), np.full(TABLE_SIZE, NO_FRAME)
