"""Protection of critical sections from Ctrl-C.

Python raises KeyboardInterrupt only in the main thread, at the points where it checks for signals (see
`ring`).
"""

import queue
import signal
import sys
from collections.abc import Callable
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any


class defer_sigint:
    """Context manager that defers Ctrl-C until the end of the block.

    Ctrl-C is deferred only while the function that contains the block is running. Otherwise, if the handler
    of another signal raised an exception in `__enter__` or `__exit__`, Ctrl-C would be deferred forever.
    """

    def __enter__(self) -> None:
        self._came: tuple[int, FrameType | None] | None = None
        self._function: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        is_main = current_thread() is main_thread()  # other threads never receive KeyboardInterrupt
        self._handler: Any = signal.getsignal(signal.SIGINT) if is_main else None
        while isinstance(left := getattr(self._handler, "__self__", None), defer_sigint) and not left.is_on():
            self._handler = left._handler
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._note)

    def is_on(self) -> bool:
        """Return whether the function that contains the block is running."""
        running: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while running is not None and running is not self._function:
            running = running.f_back
        return running is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_on():
            self._came = number, frame
        else:
            signal.signal(signal.SIGINT, self._handler)
            self._handler(number, frame)

    def __exit__(self, *_: object) -> None:
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
            if self._came is not None:
                self._handler(*self._came)


def run_in_thread(work: Callable[[], None]) -> None:
    """Call `work` in another thread, which signals can't interrupt, and wait until it returns."""
    start, finished = queue.SimpleQueue[None](), queue.SimpleQueue[None]()
    errors: list[Exception] = []
    may_run = [False]

    def run() -> None:
        start.get()
        try:
            if may_run[0]:
                work()
        except Exception as error:  # noqa: BLE001 - re-raised below
            errors.append(error)
        finally:
            finished.put(None)
            finished.put(None)  # for the handler below, if Ctrl-C comes right after the first `get`

    try:
        Thread(target=run, daemon=True).start()
        may_run[0] = True
        start.put(None)
        finished.get()
    except BaseException:
        start.put(None)
        if may_run[0]:
            # Not `Thread.join`, which, after an interrupt, assumes that the thread has ended (bpo-45274).
            finished.get()
        raise
    for error in errors:
        raise error
