"""Waiting: a line of those who wait for one thing, first come first served.

A table has two lines: those who want to insert, and those who want to sample. Nobody holds the lock while it
waits. Whoever has changed something wakes the first of each line that may go now; the first one goes, and in
doing so wakes the next. Who comes later stands behind, also if it could go at once; a hook never waits.

Left out: when one may go (`rate_limiters`).
"""

import math
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from threading import TIMEOUT_MAX, Condition, RLock

LOOK = 0.25  # seconds after which a caller is looked for
# Asked while a thread waits that calls for somebody else, and once more when its turn has come.
caller_is_there: ContextVar[Callable[[], bool] | None] = ContextVar("caller_is_there", default=None)
# Bytes that the caller's answer may have.
most_bytes: ContextVar[int | None] = ContextVar("most_bytes", default=None)


class Closed(RuntimeError):
    """The server was closed; what had not been acknowledged has not happened."""


class Forsaken(Exception):
    """Whoever a call was made for has gone; it was not carried out."""


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


class Line:
    """A line; whoever calls holds the lock."""

    def __init__(self, lock: RLock, may_go: Callable[[], bool], patience: float) -> None:
        """Begin with nobody in it; to wait for more than `patience` seconds is worth a word."""
        if not patience >= 0.0:
            raise ValueError(f"patience must be at least 0 seconds, not {patience}.")
        self._lock = lock
        self._may_go = may_go
        self._patience = patience
        self._turns: deque[tuple[Condition, int]] = deque()  # each with the writer that it is about, or 0

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def is_free(self) -> bool:
        """Whether who comes now may go at once."""
        return not self._turns and self._may_go()

    def wake(self) -> None:
        """Wake the first one, if it may go."""
        if self._turns and self._may_go():
            self._turns[0][0].notify()

    def look_up(self, writer: int | None = None) -> None:
        """Let all, or those who wait for a writer's sake, look whether waiting still makes sense."""
        for turn, whose in self._turns:
            if writer in (None, whose):
                turn.notify()

    def wait(
        self,
        deadline: float,
        on_patience_lost: Callable[[], None],
        check: Callable[[], None],
        writer: int = 0,
    ) -> bool:
        """Wait for one's turn, and return whether it came before the deadline.

        The lock is not held meanwhile, but again afterwards.

        Args:
            deadline: When the time is up; see `deadline_of`.
            on_patience_lost: Called once if it takes long.
            check: Raises an error if waiting makes no sense any more.
            writer: For whose sake it waits.

        Raises:
            Forsaken: If `caller_is_there` says so.
        """
        if self.is_free:
            return True
        if time.monotonic() >= deadline:
            return False
        still_there = caller_is_there.get()
        warn_at = deadline_of(self._patience)
        turn, came = (Condition(self._lock), writer), False
        self._turns.append(turn)
        try:
            while not came:
                look = TIMEOUT_MAX if still_there is None else LOOK
                turn[0].wait(max(0.0, min(look, min(deadline, warn_at) - time.monotonic())))
                check()
                if still_there is not None and not still_there():
                    raise Forsaken
                now = time.monotonic()
                came = self._turns[0] is turn and self._may_go()
                if not came and now >= deadline:
                    return False
                if not came and now >= warn_at:
                    on_patience_lost()
                    warn_at = math.inf
            return True
        finally:
            self._turns.remove(turn)
            if not came and self._turns:
                self._turns[0][0].notify()  # it may have been woken for nothing: the next one looks
