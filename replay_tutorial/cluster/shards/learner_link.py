"""The learner's link to one shard: parcels that were asked for, those that have come, and priorities.

Two parcels are open at a time: one is used up while the other travels. The learner must not wait for a shard
that may be dead, so every answer has a time by which it is waited for. A shard that fails, or whose answer is
late, is left out until it answers again; it is asked twice a second whether it does. Parcels that come late
are used if they are not too old.

Left out: how a batch is put together (`sharded_replay`), and what carries the calls.
"""

from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.cluster.shards.shard import Parcel
from replay_tutorial.cluster.shards.shard_files import IsLost, ShardCalls
from replay_tutorial.cluster.shards.shard_lives import ShardLives
from replay_tutorial.cluster.shards.weighting import Totals

PATIENCE_SECONDS = 0.5  # that the learner waits for an answer, before it goes on without the shard
PARCEL_ANSWER_SECONDS = 10.0  # after which an answer won't come any more
ASK_AGAIN_SECONDS = 0.5  # between two calls of a shard that has no rows, or did not answer
OPEN_PARCELS = 2  # asked for, or not used up
OPEN_UPDATES = 16


class Wish(NamedTuple):
    """What a parcel is asked for."""

    rows: int  # for each batch; 0 for the totals only
    batches: int
    beta: float


class ParcelCall(NamedTuple):
    """A parcel on its way."""

    answer: Future[Parcel]
    wish: Wish
    since: float  # seconds of the clock
    batch: int  # that the learner had come to


class Stock:
    """A parcel that has come, used up from its front."""

    def __init__(self, parcel: Parcel, call: ParcelCall, rng: np.random.Generator) -> None:
        self.parcel = parcel
        self.beta = call.wish.beta
        self.batch = call.batch
        # Rows come by slot, and a batch may take fewer than were drawn for it: not always the first of them.
        order = np.arange(len(parcel.records)).reshape(-1, parcel.rows)
        self._order = rng.permuted(order, axis=1).reshape(-1)

    @property
    def rows_left(self) -> int:
        """Rows that are not used."""
        return len(self._order)

    def take(self, count: int) -> NDArray[np.int64]:
        """Use rows up: return the places in the parcel of at most `count`."""
        places, self._order = self._order[:count], self._order[count:]
        return places


class LearnerLink:
    """What the learner knows of a shard.

    Args:
        calls: How to call it.
        is_lost: Whether an error says that a call did not get through, not that it was wrong.
        rng: Mixes the rows of parcels.
    """

    def __init__(self, calls: ShardCalls, is_lost: IsLost, rng: np.random.Generator) -> None:
        self.lives = ShardLives()
        self.totals: Totals | None = None  # None until it is known, and again after a failure
        self.is_in_time = True  # whether it is waited for
        self.stale_updates = 0
        self.open: list[ParcelCall] = []
        self._calls, self._is_lost, self._rng = calls, is_lost, rng
        self._stock: deque[Stock] = deque()
        self._updates: deque[tuple[Future[int], int]] = deque()  # and how many priorities they carry
        self._ask_again = 0.0

    @property
    def mass(self) -> float:
        """The total of the masses of its rows, as told last; 0.0 if none is known."""
        return 0.0 if self.totals is None else self.totals.mass

    @property
    def rows_left(self) -> int:
        """Rows that have come and are not used."""
        return sum(stock.rows_left for stock in self._stock)

    @property
    def is_awaited(self) -> bool:
        """Whether an answer is on its way that is worth waiting for."""
        return bool(self.open) and self.is_in_time

    def ask(self, wish: Wish, batch: int, now: float) -> None:
        """Ask for parcels, as many as may be open; only for the totals while there is nothing to draw."""
        if wish.rows == 0 or self.mass == 0.0:
            if not self.open and now >= self._ask_again:
                self._ask(wish._replace(rows=0), batch, now)
        elif self.is_in_time:
            while len(self.open) + len(self._stock) < OPEN_PARCELS:
                self._ask(wish, batch, now)

    def hear(self, oldest_batch: int, beta: float, now: float) -> None:
        """Take in what has come, and drop parcels asked for before a batch, or for another beta.

        Raises:
            Exception: What the shard failed with.
        """
        for call in [call for call in self.open if call.answer.done()]:
            self.open.remove(call)
            if error := call.answer.exception():
                if not self._is_lost(error):
                    raise error
                self._leave_out(now)
                break
            self._take_in(call)
        waited = max((now - call.since for call in self.open), default=0.0)
        if waited >= PARCEL_ANSWER_SECONDS:
            self._leave_out(now)
        elif waited >= PATIENCE_SECONDS:
            self.is_in_time = False
        fit = [stock for stock in self._stock if stock.batch >= oldest_batch and stock.beta == beta]
        self._stock = deque(fit)

    def take(self, count: int) -> list[tuple[Parcel, NDArray[np.int64]]]:
        """Use up rows, no more than are left: parcels, and the places in each, int64[n]."""
        taken: list[tuple[Parcel, NDArray[np.int64]]] = []
        while count > 0:
            stock = self._stock[0]
            taken.append((stock.parcel, stock.take(count)))
            count -= len(taken[-1][1])
            if stock.rows_left == 0:
                self._stock.popleft()
        return taken

    def drop_oldest(self) -> None:
        """Make room for a greater parcel."""
        self._stock.popleft()

    def update(self, serials: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        """Send priorities on their way; if too many of them have no answer, these are dropped and counted.

        Raises:
            Exception: What the shard failed with.
        """
        for answer, count in [update for update in self._updates if update[0].done()]:
            self._updates.remove((answer, count))
            if (error := answer.exception()) and not self._is_lost(error):
                raise error
            self.stale_updates += count if error else answer.result()
        for life, positions, indexes in self.lives.by_life(serials):
            if len(self._updates) < OPEN_UPDATES:
                answer = self._calls.update(life, indexes, priorities[positions])
                self._updates.append((answer, len(indexes)))
            else:
                self.stale_updates += len(indexes)

    def _ask(self, wish: Wish, batch: int, now: float) -> None:
        self._ask_again = now + ASK_AGAIN_SECONDS
        self.open.append(ParcelCall(self._calls.sample(*wish), wish, now, batch))

    def _take_in(self, call: ParcelCall) -> None:
        parcel = call.answer.result()
        if parcel.life < self.lives.life:
            return  # the last words of a shard that has been replaced
        if parcel.life > self.lives.life:
            self._stock.clear()
        self.lives.note(parcel.life, parcel.totals.next_index)
        self.totals, self.is_in_time = parcel.totals, True
        if len(parcel.records):
            self._stock.append(Stock(parcel, call, self._rng))

    def _leave_out(self, now: float) -> None:
        """Forget what was asked of the shard; what it gave is not used until it answers again."""
        self.open.clear()
        self.totals, self.is_in_time = None, False
        self.stale_updates += sum(count for _, count in self._updates)
        self._updates.clear()
        self._ask_again = now + ASK_AGAIN_SECONDS
