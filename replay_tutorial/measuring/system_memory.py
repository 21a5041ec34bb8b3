"""The memory that this process takes, and that the machine has left.

Left out: Windows, where `peak_memory` and `free_memory` know nothing.
"""

import sys
from pathlib import Path

KILOBYTE = 1024  # bytes of the kB in which Linux counts memory


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
