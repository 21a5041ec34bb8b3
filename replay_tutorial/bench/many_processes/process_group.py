"""A process and all that it starts, as one group: ended together, whatever state they are in.

Left out: Windows, which has no such groups.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from multiprocessing.process import BaseProcess


def lead_group() -> None:
    """Make this process the leader of a group of its own, which is killed when this process's parent dies."""
    os.setsid()
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            multiprocessing.connection.wait([parent.sentinel])
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()


def end_group(process: BaseProcess) -> None:
    """End the leader of a group, and all that it started."""
    try:
        if process.pid is not None:
            os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.join()
