"""The memory of this machine or container, compared with the memory that a buffer reserves.

The system allocates a page when it is first written, so a buffer that is too large can be constructed, and
its process is killed hours later. Both limits are therefore checked in the constructor. The free memory is
only known on Linux, and the size of the machine is not known on Windows; without /proc, neither is known.
What is not known is not checked.
"""

import os
import sys
from pathlib import Path

GROUP, MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")
REMEDY = (
    "Reduce capacity, store each frame once (dedupe_next, dedupe_frames), or keep the rows on a disk with "
    "the argument path= of MPReplayBuffer or MPPrioritizedReplayBuffer."
)


def compare_with_memory(size: int) -> None:
    """Warn if `size` bytes exceed the free memory; raise MemoryError if they exceed that of the machine."""
    total, free = total_memory(), free_memory()
    if total is not None and size > total:
        raise MemoryError(
            f"The buffer takes {size / 1e9:,.1f} GB when it is full, but this machine has "
            f"{total / 1e9:,.1f} GB of memory. {REMEDY}"
        )
    if free is not None and size > free:
        from replay_tutorial.buffers.runtime.user_warning import warn_user

        warn_user(
            f"The buffer takes {size / 1e9:,.1f} GB when it is full, but {free / 1e9:,.1f} GB of memory are "
            f"free; the system may then kill the process. {REMEDY}"
        )


def check_fits(size: int, room: int | None, where: str) -> None:
    """Raise MemoryError if `size` bytes of shared memory exceed `room`, which is None if unknown."""
    if room is not None and size > room:
        raise MemoryError(
            f"{size / 1e9:.1f} GB of shared memory do not fit: {room / 1e9:.1f} GB of {where} are free. "
            "Lower the capacity, or pass a path on a disk with more space."
        )


def total_memory(group: Path = GROUP, meminfo: Path = MEMINFO) -> int | None:
    """Return how many bytes all processes of this machine or container can allocate; None if unknown."""
    if sys.platform == "linux":
        total = read_meminfo(meminfo, "MemTotal", "SwapTotal")
        limit = read_group(group, "memory.max")
        return total if total is None or limit in (None, "max") else min(total, int(limit))
    if sys.platform == "win32":
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory(group: Path = GROUP, meminfo: Path = MEMINFO) -> int | None:
    """Return how many bytes this process can still allocate, within its container's limit; None if unknown.

    Cached pages of files count as free, because the system drops them when memory is needed.
    """
    if sys.platform != "linux" or (free := read_meminfo(meminfo, "MemAvailable", "SwapFree")) is None:
        return None
    limit, used, statistics = (
        read_group(group, name) for name in ("memory.max", "memory.current", "memory.stat")
    )
    if limit is None or used is None or statistics is None or limit == "max":
        return free
    counts = dict(line.split() for line in statistics.splitlines())
    cached = sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))  # not shared memory
    return min(free, max(0, int(limit) - int(used) + cached))


def read_meminfo(meminfo: Path, *names: str) -> int | None:
    """Return the sum of entries of /proc/meminfo, in bytes; None if it can't be read, as in a sandbox."""
    try:
        lines = dict(line.split(":") for line in meminfo.read_text("utf-8").splitlines())
    except OSError:
        return None
    return sum(int(lines[name].split()[0]) * 1024 for name in names)


def read_group(group: Path, name: str) -> str | None:
    """Return a file of the container's control group (cgroup v2); None if there is none."""
    try:
        return (group / name).read_text("utf-8").strip()
    except OSError:
        return None
