"""Process identities, and whether a process is still alive.

A process is identified by its PID and its start time, because the system reuses PIDs. A process that has
exited but has not been waited for (a zombie) counts as dead.
"""

import os
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

# Packed identity of a process: 31 bits of its start time above 32 bits of its PID.
PID_BITS = 32


def start_time(process: int) -> int | None:
    """Return the start time of the process with this PID, in a system-specific unit; None if it is not alive.

    No two processes with the same PID have the same start time.
    """
    if sys.platform == "linux":
        return start_time_on_linux(process)
    if sys.platform == "win32":
        return start_time_on_windows(process)
    # Without these variables, processes with other locales or time zones would read another start time.
    environment = os.environ | {"LC_ALL": "C", "TZ": "UTC0"}
    command = ["ps", "-o", "state=", "-o", "lstart=", "-p", str(process)]
    shown = subprocess.run(command, env=environment, capture_output=True, check=False).stdout
    if not shown.strip() or shown.lstrip().startswith(b"Z"):
        return None
    return zlib.crc32(shown.split(None, 1)[1])


def start_time_on_linux(process: int) -> int | None:
    """Read state and start time of the main thread from /proc (see proc(5), fields 3 and 22 of stat)."""
    try:
        # Not /proc/PID/stat: under qemu, it shows a process another start time of itself than of others.
        text = Path(f"/proc/{process}/task/{process}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name before it can contain spaces, and bytes that are not UTF-8.
    fields = text.rpartition(b")")[2].split()
    return None if fields[0] in b"ZX" else int(fields[19])


def start_time_on_windows(process: int) -> int | None:
    """Return the creation time that the kernel reports."""
    import ctypes
    from ctypes import wintypes

    kernel: Any = getattr(ctypes, "WinDLL")("kernel32")  # noqa: B009 - other systems have no such attribute
    handle = kernel.OpenProcess(0x1000, False, process)  # PROCESS_QUERY_LIMITED_INFORMATION
    if not handle:
        return None
    times, code = [wintypes.FILETIME() for _ in range(4)], wintypes.DWORD()
    kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.GetProcessTimes(handle, *map(ctypes.byref, times))
    kernel.CloseHandle(handle)
    running = code.value == 259  # STILL_ACTIVE
    return (times[0].dwHighDateTime << 32 | times[0].dwLowDateTime) if running else None


def pack_identity(process: int, started: int) -> int:
    """Pack a PID and a start time into a positive integer of 63 bits."""
    return started % (1 << 31) << PID_BITS | process


def is_alive(word: int) -> bool:
    """Return whether the process with this packed identity is alive."""
    process = word % (1 << PID_BITS)
    started = start_time(process)
    return started is not None and pack_identity(process, started) == word


def own_identity() -> int:
    """Return this process's packed identity."""
    return identity_of(os.getpid())


@cache
def identity_of(process: int) -> int:
    """Return the packed identity of a living process. Cached: the system is queried once per PID."""
    started = start_time(process)
    if started is None:
        raise RuntimeError(
            "Cannot determine which processes are alive on this system; on Linux, mount /proc."
        )
    return pack_identity(process, started)


if hasattr(os, "register_at_fork"):  # a descendant can have the same PID as a dead ancestor
    os.register_at_fork(after_in_child=identity_of.cache_clear)
