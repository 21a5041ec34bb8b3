"""Drawing ahead: a thread that has batches ready before they are asked for.

The learner computes while the thread draws. When there is nothing, the thread stands in the table's queue, as
any other caller, and is asked there whether to cancel. It does, if the learner has waited for a batch too
long, or will not any more: then it leaves the queue, and looks once more. What it has drawn by then is handed
over, because the table has counted it.

Left out: more than one thread.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, current_thread

from replay_tutorial.tables.core.sampled import Sample
from replay_tutorial.tables.core.waiting import LOOK, CallerGone

Draw = Callable[..., Sample]  # at most so many items; seconds to wait; should_cancel
Make = Callable[[Callable[[int], Sample]], Iterator[Sample]]  # batches of what is drawn, until that fails


class Ahead:
    """Batches, and the thread that draws them.

    They pass through a `SimpleQueue`: it has no lock that is held when the garbage collector ends them.
    """

    def __init__(self, draw: Draw, make: Make, most: int, timeout: float | None) -> None:
        """Draw nothing yet; see `TrajectoryDataset`, where `most` is `in_flight`: batches that are ready."""
        self._draw = draw
        self._make = make
        self._timeout = math.inf if timeout is None else timeout
        self._ready: SimpleQueue[Sample | BaseException | None] = SimpleQueue()  # None: there is no other
        self._wishes: SimpleQueue[None] = SimpleQueue()  # one for each batch asked for, and `most`
        for _ in range(most):
            self._wishes.put(None)
        self._most = most
        self._asked_at = 0.0
        self._empty_since = math.inf  # since when the table gives out nothing
        self._closed = False

    def batches(self) -> Generator[Sample]:
        """Start the thread; return its batches, until nothing was drawn for `timeout` seconds of waiting."""
        thread = Thread(target=self._run, name="dataset", daemon=True)
        thread.start()
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            self._closed = True
            self._wishes.put(None)
            # The garbage collector may end this in any thread: in that one, or in one that holds a lock that
            # it needs. So it is not waited for for good.
            if thread is not current_thread():
                thread.join(2 * LOOK)

    def _next(self) -> Sample | None:
        self._asked_at = time.monotonic()
        self._wishes.put(None)
        batch = self._ready.get()
        if isinstance(batch, BaseException):
            raise batch
        return batch

    def _run(self) -> None:
        try:
            batches = self._make(self._patient_draw)
            while True:
                self._wishes.get()
                batch = next(batches, None)
                self._ready.put(batch)
                if batch is None:
                    return
        except BaseException as error:  # noqa: BLE001 - the reader shall fail with it, not wait forever
            self._ready.put(error)

    def _patient_draw(self, count: int) -> Sample:
        """Draw items as soon as there are some; a TimeoutError when nobody wants them any more."""
        with suppress(TimeoutError):
            return self._look(count)
        self._empty_since = time.monotonic()
        with suppress(CallerGone):
            if not self._should_cancel():
                return self._draw(count, None, should_cancel=self._should_cancel)
        return self._look(count)  # its turn may have come since, and the thread not have run

    def _look(self, count: int) -> Sample:
        self._empty_since = math.inf
        if self._closed:
            raise TimeoutError
        return self._draw(count, 0.0)

    def _should_cancel(self) -> bool:
        """Return whether the learner wants no more items; while it does not wait, the time does not count."""
        nobody_waits = self._wishes.qsize() < self._most  # a wish is taken before its batch is drawn
        ends_at = max(self._asked_at, self._empty_since) + self._timeout
        return self._closed or (not nobody_waits and time.monotonic() >= ends_at)
