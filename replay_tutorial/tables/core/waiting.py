"""Waiting: a queue of calls that wait for one thing, first come first served.

A table has two queues: calls that insert, and calls that sample. No call holds the lock while it waits. Every
change wakes the first call of each queue that may go now; that call goes, and in doing so wakes the next. A
call that comes later stands behind, also if it could go at once; a hook never waits.

Left out: when a call may go (`rate_limiters`).
"""

import math
import time
from collections import deque
from collections.abc import Callable
from threading import TIMEOUT_MAX, Condition, RLock

POLL_INTERVAL = 0.25  # seconds between two questions whether to cancel


class Closed(RuntimeError):
    """The server was closed; what had not been acknowledged has not happened."""


class CallerGone(Exception):
    """The caller cancelled a call while it waited; it was not carried out."""


def deadline_of(timeout: float | None) -> float:
    """Return when a timeout is over; None stands for infinity, which is never.

    Raises:
        ValueError: If it is negative or NaN.
    """
    if timeout is None:
        return math.inf
    if not timeout >= 0.0:
        raise ValueError(f"timeout must be at least 0, or None to wait as long as it takes, not {timeout}.")
    return time.monotonic() + timeout


class WaitQueue:
    """Calls that wait; all methods are called with the lock held."""

    def __init__(self, lock: RLock, can_proceed: Callable[[], bool], patience: float) -> None:
        """Begin empty; a call that waits for more than `patience` seconds logs a warning."""
        if not patience >= 0.0:
            raise ValueError(f"patience must be at least 0 seconds, not {patience}.")
        self._lock = lock
        self._may_go = can_proceed
        self._patience = patience
        self._turns: deque[tuple[Condition, object]] = deque()  # each with the writer that it is for

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def can_enter(self) -> bool:
        """Whether a call that comes now may go at once."""
        return not self._turns and self._may_go()

    def wake(self) -> None:
        """Wake the first call, if it may go."""
        if self._turns and self._may_go():
            self._turns[0][0].notify()

    def wake_all(self, writer: object = None) -> None:
        """Wake all calls, or those of a writer, to check whether waiting still makes sense."""
        for turn, whose in self._turns:
            if writer in (None, whose):
                turn.notify()

    def wait(
        self,
        deadline: float,
        on_slow: Callable[[], None],
        check: Callable[[], None],
        writer: object = None,
        should_cancel: Callable[[], bool] | None = None,
    ) -> bool:
        """Wait for one's turn, which is not now, and return whether it came before the deadline.

        The lock is not held meanwhile, but again afterwards.

        Args:
            deadline: When the time is up; see `deadline_of`.
            on_patience_lost: Called once if it takes long.
            check: Raises an error if waiting makes no sense any more.
            writer: The writer that the call is for.
            should_cancel: Asked again and again while it waits, and once more when its turn has come.

        Raises:
            CallerGone: If `should_cancel` says so.
        """
        if time.monotonic() >= deadline:
            return False
        warn_at = deadline_of(self._patience)
        turn, came = (Condition(self._lock), writer), False
        self._turns.append(turn)
        try:
            while not came:
                longest = TIMEOUT_MAX if should_cancel is None else POLL_INTERVAL
                turn[0].wait(max(0.0, min(longest, min(deadline, warn_at) - time.monotonic())))
                check()
                if should_cancel is not None and should_cancel():
                    raise CallerGone
                now = time.monotonic()
                came = self._turns[0] is turn and self._may_go()
                if not came and now >= deadline:
                    return False
                if not came and now >= warn_at:
                    on_slow()
                    warn_at = math.inf
            return True
        finally:
            self._turns.remove(turn)
            if not came and self._turns:
                self._turns[0][0].notify()  # it may have been woken for nothing: the next call checks
