"""Wait queues: calls that the rate limiter does not admit yet wait in order of arrival.

Each table has one queue for inserts and one for samples, and no call holds the lock while it waits. After
every change, the first call of each queue is woken if the limiter admits it. When that call has run, it wakes
the next one. A new call waits behind the others, even if it could be admitted immediately.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from threading import TIMEOUT_MAX, Condition, RLock

POLL_INTERVAL = 0.25  # seconds between calls of should_cancel


class Closed(RuntimeError):
    """The server or the handle was closed.

    Items that a waiting call inserted before stay. If a handle was closed, its calls may still have been
    carried out.
    """


class Cancelled(Exception):
    """The caller cancelled the call while it was waiting.

    Items that the call inserted before stay. A call of a `RemoteServer` may still have been carried out.
    """


class ServerLost(ConnectionError):
    """No server is reachable at this address, or it no longer knows this handle."""


def deadline_of(timeout: float | None) -> float:
    """Return the time at which a timeout expires, inf for None; raise ValueError for an invalid timeout."""
    if timeout is None:
        return math.inf
    if not timeout >= 0.0:
        raise ValueError(f"timeout must be at least 0, or None to wait indefinitely, not {timeout}.")
    return time.monotonic() + timeout


def seconds_until(deadline: float) -> float | None:
    """Return the seconds until a deadline; None if it is infinite."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())


class WaitQueue:
    """A first-in, first-out queue of waiting calls; all methods require the lock."""

    def __init__(self, lock: RLock, can_proceed: Callable[[], bool], patience: float) -> None:
        """Create an empty queue; calls that wait longer than `patience` seconds log a warning."""
        if not patience >= 0.0:
            raise ValueError(f"patience must be at least 0 seconds, not {patience}.")
        self._lock = lock
        self._can_proceed = can_proceed
        self._patience = patience
        self._waiters: deque[tuple[Condition, object]] = deque()  # each with its writer

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def can_enter(self) -> bool:
        """Whether a new call may proceed without waiting."""
        return not self._waiters and self._can_proceed()

    def wake(self) -> None:
        """Wake the first call if it may proceed."""
        if self._waiters and self._can_proceed():
            self._waiters[0][0].notify()

    def wake_all(self, writer: object) -> None:
        """Wake all calls, or those of one writer, so that they repeat `check`."""
        for waiter, owner in self._waiters:
            if writer in (None, owner):
                waiter.notify()

    def wait(
        self,
        deadline: float,
        on_slow: Callable[[], None],
        check: Callable[[], None],
        writer: object = None,
        should_cancel: Callable[[], bool] | None = None,
    ) -> bool:
        """Wait until the call is first in the queue and may proceed; return False if the deadline passes.

        The lock is released while waiting. After each wake-up, `check` raises an error if the call has become
        pointless. `should_cancel` is also called every `POLL_INTERVAL` seconds; it returns True to raise
        Cancelled. `on_slow` is called once if the call waits longer than `patience` seconds. `writer` is the
        writer on whose behalf the call waits.
        """
        if time.monotonic() >= deadline:
            return False
        warn_at = deadline_of(self._patience)
        waiter, is_next = (Condition(self._lock), writer), False
        self._waiters.append(waiter)
        try:
            while not is_next:
                longest = TIMEOUT_MAX if should_cancel is None else POLL_INTERVAL
                waiter[0].wait(max(0.0, min(longest, min(deadline, warn_at) - time.monotonic())))
                check()
                if should_cancel is not None and should_cancel():
                    raise Cancelled
                now = time.monotonic()
                is_next = self._waiters[0] is waiter and self._can_proceed()
                if not is_next and now >= deadline:
                    return False
                if not is_next and now >= warn_at:
                    on_slow()
                    warn_at = math.inf
            return True
        finally:
            self._waiters.remove(waiter)
            if not is_next and self._waiters:
                self._waiters[0][0].notify()  # this call may have consumed a wake-up: pass it on


class WaitQueues(dict[tuple[str, str], WaitQueue]):
    """The queues of all tables; a context manager that wakes the first call of each on exit."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        for queue in self.values():
            queue.wake()

    def wake_all(self, writer: object = None) -> None:
        """Wake all calls, or those of one writer."""
        for queue in self.values():
            queue.wake_all(writer)
