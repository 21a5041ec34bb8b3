"""Prefetching: a thread that samples batches before the learner requests them.

The thread waits in the table's queue. When the learner stops waiting (timeout, or the iterator is closed),
the thread cancels the call and tries once more without waiting, because the call may just have been admitted.
Sampled items are delivered, because the table has counted them. A remote server may still sample items while
the call is being cancelled; these are lost.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, current_thread

from replay_tutorial.tables.core.results import Sample
from replay_tutorial.tables.core.waiting import POLL_INTERVAL, CallerGone

Draw = Callable[..., Sample]  # (maximum number of items, timeout in seconds, should_cancel=...)
Make = Callable[[Callable[[int], Sample]], Iterator[Sample]]  # collects samples into batches


class Prefetcher:
    """The thread that samples batches, and the queue of finished batches.

    Uses `SimpleQueue`, which is reentrant, because the garbage collector may close the iterator in any
    thread.
    """

    def __init__(self, draw: Draw, make: Make, in_flight: int, timeout: float | None) -> None:
        """Create the queues; `in_flight` is the number of batches to keep ready."""
        self._draw = draw
        self._make = make
        self._timeout = math.inf if timeout is None else timeout
        self._ready: SimpleQueue[Sample | BaseException | None] = SimpleQueue()  # None ends the iteration
        self._requests: SimpleQueue[None] = SimpleQueue()  # one per requested batch, and `in_flight` more
        for _ in range(in_flight):
            self._requests.put(None)
        self._in_flight = in_flight
        self._requested_at = 0.0
        self._empty_since = math.inf  # when the table had no item to sample; inf while it has some
        self._closed = False

    def batches(self) -> Generator[Sample]:
        """Start the thread and yield its batches, until none has been available for `timeout` seconds."""
        thread = Thread(target=self._run, name="dataset", daemon=True)
        thread.start()
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            self._closed = True
            self._requests.put(None)
            # The garbage collector may run this in any thread: in the sampling thread itself, or in one that
            # holds a lock which the sampling thread needs. So the join has a timeout.
            if thread is not current_thread():
                thread.join(2 * POLL_INTERVAL)

    def _next(self) -> Sample | None:
        self._requested_at = time.monotonic()
        self._requests.put(None)
        batch = self._ready.get()
        if isinstance(batch, BaseException):
            raise batch
        return batch

    def _run(self) -> None:
        try:
            batches = self._make(self._draw_or_wait)
            while True:
                self._requests.get()
                batch = next(batches, None)
                self._ready.put(batch)
                if batch is None:
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the learner
            self._ready.put(error)

    def _draw_or_wait(self, count: int) -> Sample:
        """Sample items as soon as some are available; raise TimeoutError when the learner stops waiting."""
        with suppress(TimeoutError):
            return self._draw_now(count)
        self._empty_since = time.monotonic()
        with suppress(CallerGone):
            if not self._should_cancel():
                return self._draw(count, None, should_cancel=self._should_cancel)
        return self._draw_now(count)  # the limiter may have admitted the call before it was cancelled

    def _draw_now(self, count: int) -> Sample:
        self._empty_since = math.inf
        if self._closed:
            raise TimeoutError
        return self._draw(count, 0.0)

    def _should_cancel(self) -> bool:
        """Return whether the learner needs no more items. The timeout runs only while the learner waits."""
        learner_waits = self._requests.qsize() >= self._in_flight  # requests are removed before sampling
        ends_at = max(self._requested_at, self._empty_since) + self._timeout
        return self._closed or (learner_waits and time.monotonic() >= ends_at)
