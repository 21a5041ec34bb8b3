"""Removal of the fork server's socket at exit.

On Linux, the processes of a run are forked from multiprocessing's fork server (`supervisor`). The parent
connects to it through a socket in a temporary folder, which multiprocessing removes when the parent exits,
but not if the parent is killed. The fork server, which is the last process to exit, imports this module in
order to remove the socket itself. If the fork server is killed as well, the socket remains.
"""

import atexit
import contextlib
import os
import socket
import stat
import sys
from pathlib import Path


def listening_path() -> Path | None:
    """Return the path of the Unix socket on which this process listens, or None."""
    for handle in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the file descriptor of `listdir` is closed by now
            if not stat.S_ISSOCK(os.stat(handle).st_mode):
                continue
            with socket.socket(fileno=os.dup(handle)) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                name = found.getsockname()  # bytes instead of a path in Python 3.11.0
                if found.family == socket.AF_UNIX and listens and isinstance(name, str) and name:
                    return Path(name)
    return None


def remove_socket(server: int, path: Path) -> None:
    """Remove the socket and its folder if this process is the fork server, not one forked from it."""
    if os.getpid() == server:
        with contextlib.suppress(OSError):  # the parent has already removed them
            path.unlink(missing_ok=True)
            path.parent.rmdir()


if sys.platform == "linux" and (server_socket := listening_path()) is not None:
    atexit.register(remove_socket, os.getpid(), server_socket)
