"""PID namespaces: containers can share a file, but can't ask whether the other's processes are alive.

Each would take the other's living writers for dead. So all processes that have a file open at one time must
be of one namespace. Its number stands in the file; whoever opens the file while nobody else has it open,
writes its own. Who has it open is told by the system's shared lock on it, which ends with its process.

Left out: file systems without locks; there everybody gets in.
"""

import os
import sys
from pathlib import Path

from replay_tutorial.buffers.jit import Integers

if sys.platform != "win32":
    import fcntl


def namespace() -> int:
    """Return the number of this process's PID namespace; 0 where there is only one."""
    return os.stat("/proc/self/ns/pid").st_ino if sys.platform == "linux" else 0


def join_namespace(handle: int, number: Integers, path: Path) -> None:
    """Open a file for the processes of this namespace.

    Args:
        handle: The open file; the lock is given back when it is closed.
        number: int64[1] in the file: the namespace of those that have it open.
        path: Its name, for the error.

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
