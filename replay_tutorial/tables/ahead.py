"""Drawing ahead: a thread that has pieces of batches ready before they are asked for.

The learner computes while the thread draws. The thread never waits long without a look at whether it is still
wanted; what it has drawn in the last moment is handed over, because the table has counted it.

Left out: more than one thread.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator

from replay_tutorial.tables.sampled import Sample

POLL_SECONDS = 0.05  # between two looks of the thread at whether it is still wanted
Draws = Callable[[float], Generator[Sample | None]]  # seconds to wait for each → None where nothing came


class Ahead:
    """A thread that draws pieces of batches before they are asked for."""

    def __init__(self, draws: Draws, most: int) -> None:
        """Draw nothing yet.

        Args:
            draws: Draws what the batches consist of, piece by piece.
            most: Pieces that wait at most; the thread has one more in its hand.
        """
        self._draws = draws
        self._ready: queue.Queue[Sample | BaseException] = queue.Queue(most)  # an error comes last
        self._empty_since: float | None = None  # since when the table gives out nothing
        self._closing = False

    def pieces(self, timeout: float | None) -> Generator[Sample]:
        """Start the thread; return what it draws, until nothing has come for `timeout` seconds."""
        thread = threading.Thread(target=self._draw, name="dataset", daemon=True)
        thread.start()
        try:
            while not self._closing:
                piece = self._next(timeout)
                if piece is not None:
                    yield piece
            thread.join()
            while not self._ready.empty():  # what was drawn in the last moment
                yield checked(self._ready.get())
        finally:
            self._closing = True
            thread.join()

    def _next(self, timeout: float | None) -> Sample | None:
        """Wait for a piece; if none comes in time, end the thread and return None."""
        asked_at = time.monotonic()  # while nobody asks, the time does not count
        while True:
            try:
                return checked(self._ready.get(timeout=POLL_SECONDS))
            except queue.Empty:
                empty_since = self._empty_since
                if timeout is None or empty_since is None:
                    continue
                if time.monotonic() - max(asked_at, empty_since) >= timeout:
                    self._closing = True
                    return None

    def _draw(self) -> None:
        try:
            for piece in self._draws(POLL_SECONDS):
                if piece is not None:
                    self._empty_since = None
                    self._hand_over(piece)
                elif self._empty_since is None:
                    self._empty_since = time.monotonic() - POLL_SECONDS
                if self._closing:
                    return
        except BaseException as error:  # noqa: BLE001 - the reader shall fail with it, not wait forever
            self._hand_over(error)

    def _hand_over(self, piece: Sample | BaseException) -> None:
        while True:
            try:
                return self._ready.put(piece, timeout=POLL_SECONDS)
            except queue.Full:
                if self._closing:
                    return


def checked(piece: Sample | BaseException) -> Sample:
    """Return a piece; raise what the thread failed with."""
    if isinstance(piece, BaseException):
        raise piece
    return piece
