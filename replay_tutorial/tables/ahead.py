"""Drawing ahead: a thread that has batches ready before they are asked for.

The learner computes while the thread draws. When there is nothing, the thread stands in the table's line, as
any other caller; when it is no longer wanted, it leaves the line (`caller_is_there`). What it has drawn by
then is handed over, because the table has counted it. When the reader's time is up, it leaves the line, too,
and looks once more: the turn may have come without the thread having run since.

Left out: more than one thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator

from replay_tutorial.tables.sampled import Sample
from replay_tutorial.tables.waiting import LOOK, Forsaken, caller_is_there

Draw = Callable[[int, float | None], Sample]  # at most so many items; seconds to wait


class Ahead:
    """Batches, and the thread that draws them."""

    def __init__(
        self, draw: Draw, batches: Callable[[Callable[[int], Sample]], Iterator[Sample]], most: int
    ) -> None:
        """Draw nothing yet.

        Args:
            draw: Draws items.
            batches: Makes batches of what is drawn, until a draw raises a TimeoutError.
            most: Batches that are ready at most; the thread has one more in its hand.
        """
        self._draw = draw
        self._make = batches
        self._most = most
        self._changed = threading.Condition()
        self._ready: deque[Sample] = deque()
        self._error: BaseException | None = None
        self._empty_since: float | None = None  # since when the table gives out nothing
        self._patience: float | None = 0.0  # seconds that the draw under way waits
        self._is_late = False  # whether the reader's time is up
        self._closing = self._ended = False

    def batches(self, timeout: float | None) -> Generator[Sample]:
        """Start the thread; return its batches, until nothing was drawn for `timeout` seconds of waiting."""
        thread = threading.Thread(target=self._run, name="dataset", daemon=True)
        thread.start()
        try:
            while (batch := self._next(timeout)) is not None:
                yield batch
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            # Not for good: it may need a lock that this thread holds, if the garbage collector ends this.
            thread.join(2 * LOOK)
        if self._error is not None:
            raise self._error

    def _next(self, timeout: float | None) -> Sample | None:
        """Wait for a batch; None if there will be no other."""
        asked_at = time.monotonic()  # while nobody asks, the time does not count
        with self._changed:
            while not (self._ready or self._ended):
                left = None
                if timeout is not None and self._empty_since is not None and not self._is_late:
                    left = max(asked_at, self._empty_since) + timeout - time.monotonic()
                    self._is_late = left <= 0
                self._changed.wait(None if self._is_late else left)
            self._changed.notify_all()
            return self._ready.popleft() if self._ready else None

    def _run(self) -> None:
        caller_is_there.set(lambda: not (self._closing or (self._is_late and self._patience is None)))
        try:
            for batch in self._make(self._patient_draw):
                with self._changed:
                    self._changed.wait_for(lambda: len(self._ready) < self._most or self._closing)
                    self._ready.append(batch)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the reader shall fail with it, not wait forever
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _patient_draw(self, count: int) -> Sample:
        """Draw items as soon as there are some; a TimeoutError when nobody wants them any more."""
        self._patience = 0.0  # look once, so that the reader knows whether there is nothing; then wait
        while not self._closing:
            try:
                sample = self._draw(count, self._patience)
            except (TimeoutError, Forsaken):
                if self._is_late and self._patience == 0.0:
                    break  # that was the last look
                self._patience = 0.0 if self._is_late else None
                self._note_emptiness(self._empty_since or time.monotonic())
            else:
                self._note_emptiness(None)
                return sample
        raise TimeoutError

    def _note_emptiness(self, since: float | None) -> None:
        with self._changed:
            self._empty_since = since
            self._is_late = self._is_late and since is not None
            self._changed.notify_all()
