"""Atomic file writes: a temporary file in the same folder is written, then renamed to the target.

A crash leaves either the old file or the new one. The temporary file of a killed process is overwritten or
removed by the next write. A writer locks its temporary file, and the system releases the lock when the
process ends, so other processes can check whether the writer is alive. (Process IDs would not work for
containers that share a disk.) On Windows, and on file systems without locks, such files remain. For
durability, the caller must call `os.fsync`.
"""

import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
RETRY_SECONDS = 0.02
RETRIES = 100 if sys.platform == "win32" else 0


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Replace `path` atomically with a file that `write` creates; if `write` raises, keep the old file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "The path is a folder; pass the path of a file", str(path))
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write(unfinished)
        rename(unfinished, path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise with_path(error, path) from error
        raise


@contextmanager
def atomic_write(place: Path) -> Generator[IO[bytes]]:
    """Open a temporary file next to `place`; rename it to `place` at the end, or remove it after an error.

    Each thread has its own temporary file. If several write to the same place, the last to finish wins.
    """
    remove_leftovers(place)
    part = place.with_name(f".{place.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open_locked(part) as file:
            yield file
            file.flush()
            if sys.platform != "win32":
                rename(part, place)  # while still locked, so that no other writer removes it as a leftover
        if sys.platform == "win32":
            rename(part, place)  # Windows can't rename an open file
    except BaseException:
        with suppress(PermissionError):  # Windows can't remove the file of an interrupted `open` yet
            part.unlink(missing_ok=True)
        raise


def rename(part: Path, place: Path) -> None:
    """Rename a file to `place` and overwrite that file if it exists."""
    repeat_while_denied(lambda: os.replace(part, place))


def repeat_while_denied(call: Callable[[], T]) -> T:
    """Return the result of a call that needs a file; on Windows, repeat it for about two seconds.

    Windows denies a rename while another process has the file open, even for reading, and it denies opening a
    file while another process renames it.
    """
    for _ in range(RETRIES):
        with suppress(PermissionError):
            return call()
        time.sleep(RETRY_SECONDS)
    return call()


def open_locked(part: Path) -> IO[bytes]:
    """Open a file for writing and lock it until it is closed."""
    while True:
        file = part.open("wb")
        if sys.platform == "win32":
            return file
        with suppress(OSError):  # the file system has no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return file
        file.close()  # another writer removed it as a leftover before it was locked


def remove_leftovers(place: Path) -> None:
    """Remove temporary files that killed writers of `place` left behind."""
    if sys.platform == "win32":
        return
    leftover = re.compile(rf"\.{re.escape(place.name)}\.\d+-\d+\.part")
    with suppress(OSError):  # a folder may be writable although it can't be listed
        for path in place.parent.iterdir():
            if leftover.fullmatch(path.name):
                with suppress(OSError), path.open("r+b") as file:
                    # Fails if the writer is alive, or the file system has no locks.
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # By now, the name may refer to a new file, which its writer has locked.
                    if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                        path.unlink()


def with_path(error: OSError, path: Path) -> OSError:
    """Return the error with the file's path added; errors without an errno are returned unchanged."""
    if error.errno is None:
        return error
    return type(error)(error.errno, error.strerror, str(path))
