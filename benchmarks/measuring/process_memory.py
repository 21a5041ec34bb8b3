"""Memory of this process. Windows is not supported."""

import sys
from pathlib import Path

KILOBYTE = 1024  # bytes; Linux reports memory in kB of this size


def resident_memory() -> int:
    """Return the resident memory of this process in bytes, or its peak where only the peak is available."""
    # The status file may lag behind by some pages for each thread.
    exact = memory_line(Path("/proc/self/smaps_rollup"), "Rss:")
    return exact or memory_line(Path("/proc/self/status"), "VmRSS:") or peak_memory()


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes; 0 on Windows."""
    if peak := memory_line(Path("/proc/self/status"), "VmHWM:"):
        return peak
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KILOBYTE


def memory_line(path: Path, name: str) -> int | None:
    """Return a value of a /proc file in bytes, or None if the file or the line doesn't exist."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    figures = [int(line.split()[1]) * KILOBYTE for line in lines if line.startswith(name)]
    return figures[0] if figures else None
