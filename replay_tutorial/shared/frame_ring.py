"""A ring of frames that several processes share: a frame is written once, and rows name it by its index.

The frames lie in a shared ring of their own, under the same protocol as rows: stamped, and visible only when
whole. An index is never used again, so a frame that has been replaced is found out when it is read. A writer
remembers which frames it added last, by a hash; whether one is really there is decided by comparing its bytes
in the ring.

Left out: a frame that another process has added. Each writer shares frames with its own rows only.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.frame_layout import FrameLayout
from replay_tutorial.buffers.jit import Flags, Floats, Integers, Words, kernel, types, uint64
from replay_tutorial.shared.atomics import fence_acquire, fetch_add, load_acquire
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import NEXT_INDEX, NO_INDEX, published_stamp, read_row, write_rows
from replay_tutorial.shared.shared_ring import MAX_OFFERS, SharedRing, ring_specs

# Frames that a writer can remember: each in one of two places, the older gives way.
REMEMBERED_BITS = 14
REMEMBERED = 1 << REMEMBERED_BITS
# Frames beyond those that rows need on average: some to spare, and what 64 environments add before a frame
# comes again that a row of one of them showed five steps ago, from the first step on.
SPARE = 256
ROOM = SPARE + 1024
# Rows whose frames are numbered together.
ROWS_AT_ONCE = 32

Hashes = Annotated[npt.NDArray[np.uint64], types.uint64[::1]]
IntegerRows = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]
StackWords = Annotated[npt.NDArray[np.uint64], types.uint64[:, :, ::1]]  # [rows, frames of a row, words]


class FrameArrays(NamedTuple):
    """A ring of frames in shared memory, and a writer's own memory of the frames that it added last."""

    counters: Integers
    stamps: Integers  # [capacity]
    frames: Words
    masses: Floats  # [capacity], of no use here
    hashes: Hashes  # [REMEMBERED]
    remembered: Integers  # [REMEMBERED], the index of the frame with this hash, NO_INDEX for none


@kernel
def hash_of(frames: Words, i: int) -> np.uint64:
    """Hash a frame, in four chains at once: none waits for the multiplications of another."""
    prime = uint64(0x9E3779B97F4A7C15)
    a, b, c, d = uint64(1), uint64(2), uint64(3), uint64(4)
    whole = frames.shape[1] // 4 * 4
    for word in range(0, whole, 4):
        a = (a ^ frames[i, word]) * prime
        b = (b ^ frames[i, word + 1]) * prime
        c = (c ^ frames[i, word + 2]) * prime
        d = (d ^ frames[i, word + 3]) * prime
        a ^= a >> uint64(29)  # a product's low bits know nothing of its factors' high ones
        b ^= b >> uint64(29)
        c ^= c >> uint64(29)
        d ^= d >> uint64(29)
    for word in range(whole, frames.shape[1]):
        a = (a ^ frames[i, word]) * prime
        a ^= a >> uint64(29)
    for other in (b, c, d):
        a = (a ^ other) * prime
        a ^= a >> uint64(29)
    return a * prime


@kernel
def is_there(stamps: Integers, frames: Words, index: int, new_frames: Words, i: int) -> bool:
    """Return whether a frame has an index, and had it all the while of the comparison."""
    slot = index % stamps.shape[0]
    if load_acquire(stamps, slot) != published_stamp(index):
        return False
    difference = uint64(0)
    for word in range(frames.shape[1]):  # without a way out, so that it is compiled to vector instructions
        difference |= frames[slot, word] ^ new_frames[i, word]
    fence_acquire()
    return difference == uint64(0) and load_acquire(stamps, slot) == published_stamp(index)


@kernel
def number_frames(
    plain: Annotated[tuple[Any, ...], FrameArrays],
    new_frames: Words,
    start: int,
    young: int,
    owner: int,
    indexes: Integers,
) -> int:
    """Find or add frames from `start` on, and write their indexes into `indexes`.

    Returns the first whose slot another writer holds, or their number. Two threads may spoil each other's
    memory of frames; what it says is compared with the ring.
    """
    counters, stamps, frames, masses, hashes, remembered = FrameArrays(*plain)
    no_masses = np.zeros(1)
    for i in range(start, new_frames.shape[0]):
        code = hash_of(new_frames, i)
        place = np.int64(code >> uint64(64 - REMEMBERED_BITS))
        found = NO_INDEX
        for either in (place, place ^ 1):
            index = remembered[either]
            if (
                found == NO_INDEX
                and hashes[either] == code
                and load_acquire(counters, NEXT_INDEX) - index <= young
                and is_there(stamps, frames, index, new_frames, i)
            ):
                found = index
        if found == NO_INDEX:
            found = fetch_add(counters, NEXT_INDEX, 1)
            indexes[i] = found  # the caller reads which slot it was
            if write_rows(stamps, frames, masses, new_frames[i : i + 1], no_masses, found, 0, owner) == 0:
                return i
            if remembered[place] > remembered[place ^ 1]:
                place ^= 1
            hashes[place], remembered[place] = code, found
        indexes[i] = found
    return new_frames.shape[0]


@kernel
def read_frames(
    stamps: Integers, frames: Words, indexes: IntegerRows, places: Integers, copies: StackWords, gone: Flags
) -> None:
    """Copy the frames that rows name to the rows' places; mark a place in `gone` if a frame is not there."""
    for i in range(indexes.shape[0]):
        place = places[i]
        for k in range(indexes.shape[1]):
            index = indexes[i, k]
            if gone[place]:
                break
            if index < 0 or read_row(stamps, frames, index % stamps.shape[0], 0, copies[place], k) != index:
                gone[place] = True


def word_count(layout: FrameLayout) -> int:
    """Count the words of a frame; the last one is filled up with zeros."""
    return -(-layout.frame_bytes // 8)


def record_of(layout: FrameLayout) -> np.dtype[np.void]:
    """Describe a frame as a ring keeps it."""
    return np.dtype([("words", np.uint64, (word_count(layout),))])


def frame_specs(prefix: str, layout: FrameLayout, rows: int, frames_per_row: float) -> Specs:
    """Describe the shared arrays for the frames of a number of rows."""
    capacity = int(rows * frames_per_row) + ROWS_AT_ONCE * layout.frames_per_row + ROOM
    return ring_specs(capacity, record_of(layout), prefix)


class FrameRing:
    """The frames of one observation, and of its next observation if that is shared.

    A frame is named again only while it is young, so that it outlives the row that names it. With c frames
    for n rows, young are the last (c - n) / 4, in a small ring more: all but 1.19 n + SPARE. So every row
    is there in full as long as no more frames are added with n rows than are left of c.

    Attributes:
        layout: How frames make up observations.
        ring: The ring that they lie in.
        remembered: int64[REMEMBERED], the indexes of frames that this process added last.
    """

    def __init__(self, arrays: SharedArrays, prefix: str, layout: FrameLayout, rows: int) -> None:
        """Look into arrays that `frame_specs` described; remembers no frame yet."""
        self.layout = layout
        self.ring = SharedRing(arrays, record_of(layout), prefix)
        spare = self.ring.capacity - rows
        self._young = max(spare // 4, spare - rows * 3 // 16 - SPARE)
        self.remembered = np.full(REMEMBERED, NO_INDEX)
        hashes, ring = np.zeros(REMEMBERED, np.uint64), self.ring
        self._plain = tuple(
            FrameArrays(ring.counters, ring.stamps, ring.rows, ring.masses, hashes, self.remembered)
        )

    def number(self, observations: npt.NDArray[np.generic]) -> Integers:
        """Write the new frames of observations, (n, *shape); return the indexes of all, int64[n, stack]."""
        ring, new_frames = self.ring, self._words(observations)
        owner, indexes = ring.owners.mine(), np.empty(len(new_frames), np.int64)
        start = offers = 0
        while True:
            end = number_frames(self._plain, new_frames, start, self._young, owner, indexes)
            if end == len(new_frames):
                return indexes.reshape(len(observations), -1)
            # The frame gets another slot; that of a dead holder is free from the next lap on.
            ring.owners.release_if_dead(int(indexes[end]) % ring.capacity)
            offers = offers + 1 if end == start else 1
            start = end
            if offers == MAX_OFFERS:  # its row will name a frame that never was, and so count as replaced
                start, offers = end + 1, 0

    def read(self, indexes: Integers, places: Integers, copies: Words, gone: Flags) -> None:
        """Copy the frames of rows, int64[n, stack], to their places; mark rows that lack one in `gone`."""
        read_frames(self.ring.stamps, self.ring.rows, np.ascontiguousarray(indexes), places, copies, gone)

    def empty_copies(self, count: int, out: npt.NDArray[Any] | None = None) -> Words:
        """Make room for the frames of observations: uint64[count, stack, words], or take `out` for it.

        Args:
            count: How many observations.
            out: The caller's array for them, taken if the frames lie one after the other in it.

        Returns:
            The room.
        """
        shape = (count, self.layout.stack, word_count(self.layout))
        if out is not None and not self.layout.axis and self.layout.frame_bytes % 8 == 0 and is_in_words(out):
            return out.reshape(-1).view(np.uint64).reshape(shape)
        return np.empty(shape, np.uint64)

    def join(self, copies: Words) -> npt.NDArray[np.generic]:
        """Put observations together from copied frames."""
        return self.layout.join(copies.view(np.uint8))

    def _words(self, observations: npt.NDArray[np.generic]) -> Words:
        frames = self.layout.split(observations).reshape(-1, self.layout.frame_bytes)
        if self.layout.frame_bytes % 8 == 0:
            return np.require(frames.view(np.uint64), requirements=["C", "A", "W"])  # as the kernel wants it
        words = np.zeros((len(frames), word_count(self.layout)), np.uint64)
        words.view(np.uint8)[:, : self.layout.frame_bytes] = frames
        return words


def is_in_words(array: npt.NDArray[Any]) -> bool:
    """Return whether an array begins where a word can."""
    return array.__array_interface__["data"][0] % 8 == 0
