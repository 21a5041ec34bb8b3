"""What the server of processes does at its end: it removes its socket.

On Linux the processes of a run are copies of a server that has imported what they need (`supervisor`). The
parent reaches it through a socket in a temporary folder, which multiprocessing removes when the parent ends;
a killed parent can't. The server ends after all the others, so it does.

Left out: a server that is killed together with the parent.
"""

import atexit
import contextlib
import os
import socket
import stat
import sys
from pathlib import Path


def listening_path() -> Path | None:
    """Return the file of the socket on which this process listens; None if there is none."""
    for handle in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the folder's own handle is closed by now
            if not stat.S_ISSOCK(os.stat(handle).st_mode):
                continue
            with socket.socket(fileno=os.dup(handle)) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                name = found.getsockname()  # bytes, and no file, in Python 3.11.0
                if found.family == socket.AF_UNIX and listens and isinstance(name, str) and name:
                    return Path(name)
    return None


def remove_socket(server: int, path: Path) -> None:
    """Remove the server's socket, and its folder; the server's copies leave both alone."""
    if os.getpid() == server:
        with contextlib.suppress(OSError):  # the parent was faster
            path.unlink(missing_ok=True)
            path.parent.rmdir()


if sys.platform == "linux" and (server_socket := listening_path()) is not None:
    atexit.register(remove_socket, os.getpid(), server_socket)
