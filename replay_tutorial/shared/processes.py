"""Processes: who is this, and is it still alive?

A process is named by its number and the moment of its birth, because the system gives numbers out again. One
that has ended but was not yet waited for (a zombie) is dead.

Containers can share a file, but can't ask whether each other's processes are alive: each would take the
other's living writers for dead. So all processes that have a file open at one time must be of one PID
namespace.

Left out: file systems without locks, on which a file of another namespace is opened, too.
"""

import os
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from replay_tutorial.buffers.jit import Integers

if sys.platform != "win32":
    import fcntl

# A process in one word: its birth, of which 31 bits are enough, above its number.
BIRTH_SHIFT = 32


def birth(process: int) -> int | None:
    """Return when the process of a number was born, in units of the system's own; None if it is not alive.

    No other process of the same number has the same birth.
    """
    if sys.platform == "linux":
        return birth_on_linux(process)
    if sys.platform == "win32":
        return birth_on_windows(process)
    shown = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(process)], capture_output=True, text=True, check=False
    ).stdout
    if not shown.strip() or shown.lstrip().startswith("Z"):
        return None
    return zlib.crc32(shown.split(None, 1)[1].encode())


def birth_on_linux(process: int) -> int | None:
    """Read state and start time from /proc (see proc(5), fields 3 and 22)."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold spaces
    return None if fields[0] in "ZX" else int(fields[19])


def birth_on_windows(process: int) -> int | None:
    """Ask the kernel for the time of creation."""
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


def in_one_word(process: int, born: int) -> int:
    """Name a process by one positive integer of 63 bits."""
    return born % (1 << 31) << BIRTH_SHIFT | process


def is_alive(word: int) -> bool:
    """Return whether the process that a word names is alive."""
    process = word % (1 << BIRTH_SHIFT)
    born = birth(process)
    return born is not None and in_one_word(process, born) == word


def this_life() -> tuple[int, int]:
    """Return this process's number, and how many forks led to it: another one than every ancestor has.

    A descendant may be given the number of an ancestor that has died, but it was forked once more.
    """
    return os.getpid(), _forks


def myself() -> int:
    """Name this process by a word."""
    return word_of(os.getpid())


_forks = 0


def count_fork() -> None:
    """Begin the life of a forked child: what its parent knew of process numbers is forgotten."""
    global _forks
    _forks += 1
    word_of.cache_clear()


@cache
def word_of(process: int) -> int:
    """Name a living process by a word; asks the system only once."""
    born = birth(process)
    if born is None:
        raise RuntimeError(
            "This system does not tell which processes are alive (on Linux, /proc must be mounted)."
        )
    return in_one_word(process, born)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=count_fork)


def namespace() -> int:
    """Return the number of this process's PID namespace; 0 where there is only one."""
    return os.stat("/proc/self/ns/pid").st_ino if sys.platform == "linux" else 0


def join_namespace(handle: int, number: Integers, path: Path) -> None:
    """Open a file for the processes of this namespace; closing the handle releases its lock.

    `number` lies in the file: the namespace of those that have it open. Whoever opens it while nobody else
    has it open, writes its own.

    Raises:
        RuntimeError: If processes of another namespace have it open.
    """
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        number[0] = namespace()  # nobody else has it open
    except BlockingIOError:
        pass
    except OSError:
        return  # no locks here
    fcntl.flock(handle, fcntl.LOCK_SH)
    if number[0] != namespace():
        raise RuntimeError(
            f"{path} is in use in another PID namespace, such as a container's: nobody here can tell whether "
            "those processes are alive. Run all of them in one namespace (docker run --pid=container:NAME)."
        )
