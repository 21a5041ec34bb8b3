"""Signals: the first Ctrl-C asks the run to end in good order, the second ends it at once.

Python's own answer to Ctrl-C is an exception between any two instructions, which would leave half an update behind. Here
the first one only raises a flag, which the run looks at between two updates. SIGTERM, which batch systems send, counts
as the first Ctrl-C.
"""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
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
def signals_ignored() -> Generator[None]:
    """Ignore both signals for a moment: processes that are started meanwhile do so from their first instruction on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
