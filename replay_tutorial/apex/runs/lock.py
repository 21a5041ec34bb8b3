"""The lock of a run's folder: two processes that write checkpoints into one would mix them.

It is the system's lock on an open file, so that it ends with its process, however that ends: nothing has to
be cleaned up after a `kill -9`. The processes of the run don't inherit it: they outlive a killed parent for a
moment, and must not keep the lock for that long.

Left out: file systems without locks, such as some of clusters; there everybody gets one.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

NAME = "run.lock"  # an empty file, which stays: whoever removed it could let two in at once


class RunInUse(ValueError):
    """Another process trains this run; the message says what to do."""


@contextmanager
def lock_run(run: Path) -> Generator[None]:
    """Keep a run's folder to this process while the context lasts.

    Raises:
        RunInUse: If another process has it.
    """
    with (run / NAME).open("a") as file:
        if not try_lock(file.fileno()):
            raise RunInUse(
                f"{run} is being trained by another process. Wait for its end, or end it by Ctrl-C there; "
                "then resume it."
            )
        yield


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; return False if somebody else has the lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # of POSIX, of Windows
        return False
    except OSError:  # no locks here
        return True
    return True
