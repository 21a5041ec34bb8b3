"""Signals: the first Ctrl-C asks the run to end cleanly, the second ends it at once.

Python's own answer to Ctrl-C is an exception between any two instructions, which would leave half an update
behind. Here the first one only raises a flag, which the run looks at between two updates. SIGTERM, which
batch systems send, counts as the first Ctrl-C.
"""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType


class StopRequest:
    """Whether somebody has asked the run to end."""

    def __init__(self) -> None:
        self.received = False

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Handle a signal: the first raises the flag, the second an exception.

        Raises:
            KeyboardInterrupt: At the second signal.
        """
        if self.received:
            raise KeyboardInterrupt
        self.received = True


@contextmanager
def stop_requests() -> Generator[StopRequest]:
    """Catch SIGINT and SIGTERM while the context lasts.

    Outside of the main thread Python allows no handlers: then nothing is caught, and the flag stays down.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_deferred() -> Generator[None]:
    """Hold both signals back for a moment; processes that are started meanwhile hold them back, too.

    Whatever comes meanwhile is handled afterwards. Windows can't hold signals back.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when it starts, it lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
