"""The counters of a shared buffer, over all processes."""

import time
from typing import TYPE_CHECKING, NamedTuple

from replay_tutorial.shared.protocol import CREATED_AT, DROPPED, PUBLISHED, REJECTED, SAMPLED, STALE
from replay_tutorial.shared.shared_ring import SharedRing

if TYPE_CHECKING:
    from replay_tutorial.shared.shared_frames import SharedFrames


class Statistics(NamedTuple):
    """Counters of a shared buffer, over all processes.

    Attributes:
        rows_added: Rows published, including those abandoned because a newer row was already in their slot.
        rows_sampled: Rows returned by `sample`.
        rows_rejected: Rows drawn again because they, or their frames, were overwritten while being read.
        rows_dropped: Rows not written because stopped processes held every slot that was tried.
        stale_updates: Priority updates dropped because their row had been overwritten.
        writers_alive: Living processes that have added rows.
        writers_lost: Processes that had added rows and were killed, or ended without Python's exit handlers
            (`os._exit`, a crash). Those that returned, raised an exception or called `sys.exit` don't count.
        rows_per_second: Rows published per second since the buffer was created.
        frames_added: Frames written for the observation with the most frames; 0 if none is stored as frames.
    """

    rows_added: int
    rows_sampled: int
    rows_rejected: int
    rows_dropped: int
    stale_updates: int
    writers_alive: int
    writers_lost: int
    rows_per_second: float
    frames_added: int = 0


def statistics_of(ring: SharedRing, frames: "SharedFrames | None") -> Statistics:
    """Return the counters of a ring, the numbers of living and dead writers, and the number of frames."""
    added, sampled, rejected, dropped, stale, created_at = (
        int(ring.counters[i]) for i in (PUBLISHED, SAMPLED, REJECTED, DROPPED, STALE, CREATED_AT)
    )
    alive, lost = ring.writers.count()
    rate = added / max(1e-9, (time.time_ns() - created_at) / 1e9)
    frames_added = frames.added if frames else 0
    return Statistics(added, sampled, rejected, dropped, stale, alive, lost, rate, frames_added)
