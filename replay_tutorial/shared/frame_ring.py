"""A ring of frames that several processes share: a frame is written once, and rows name it by its index.

The frames lie in a shared ring of their own, under the same protocol as rows: stamped, and visible only when
whole. An index is never used again, so a frame that has been replaced is found out when it is read. A writer
remembers which frames it added last, by a hash; whether one is really there is decided by comparing its bytes
in the ring.

Left out: a frame that another process has added. Each writer shares frames with its own rows only.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.frame_layout import FrameLayout
from replay_tutorial.buffers.frame_search import Hashes, IntegerRows, empty_memory, number_frames, same_bytes
from replay_tutorial.buffers.jit import Flags, Floats, Integers, Words, jitable, kernel, types
from replay_tutorial.shared.atomics import fence_acquire, fetch_add, load_acquire
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import NEXT_INDEX, published_stamp, read_row, write_rows
from replay_tutorial.shared.registry import WriterRegistry
from replay_tutorial.shared.shared_ring import MAX_OFFERS, SharedRing, ring_specs

# Frames beyond those that rows need on average: some to spare, and what 64 environments add before a frame
# comes again that a row of one of them showed five steps ago, from the first step on.
SPARE = 256
ROOM = SPARE + 1024
# Rows whose frames are numbered together.
ROWS_AT_ONCE = 32

StackWords = Annotated[npt.NDArray[np.uint64], types.uint64[:, :, ::1]]  # [rows, frames of a row, words]


class FrameArrays(NamedTuple):
    """A ring of frames in shared memory, and a writer's own memory of the frames that it added last."""

    counters: Integers
    stamps: Integers  # [capacity]
    frames: Words
    masses: Floats  # [capacity], of no use here
    young: int  # among how many of the newest frames one is looked for
    hashes: Hashes  # [REMEMBERED]
    remembered: Integers  # [REMEMBERED], the index of the frame with this hash, NO_INDEX for none
    owner: int  # the writer


@jitable
def is_in_ring(ring: FrameArrays, index: int, frame: Any) -> bool:
    """Return whether a young frame has an index, and had it all the while of the comparison."""
    slot = index % ring.stamps.shape[0]
    if load_acquire(ring.counters, NEXT_INDEX) - index > ring.young:
        return False
    if load_acquire(ring.stamps, slot) != published_stamp(index):
        return False
    same = same_bytes(ring.frames[slot].view(np.uint8), frame.view(np.uint8))
    fence_acquire()
    return same and load_acquire(ring.stamps, slot) == published_stamp(index)


@jitable
def append_to_ring(ring: FrameArrays, frame: Any) -> tuple[int, bool]:
    """Append a frame to a ring, unless another writer holds the slot."""
    index, words = fetch_add(ring.counters, NEXT_INDEX, 1), frame.reshape(1, len(frame))
    stamps, masses = ring.stamps, ring.masses
    return index, write_rows(stamps, ring.frames, masses, words, masses[:1], index, 0, ring.owner) == 1


@kernel
def number_in_ring(
    plain: Annotated[tuple[Any, ...], FrameArrays],
    observations: StackWords,
    next_observations: StackWords,
    start: int,
    indexes: IntegerRows,
) -> int:
    """Number the frames of rows in a ring; see `number_frames`.

    Two threads may spoil each other's memory of frames; what it says is compared with the ring.
    """
    ring = FrameArrays(*plain)
    return number_frames(ring, is_in_ring, append_to_ring, observations, next_observations, start, indexes)


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
        remembered: int64[n], the indexes of frames that this process added last.
    """

    def __init__(
        self, arrays: SharedArrays, writers: WriterRegistry, prefix: str, layout: FrameLayout, rows: int
    ) -> None:
        """Look into arrays that `frame_specs` described; remembers no frame yet."""
        self.layout = layout
        self.ring = SharedRing(arrays, record_of(layout), writers, prefix)
        spare = self.ring.capacity - rows
        young = max(spare // 4, spare - rows * 3 // 16 - SPARE)
        ring, (hashes, self.remembered) = self.ring, empty_memory()
        self._plain = (ring.counters, ring.stamps, ring.rows, ring.masses, young, hashes, self.remembered)

    def number(self, observations: Sequence[npt.NDArray[np.generic]]) -> Integers:
        """Write the new frames of rows, given the observations of each field, (n, *shape).

        Returns:
            The indexes of all, int64[n, frames per row].
        """
        ring, stacks = self.ring, [self._words(each) for each in observations]
        plain = (*self._plain, ring.writers.mine())
        indexes = np.empty((len(stacks[0]), self.layout.frames_per_row), np.int64)
        start = offers = 0
        while True:
            end = number_in_ring(plain, stacks[0], stacks[-1], start, indexes)
            if end == indexes.size:
                return indexes
            # The frame gets another slot; that of a dead holder is free from the next lap on.
            ring.writers.release_if_dead(ring.stamps, int(indexes.reshape(-1)[end]) % ring.capacity)
            offers = offers + 1 if end == start else 1
            start = end
            if offers == MAX_OFFERS:  # its row will name a frame that never was, and so count as replaced
                start, offers = end + 1, 0

    def read(self, indexes: Integers, places: Integers, copies: Words, gone: Flags) -> None:
        """Copy the frames of rows, int64[n, stack], to their places; mark rows that lack one in `gone`."""
        read_frames(self.ring.stamps, self.ring.rows, np.ascontiguousarray(indexes), places, copies, gone)

    def empty_copies(self, count: int, out: npt.NDArray[Any] | None = None) -> Words:
        """Make room for the frames of observations, uint64[count, stack, words].

        It is the caller's array `out`, if the frames lie one after the other in it.
        """
        shape = (count, self.layout.stack, word_count(self.layout))
        if out is None or self.layout.axis or self.layout.frame_bytes % 8 or out.ctypes.data % 8:
            return np.empty(shape, np.uint64)
        return out.reshape(-1).view(np.uint64).reshape(shape)

    def join(self, copies: Words) -> npt.NDArray[np.generic]:
        """Put observations together from copied frames."""
        return self.layout.join(copies.view(np.uint8))

    def _words(self, observations: npt.NDArray[np.generic]) -> StackWords:
        frames = self.layout.split(observations)
        if self.layout.frame_bytes % 8 == 0:
            return np.require(frames.view(np.uint64), requirements=["C", "A", "W"])  # as the kernel wants it
        words = np.zeros((*frames.shape[:2], word_count(self.layout)), np.uint64)
        words.view(np.uint8)[..., : self.layout.frame_bytes] = frames
        return words
