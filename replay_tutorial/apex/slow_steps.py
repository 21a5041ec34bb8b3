"""Reports steps of environments that hang, because a run waits for them without a timeout."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from replay_tutorial.agents.environments import clock


@contextmanager
def slow_steps_reported(report: Callable[[str], object], limit: float) -> Generator[None]:
    """Report each step or reset in this process that takes longer than `limit` seconds.

    While the context lasts, a thread calls `report` with one line per step. The thread can't run during a
    step that holds the interpreter's lock, as extensions in C may.
    """
    has_ended = threading.Event()

    def watch() -> None:
        reported = None
        while not has_ended.wait(min(1.0, limit / 4)):
            running = clock.running
            if running is None or running is reported or time.monotonic() - running[1] < limit:
                continue
            reported = running
            report(f"{running[0].call} has taken {limit:g} s so far and may hang; still waiting for it")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
