"""Shards of plain lists, and calls to them that are late, lost, repeated or answered in any order.

A row says which it is: its shard, life and index. A priority says for which row it was meant: it is a number
that the learner gave to that row only. So a priority on another row gives itself away when it arrives.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from replay_tutorial.cluster.shards.shard import Parcel
from replay_tutorial.cluster.shards.shard_files import ShardCalls
from replay_tutorial.cluster.shards.weighting import Totals


class Lost(Exception):
    """A call that did not get through."""


def is_lost(error):
    return isinstance(error, Lost)


def done(value):
    answer = Future()
    answer.set_result(value)
    return answer


def failed(error):
    answer = Future()
    answer.set_exception(error)
    return answer


def answer_of(method, *arguments):
    """What a real shard answers, or fails with, at once."""
    try:
        return done(method(*arguments))
    except (OSError, ValueError) as error:
        return failed(error)


def calls_of(shard):
    """Of a real shard in this process."""
    add, sample, update, load = (
        partial(answer_of, method) for method in (shard.add, shard.sample, shard.update, shard.load)
    )
    return ShardCalls(add, sample, update, lambda: map(done, shard.save()), load)


class Clock:
    """Stands still, unless it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class PlainShard:
    """Rows in a list, masses in another, the newest `capacity` of them."""

    def __init__(self, number, rng, capacity=50):
        self.number, self.rng, self.capacity = number, rng, capacity
        self.life, self.masses = 0, []
        self.given = {}  # by life and index, the priorities that were meant for the row
        self.arrived = 0  # priorities, at rows that were there

    def die(self):
        self.life, self.masses = self.life + 1, []

    def add(self, masses):
        self.masses.extend(masses)

    @property
    def stored(self):
        first = max(0, len(self.masses) - self.capacity)
        return range(first, len(self.masses))

    def totals(self):
        there = [self.masses[i] for i in self.stored]
        least = min((m for m in there if m > 0), default=0.0)
        return Totals(sum(there), least, len(there), len(self.masses))

    def choose(self, masses, count):
        return self.rng.choice(len(masses), count, p=masses / masses.sum())

    def sample(self, rows, batches, beta, call=0):
        totals = self.totals()
        count = rows * batches if totals.mass > 0 else 0
        dtype = [(n, np.int64) for n in ("shard", "life", "row", "indexes", "call")]
        records = np.zeros(count, [*dtype, ("mass", float), ("weights", np.float32)])
        if count:
            masses = np.array([self.masses[i] for i in self.stored])
            places = self.choose(masses, count)
            records["indexes"] = self.stored[0] + places
            records["row"], records["mass"] = records["indexes"], masses[places]
            records["weights"] = (totals.least / masses[places]) ** beta
            records["shard"], records["life"], records["call"] = self.number, self.life, call
        records.setflags(write=False)
        return Parcel(self.life, rows, records, {}, totals)

    def update(self, life, indexes, priorities):
        for index, priority in zip(indexes.tolist(), priorities.tolist(), strict=True):
            assert priority in self.given[life, index], "a priority on another row"
        if life != self.life:
            return len(indexes)
        there = [i for i in indexes.tolist() if i in self.stored]
        self.arrived += len(there)
        return len(indexes) - len(there)


class Post:
    """Carries calls to one shard; each waits here until it is let through.

    Attributes:
        under_way: (what, do, answer) of each call that has not been answered.
        asked: Batches that were handed over when each parcel was asked for, by the number of the call.
        rows: How many were asked for a batch, likewise.
    """

    def __init__(self, shard, handed):
        self.shard, self.handed = shard, handed
        self.under_way: list[tuple[str, Any, Future[Any]]] = []
        self.asked: list[int] = []
        self.rows: list[int] = []
        self.at_once = False

    def calls(self):
        return ShardCalls(self.add, self.sample, self.update, self.save, self.load)

    def sample(self, rows, batches, beta):
        call = len(self.asked)
        self.asked.append(self.handed())
        self.rows.append(rows)
        return self._send("sample", lambda: self.shard.sample(rows, batches, beta, call))

    def update(self, life, indexes, priorities):
        return self._send("update", lambda: self.shard.update(life, indexes, priorities))

    def save(self) -> Iterator[Future[bytes]]:
        raise NotImplementedError("lists are not saved")

    def add(self, chunk):
        raise NotImplementedError("lists have no fields")

    def load(self, piece):
        raise NotImplementedError("lists are not loaded")

    def _send(self, what, do):
        answer = Future()
        self.under_way.append((what, do, answer))
        if self.at_once:
            self.deliver(len(self.under_way) - 1)
        return answer

    def deliver(self, which, times=1):
        """Let a call through, as often as that; its last answer gets back."""
        _, do, answer = self.under_way.pop(which)
        for _ in range(times):
            result = do()
        answer.set_result(result)

    def execute(self, which):
        """Let a call through, while its answer is still on the way."""
        what, do, answer = self.under_way[which]
        result = do()
        self.under_way[which] = what, lambda: result, answer

    def lose(self, which, arrives=False, error=None):
        """Lose a call, or only its answer."""
        _, do, answer = self.under_way.pop(which)
        if arrives:
            do()
        answer.set_exception(error or Lost("the cable is cut"))

    def count(self, what):
        return sum(kind == what for kind, _, _ in self.under_way)
