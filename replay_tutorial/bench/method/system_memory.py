"""The memory that this process takes, that the machine has left, and that stays behind in shared memory.

Left out: Windows, where `peak_memory` and `free_memory` know nothing, and systems that do not show the
names in shared memory.
"""

import sys
import time
from contextlib import suppress
from pathlib import Path

KILOBYTE = 1024  # bytes of the kB in which Linux counts memory
SHARED_MEMORY = Path("/dev/shm")
SETTLE_SECONDS = 2.0  # that other programs of this machine may take to remove their own


def resident_memory() -> int:
    """Return the bytes that this process has now; where the system doesn't say, the most that it has had."""
    return memory_line(Path("/proc/self/status"), "VmRSS:") or peak_memory()


def peak_memory() -> int:
    """Return the most bytes that this process has had; 0 where nobody knows."""
    if peak := memory_line(Path("/proc/self/status"), "VmHWM:"):
        return peak
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KILOBYTE


def free_memory() -> int | None:
    """Return the bytes that could be had now; None where the system doesn't say."""
    return memory_line(Path("/proc/meminfo"), "MemAvailable:")


def memory_line(path: Path, name: str) -> int | None:
    """Read one line of a file in which Linux counts memory in kB; None without it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    figures = [int(line.split()[1]) * KILOBYTE for line in lines if line.startswith(name)]
    return figures[0] if figures else None


def memory_names() -> set[str]:
    """Return the names in shared memory, where the system shows them."""
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
