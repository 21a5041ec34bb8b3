"""The learner's replay when the rows lie in several shards, anywhere.

    links ── totals ──▶ deal: how many rows from which shard ── take ──▶ factors ──▶ one batch
      ▲ └── parcels, two open per shard                                                │
      └────────────── priorities, of some batches at once ◀────────────────────────────┘

A batch is dealt to the shards by their totals, and put together from what they have sent before, so that the
learner does not wait for calls. A shard that is dead or late is left out, and batches are of the same size
without it. The price is age: the rows of a batch were asked for as many batches ago as two parcels are for,
at most.

Left out: inserting, which actors do at the shards.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.apex.context import Sample
from replay_tutorial.cluster.chunk import Chunk
from replay_tutorial.cluster.shards.learner_link import OPEN_PARCELS, LearnerLink, Wish
from replay_tutorial.cluster.shards.shard_batch import Taken, put_together
from replay_tutorial.cluster.shards.shard_files import (
    IsLost,
    ShardCalls,
    add_chunks,
    load_shards,
    save_shards,
)
from replay_tutorial.cluster.shards.weighting import Totals, deal
from replay_tutorial.shared.limiter import SamplesPerInsert

POLL_SECONDS = 0.05  # after which it is looked who is late, or to be asked again
NO_ROWS = Totals(0.0, 0.0, 0, 0)  # of a shard that is left out


class ShardedReplay:
    """What the learner needs of a `Replay`; one thread may sample, and another one update.

    Args:
        shards: How to call each of them.
        limiter: Of the run.
        is_lost: Whether an error says that a call did not get through, not that it was wrong.
        seed: Of the deals.
        batches: For how many batches a parcel is.
        saved: Reads the rows of a replay that was not saved by as many shards.
        clock: Seconds that pass.
    """

    def __init__(
        self,
        shards: Sequence[ShardCalls],
        limiter: SamplesPerInsert,
        is_lost: IsLost,
        seed: np.random.SeedSequence,
        batches: int = 4,
        saved: Callable[[Path], Iterable[Chunk]] = lambda _: (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._shards, self._is_lost = shards, is_lost
        self._links = [LearnerLink(calls, is_lost, self._rng) for calls in shards]
        self._limiter = limiter
        self._batches = batches
        self._saved = saved
        self._clock = clock
        self._lock = threading.Lock()
        self._batch = 0  # batches that were handed over
        self._uniforms = np.zeros(0)  # of the next deal
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []  # priorities to be sent

    @property
    def next_index(self) -> int:
        """An index that no row has had; of a row that is new in the fullest shard it is the next."""
        return len(self._links) * max(link.lives.next_serial for link in self._links)

    @property
    def stale_updates(self) -> int:
        """Priorities dropped because their row had been replaced, or its shard did not answer."""
        return sum(link.stale_updates for link in self._links)

    def sample(
        self, batch_size: int, beta: float, timeout: float, out: Mapping[str, NDArray[Any]] | None = None
    ) -> Sample | None:
        """As `Replay.sample`; counted when it is handed over, so that what got lost doesn't count."""
        deadline = self._clock() + timeout
        if not self._limiter.await_can_sample(batch_size, timeout):
            return None
        while True:
            with self._lock:
                told, taken = self._take(batch_size, beta)
                answers = [call.answer for link in self._links for call in link.open]
            if taken:
                self._limiter.sampled(batch_size)
                lives = [link.lives for link in self._links]
                return put_together(told, taken, lives, beta, out or {})
            left = min(deadline - self._clock(), POLL_SECONDS)
            if left <= 0.0:
                return None
            if answers:
                futures.wait(answers, left, futures.FIRST_COMPLETED)
            else:
                time.sleep(left)

    def update_priorities(self, indexes: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        """Give sampled rows new priorities; they are sent when there are as many as a parcel has rows."""
        with self._lock:
            self._waiting.append((indexes, priorities))
            if len(self._waiting) < self._batches:
                return
            waiting, self._waiting = self._waiting, []
            indexes = np.concatenate([part for part, _ in waiting])
            priorities = np.concatenate([part for _, part in waiting])
            count = len(self._links)
            for shard, link in enumerate(self._links):
                is_own = indexes % count == shard
                link.update(indexes[is_own] // count, priorities[is_own])

    def save(self, path: Path) -> None:
        """Write all rows into files beside `path`, one per shard; one that does not answer is not there.

        Raises:
            OSError: If they can't be written, or no shard answers.
        """
        save_shards(path, self._shards, self._is_lost)

    def load(self, path: Path) -> None:
        """Read the files of any number of shards, or the one of none, into new shards.

        If they were as many, each is as it was; of one without a file, there are no rows. Else the rows are
        added again, with their priorities.

        Raises:
            OSError: If they can't be read, or a shard does not answer.
            ValueError: If they are damaged.
        """
        futures.wait([shard.sample(0, 1, 0.0) for shard in self._shards])  # for their places, however long
        if not load_shards(path, self._shards, self._is_lost):
            add_chunks(self._saved(path), self._shards, self._is_lost)

    def _take(self, batch_size: int, beta: float) -> tuple[list[Totals], list[Taken]]:
        """Go on with all that is under way; take the rows of a batch, none if some of them are still to come.

        Returns:
            The totals by which it was dealt, NO_ROWS of a shard that is left out, and the rows.
        """
        now, oldest = self._clock(), self._batch - OPEN_PARCELS * self._batches
        for link in self._links:
            link.hear(oldest, beta, now)
        self._ask(batch_size, beta, now)
        if any(link.totals is None and link.is_awaited for link in self._links):
            return [], []  # it is about to say what it holds
        if len(self._uniforms) != batch_size:
            self._uniforms = self._rng.random(batch_size)
        present = [link for link in self._links if link.mass > 0.0]
        while present:
            told = [link.totals if link in present and link.totals else NO_ROWS for link in self._links]
            counts = deal(np.array([totals.mass for totals in told]), self._uniforms).tolist()
            dealt = list(zip(range(len(counts)), self._links, counts, strict=True))
            short = [link for _, link, count in dealt if link.rows_left < count]
            if not short:
                self._batch += 1
                self._uniforms = np.zeros(0)  # another batch, other numbers
                parts = [(shard, link.take(count)) for shard, link, count in dealt]
                self._ask(batch_size, beta, now)  # parcels travel while the learner works
                return told, [Taken(shard, *part) for shard, taken in parts for part in taken]
            if any(link.is_awaited for link in short):
                break
            full = [link for link in short if not link.open]
            for link in full:  # they have given all that they may at a time, but their share has grown
                link.drop_oldest()
            if full:
                self._ask(batch_size, beta, now)
                break
            present = [link for link in present if link not in short]
        return [], []

    def _ask(self, batch_size: int, beta: float, now: float) -> None:
        """Ask each shard for its part of some batches, and a row more for each: parts differ by some rows."""
        total = sum(link.mass for link in self._links if link.is_in_time)
        for link in self._links:
            rows = 0
            if total > 0.0:
                rows = min(batch_size, math.ceil(batch_size * link.mass / total) + 1)
            link.ask(Wish(rows, self._batches, beta), self._batch, now)
