"""Blocks of shared memory that unrelated processes open: files on disk, or the address of anonymous memory.

A file is written completely under a temporary name and then linked to its path, so no process can open an
incomplete one. If several processes create it at the same time, the first link wins and all of them open that
file.

Containers can share a file, but they cannot see each other's processes and would treat living writers as
dead. Therefore, all processes that have a file open at the same time must belong to one PID namespace. On
file systems without locks this cannot be checked.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from replay_tutorial.buffers.runtime.atomic_file import repeat_while_denied
from replay_tutorial.buffers.runtime.jit import Integers
from replay_tutorial.buffers.runtime.machine_memory import check_fits

if sys.platform != "win32":
    import fcntl

OPEN_FLAGS = os.O_RDWR | getattr(os, "O_BINARY", 0)


def create(path: Path, size: int, contents: Mapping[int, bytes]) -> None:
    """Create the file of a block, unless it exists or another process creates it first.

    `contents` maps offsets in the file to bytes; all other bytes are zero.
    """
    if path.exists():
        return
    check_fits(size, shutil.disk_usage(path.parent).free, f"disk below {path.parent}")
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.truncate(size)
            for offset, content in contents.items():
                file.seek(offset)
                file.write(content)
        link_into_place(Path(name), path)
    finally:
        Path(name).unlink(missing_ok=True)


def link_into_place(finished: Path, path: Path) -> None:
    """Link a finished file to its path, unless another process did so first."""
    try:  # neither call overwrites an existing file
        os.rename(finished, path) if sys.platform == "win32" else os.link(finished, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise OSError(
            f"Cannot create {path} ({error}). Its file system must support hard links; without them, two "
            "processes could each create a separate file. Pass a path on another disk."
        ) from error


def open_file(path: Path) -> int:
    """Return a descriptor of a block's file."""
    return repeat_while_denied(lambda: os.open(path, OPEN_FLAGS))


def namespace() -> int:
    """Return the number of this process's PID namespace; 0 on systems that have only one."""
    return os.stat("/proc/self/ns/pid").st_ino if sys.platform == "linux" else 0


def join_namespace(handle: int, number: Integers, path: Path) -> None:
    """Lock a file for the processes of this PID namespace; closing `handle` releases the lock.

    `number`, a word in the file, holds the namespace of the processes that have the file open. A process that
    opens the file while no other process has it open writes its own namespace. Raise RuntimeError if
    processes of another namespace have the file open.
    """
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        number[0] = namespace()  # no other process has it open
    except BlockingIOError:
        pass
    except OSError:
        return  # this file system has no locks
    fcntl.flock(handle, fcntl.LOCK_SH)
    if number[0] != namespace():
        raise RuntimeError(
            f"{path} is open in another PID namespace, such as another container, whose processes cannot be "
            "checked from here. Run all processes in one namespace (docker run --pid=container:NAME)."
        )
