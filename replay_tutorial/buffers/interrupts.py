"""Ctrl-C: hold it back while something is changed that must not be left half done.

Python raises KeyboardInterrupt in the main thread only, where it checks for signals (see `ring`).
"""

import queue
import signal
import sys
from collections.abc import Callable
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any


class defer_sigint:
    """Holds Ctrl-C back for a moment: a change of tables that ends halfway would leave none of them whole.

    It is held back only while the function with the block runs: the handler of another signal may raise an
    exception in `__enter__` or `__exit__`, after which nobody would give it back.
    """

    def __enter__(self) -> None:
        self._came: tuple[int, FrameType | None] | None = None
        self._function: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        is_main = current_thread() is main_thread()  # Python raises it in no other one
        self._handler: Any = signal.getsignal(signal.SIGINT) if is_main else None
        while isinstance(left := getattr(self._handler, "__self__", None), defer_sigint) and not left.is_on():
            self._handler = left._handler
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._note)

    def is_on(self) -> bool:
        """Return whether the function with the block is running."""
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
    """Do work that takes several steps in a thread, which no signal interrupts; wait for its end."""
    begins, ended = queue.SimpleQueue[None](), queue.SimpleQueue[None]()
    errors: list[Exception] = []
    may_begin = [False]

    def run() -> None:
        begins.get()
        try:
            if may_begin[0]:
                work()
        except Exception as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)
        finally:
            ended.put(None)
            ended.put(None)  # an interrupt may come when the first has just been taken

    try:
        Thread(target=run, daemon=True).start()
        may_begin[0] = True
        begins.put(None)
        ended.get()
    except BaseException:
        begins.put(None)
        if may_begin[0]:  # not `Thread.join`, which takes a thread for ended if it is interrupted (bpo-45274)
            ended.get()
        raise
    for error in errors:
        raise error
