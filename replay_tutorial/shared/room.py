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


def free_memory() -> int | None:
    """Return how many bytes this process may still take, limited by its container; None if unknown."""
    if sys.platform != "linux":
        return None
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = sum(int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return free if limit == "max" else min(free, max(0, int(limit) - int(used)))
