"""Frame search: is a frame in the log already?

The newest frames are looked through for one with the same hash, 0.1 µs for 2,048 of them, and bytes are
compared only with that one. Two frames with the same hash are rare, and do no harm: one is stored again.

Left out: where the log comes from, and how much of it is kept (`frames`).
"""

from typing import Annotated

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Integers, int64, kernel, types, uint64

Bytes = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 1, "C", readonly=True)]
Frames = Annotated[npt.NDArray[np.uint8], types.uint8[:, ::1]]  # [frames, bytes]
# [rows, frames of an observation, bytes]
Stacks = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 3, "C", readonly=True)]
Hashes = Annotated[npt.NDArray[np.uint32], types.uint32[::1]]  # that of frame i lies at i % length
IntegerRows = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]


@kernel
def hash_of(frame: Bytes) -> int:
    """Hash a frame: multiply the halves of each word, each mixed with numbers of its own, and sum up."""
    whole, mixed, low_half = len(frame) // 8 * 8, uint64(0), uint64(0xFFFFFFFF)
    words = frame[:whole].view(np.uint64)
    for i in range(len(words)):
        word = words[i] ^ (uint64(i + 1) * uint64(0x9E3779B97F4A7C15))
        mixed += (word & low_half) * (word >> uint64(32))
    for i in range(whole, len(frame)):
        mixed = (mixed ^ uint64(frame[i])) * uint64(0x9E3779B97F4A7C15)
    return int64(mixed >> uint64(32))


@kernel
def same_bytes(left: Bytes, right: Bytes) -> bool:
    """Compare without stopping early: a loop without a way out is compiled to vector instructions."""
    whole, difference = len(left) // 8 * 8, uint64(0)
    left_words, right_words = left[:whole].view(np.uint64), right[:whole].view(np.uint64)
    for i in range(len(left_words)):
        difference |= left_words[i] ^ right_words[i]
    for i in range(whole, len(left)):
        difference |= uint64(left[i] ^ right[i])
    return difference == uint64(0)


@kernel
def frame_with(hashes: Hashes, code: int, next_frame: int) -> int:
    """Find a frame that may have this hash; a negative number if none has."""
    place, narrow = np.int32(-1), np.uint32(code)
    for i in range(len(hashes)):
        place = max(place, np.int32(i) if hashes[i] == narrow else np.int32(-1))
    return -1 if place < 0 else next_frame - 1 - (next_frame - 1 - int64(place)) % len(hashes)


@kernel
def number_frames(
    log: Frames,
    hashes: Hashes,
    starts: Integers,
    next_row: int,
    next_frame: int,
    first_frame: int,
    observations: Stacks,
    next_observations: Stacks,
    row: int,
    ids: IntegerRows,
) -> tuple[int, int]:
    """Number the frames of rows, from `row` on, and append to the log those that are new.

    Returns:
        The row at which the log was full, or the number of rows; and the number of the next frame.
    """
    stack = observations.shape[1]
    while row < ids.shape[0]:
        place, start = (next_row + row) % len(starts), next_frame
        oldest = max(first_frame, starts[place])  # the first frame of the row NEW_ROWS before this one
        for i in range(ids.shape[1]):
            frame = observations[row, i] if i < stack else next_observations[row, i - stack]
            code = hash_of(frame)
            found = frame_with(hashes, code, next_frame)
            if found < oldest or not same_bytes(log[found % len(log)], frame):
                if next_frame - first_frame == len(log):
                    return row, next_frame
                found = next_frame
                for byte in range(
                    len(frame)
                ):  # compiled to memcpy; assigning the frame takes 14 times as long
                    log[found % len(log), byte] = frame[byte]
                hashes[found % len(hashes)] = code
                next_frame += 1
            ids[row, i] = found
        starts[place] = start
        row += 1
    return row, next_frame


@kernel
def hash_frames(log: Frames, hashes: Hashes, first_frame: int, next_frame: int) -> None:
    """Hash the newest frames of a log."""
    for frame in range(max(first_frame, next_frame - len(hashes)), next_frame):
        hashes[frame % len(hashes)] = hash_of(log[frame % len(log)])
