"""Wait queues: calls that the rate limiter does not admit yet wait in order of arrival.

Each table has one queue for inserts and one for samples. After every change, the first call of each queue is
woken if the limiter admits it. When that call has run, it wakes the next one. A new call waits behind the
others, even if it could be admitted immediately.

A call that may have to wait is a generator. It yields its `Waiter` whenever it has to wait, without holding
the lock, and checks again when it is resumed. `complete` runs it in a thread that blocks meanwhile; the
endpoint of other processes runs many of them in one thread.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Generator
from threading import TIMEOUT_MAX, Event
from typing import TypeVar

T = TypeVar("T")
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


class Waiter:
    """The place of a call in a queue."""

    on_wake: Callable[[], None] | None = None  # called once when the call should be resumed

    def __init__(self, owner: object, warn_at: float) -> None:
        """Create a place for a call of `owner`, which should also be resumed at the time `warn_at`."""
        self.owner, self.warn_at = owner, warn_at
        self.woken = Event()

    def wake(self) -> None:
        """Resume the call; requires the lock."""
        if not self.woken.is_set():
            self.woken.set()
            if self.on_wake is not None:
                self.on_wake()

    def wait(self, deadline: float, should_cancel: Callable[[], bool] | None) -> Exception | None:
        """Wait until the call should be resumed; return an error if it should end instead."""
        longest = TIMEOUT_MAX if should_cancel is None else POLL_INTERVAL
        while (now := time.monotonic()) < deadline:
            is_woken = self.woken.wait(max(0.0, min(longest, min(deadline, self.warn_at) - now)))
            if should_cancel is not None and should_cancel():
                return Cancelled()
            if is_woken or time.monotonic() >= min(deadline, self.warn_at):
                return None
        return TimeoutError()


Call = Generator[Waiter, None, T]


def complete(call: Call[T], timeout: float | None, should_cancel: Callable[[], bool] | None = None) -> T:
    """Run a call in this thread; `should_cancel` is called every `POLL_INTERVAL` seconds while it waits."""
    deadline = deadline_of(timeout)
    try:
        waiter = next(call)
        while True:
            error = waiter.wait(deadline, should_cancel)
            waiter = next(call) if error is None else call.throw(error)
    except StopIteration as end:
        return end.value
    finally:
        call.close()  # after Ctrl-C in `wait`


class WaitQueue(deque[Waiter]):
    """A first-in, first-out queue of waiting calls; all methods require the lock."""

    def __init__(self, can_proceed: Callable[[], bool]) -> None:
        """Create an empty queue."""
        super().__init__()
        self._can_proceed = can_proceed

    def admits(self, waiter: Waiter | None) -> bool:
        """Return whether a waiting call, or for None a new call, may proceed."""
        return (not self or self[0] is waiter) and self._can_proceed()

    def wake(self) -> None:
        """Wake the first call if it may proceed."""
        if self and self._can_proceed():
            self[0].wake()

    def leave(self, waiter: Waiter) -> None:
        """Remove a call if it is in the queue."""
        if waiter in self:
            self.remove(waiter)


class WaitQueues(dict[tuple[str, str], WaitQueue]):
    """The queues of all tables; a context manager that wakes the first call of each on exit."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        for queue in self.values():
            queue.wake()

    def wake_all(self, owner: object = None) -> None:
        """Wake all calls, or those of one owner."""
        for queue in self.values():
            for waiter in queue:
                if owner in (None, waiter.owner):
                    waiter.wake()
