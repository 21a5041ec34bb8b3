"""What the server of processes does at its end: it removes its socket.

On Linux the processes of a run are copies of a server that has imported what they need (`supervisor`). The
parent reaches it through a socket in a temporary folder, which multiprocessing removes when the parent ends;
a killed parent can't. The server ends after all the others, so it does.

Left out: a server that is killed together with the parent.
"""

import atexit
import contextlib
import os
from multiprocessing import forkserver
from pathlib import Path


def remove_socket(server: int) -> None:
    """Remove the server's socket, and its folder; the server's copies leave both alone."""
    known: object = getattr(forkserver, "_forkserver", None)
    address: str | None = getattr(known, "_forkserver_address", None)
    if os.getpid() != server or address is None:
        return
    with contextlib.suppress(OSError):  # the parent was faster
        Path(address).unlink(missing_ok=True)
        Path(address).parent.rmdir()


atexit.register(remove_socket, os.getpid())
