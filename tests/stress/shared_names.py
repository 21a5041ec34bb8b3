"""The names that stay behind in shared memory, on systems that show them."""

import time
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
SETTLE_SECONDS = 30.0  # that other programs of this machine may take to remove their own


def memory_names() -> set[str]:
    return {entry.name for entry in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def memory_left(before: set[str]) -> list[str]:
    """Return the names that are new in shared memory, and stay, though no living process uses them."""
    left = memory_names() - before
    deadline = time.monotonic() + SETTLE_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left &= memory_names()
    return sorted(left - names_in_use(left)) if left else []


def names_in_use(names: set[str]) -> set[str]:
    """Return those of the names that a living process has mapped: they may be another program's."""
    used: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has just ended, or is another user's
            used.update(line.rpartition(f"{SHARED_MEMORY}/")[2] for line in maps.read_text().splitlines())
    return names & used
