"""Files that are whole or not there: written beside their place, then moved into it in one step.

A crash leaves the old file or the new one; what a killed process left is written over by the next one, or
removed. Whose writer lives is told by the system's lock on it, which ends with its process: process numbers
would not do where containers share a disk. On Windows, and on disks without locks, it stays.

Left out: waiting until the disk has it; a writer that needs that calls `os.fsync` itself.
"""

import errno
import os
import re
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then move it there; if it raises, the old file stays."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "It is a folder; name a file", str(path))
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise with_path(error, path) from error
        raise


@contextmanager
def atomic_write(place: Path) -> Generator[IO[bytes]]:
    """Open a file of this thread's own beside `place`; at the end move it there, after an error remove it.

    Two that write to one place at the same time don't write into one file; the later one wins.
    """
    remove_leftovers(place)
    part = place.with_name(f".{place.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open_locked(part) as file:
            yield file
            if sys.platform != "win32":
                part.replace(place)  # still locked, lest another takes it for left behind
        if sys.platform == "win32":
            part.replace(place)  # an open file can't be moved there
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def open_locked(part: Path) -> IO[bytes]:
    """Open a file for writing, and lock it for as long as it is open."""
    while True:
        file = part.open("wb")
        if sys.platform == "win32":
            return file
        with suppress(OSError):  # no locks here
            fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return file
        file.close()  # it was taken for left behind, before it was locked


def remove_leftovers(place: Path) -> None:
    """Remove what killed writers of `place` left beside it."""
    if sys.platform == "win32":
        return
    leftover = re.compile(rf"\.{re.escape(place.name)}\.\d+-\d+\.part")
    with suppress(OSError):  # a folder that can't be listed may still be written to
        for path in place.parent.iterdir():
            if leftover.fullmatch(path.name):
                with suppress(OSError), path.open("r+b") as file:
                    # Refused if the writer lives, or the disk has no locks.
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Under this name there may be a new file meanwhile, whose writer has locked that one.
                    if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                        path.unlink()


def with_path(error: OSError, path: Path) -> OSError:
    """Return an error that says which file it is about; the library's own words are left alone."""
    if error.errno is None:
        return error
    return type(error)(error.errno, error.strerror, str(path))
