"""Signals: the first Ctrl-C asks the run to end cleanly, the second ends it at once.

Python's own answer to Ctrl-C is an exception between any two instructions, which would leave half an update
behind. Here the first one only raises a flag, which the run looks at between two updates. SIGTERM, which
batch systems send, counts as Ctrl-C, and so does SIGHUP, which says that the terminal is gone: then what is
printed goes nowhere, because writing to it would fail. Whoever has SIGHUP ignored, by `nohup`, keeps it so.
"""

import os
import signal
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

ENDING = "ending, with a checkpoint; press Ctrl-C again to stop at once"
HANGUP: int | None = getattr(signal, "SIGHUP", None)  # Windows has none


class StopRequest:
    """Whether somebody has asked the run to end."""

    def __init__(self) -> None:
        self.received = False

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Handle a signal: the first raises the flag, the second an exception.

        Raises:
            KeyboardInterrupt: At the second signal.
        """
        if number == HANGUP:
            leave_terminal()
        if self.received:
            raise KeyboardInterrupt
        self.received = True


@contextmanager
def stop_requests() -> Generator[StopRequest]:
    """Catch SIGINT, SIGTERM and SIGHUP while the context lasts.

    Outside of the main thread Python allows no handlers: then nothing is caught, and the flag stays down.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    ignored = HANGUP is not None and signal.getsignal(HANGUP) is signal.SIG_IGN
    caught = [number for number in stop_signals() if not (ignored and number == HANGUP)]
    before = {number: signal.signal(number, request) for number in caught}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_deferred() -> Generator[None]:
    """Hold these signals back for a moment; processes that are started meanwhile hold them back, too.

    Whatever comes meanwhile is handled afterwards. Windows can't hold signals back.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when it starts, it lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_signals() -> list[int]:
    """List the signals that ask a run to end, as far as the system has them."""
    return [signal.SIGINT, signal.SIGTERM, *([] if HANGUP is None else [HANGUP])]


def leave_terminal() -> None:
    """Let what is printed to a terminal that is gone go nowhere."""
    for output in (1, 2):
        if stat.S_ISCHR(os.fstat(output).st_mode) and not os.isatty(output):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)
