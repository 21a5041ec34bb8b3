"""Signals: the first Ctrl-C stops the run cleanly, the second stops it immediately.

By default, Ctrl-C raises KeyboardInterrupt between any two instructions, which could leave an update half
done. During a run the first Ctrl-C only sets a flag, which is checked between updates. SIGTERM, which batch
systems send, is handled in the same way, and so is SIGHUP, which reports a closed terminal; output to that
terminal is then discarded, because writing to it would fail. If SIGHUP is ignored (`nohup`), it stays
ignored.
"""

import errno
import os
import signal
import stat
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

ENDING = "writing a checkpoint, then stopping; press Ctrl-C again to stop immediately"
HANGUP: int | None = getattr(signal, "SIGHUP", None)  # Windows has none


class StopRequest:
    """Signal handler that records whether the run has been asked to stop."""

    def __init__(self) -> None:
        self.received = False

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Set the flag at the first signal; raise KeyboardInterrupt at the second."""
        if number == HANGUP:
            leave_terminal()
        if self.received:
            raise KeyboardInterrupt
        self.received = True


@contextmanager
def stop_requests() -> Generator[StopRequest]:
    """Handle SIGINT, SIGTERM and SIGHUP while the context lasts.

    Python allows signal handlers only in the main thread. In other threads, no signal is caught, and the flag
    is never set.
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
    """Block these signals while the context lasts; processes started meanwhile inherit the blocked signals.

    Signals that arrive meanwhile are handled afterwards. On Windows, where signals can't be blocked, this
    does nothing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting the tracker would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_signals() -> list[int]:
    """Return the signals that stop a run, as far as this system has them."""
    return [signal.SIGINT, signal.SIGTERM, *([] if HANGUP is None else [HANGUP])]


def leave_terminal() -> None:
    """Redirect stdout and stderr to the null device if their terminal is closed."""
    for output in (1, 2):
        if stat.S_ISCHR(os.fstat(output).st_mode) and not os.isatty(output):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)


class TerminalOutput:
    """Standard output that discards text once its terminal is closed.

    SIGHUP reports a closed terminal too, but a write may fail before its handler runs, or the signal may be
    ignored.
    """

    def __init__(self) -> None:
        self._file = sys.stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write text; raise OSError if that fails although the terminal is open."""
        with self._terminal_may_be_gone():
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer; raise OSError if that fails although the terminal is open."""
        with self._terminal_may_be_gone():
            self._file.flush()

    @contextmanager
    def _terminal_may_be_gone(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            leave_terminal()
