"""Room: whether a block of memory will fit, asked before it is made.

Pages are handed out when they are first written. If there are none left then, the system kills a process, or
the write ends in a bus error; so a block that can't fit is refused while that is still an ordinary error.

Left out: what other processes will take later.
"""

import shutil
import sys
from pathlib import Path


def check_room(size: int, path: Path | None) -> None:
    """Refuse a block of `size` bytes that is larger than the free memory, or the free disk at the path."""
    room = free_memory() if path is None else shutil.disk_usage(path.parent).free
    if room is not None and size > room:
        where = "memory" if path is None else f"disk below {path.parent}"
        raise MemoryError(
            f"{size / 1e9:.1f} GB of shared memory do not fit: {room / 1e9:.1f} GB of {where} are free. "
            "Lower the capacity, or give a path on a disk with more room."
        )


def free_memory(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how many bytes this process may still take, limited by its container; None if unknown.

    Cached pages of files count as free, because the system drops them when memory is needed.
    """
    if sys.platform != "linux":
        return None
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = sum(int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except OSError:
        return free
    if limit == "max":
        return free
    cached = sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))  # not shared memory
    return min(free, max(0, int(limit) - int(used) + cached))
