"""What every process of a run does around its work: be quiet at Ctrl-C, fail aloud, and never outlive its parent.

The parent hears of a failure through the process's pipe, and of a sudden death by the end of that pipe, or by asking
whether the process is still there. A process hears of its parent's death by `parent_process().sentinel`, which the
system signals however the parent ended.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait

import torch

from replay_tutorial.apex.messages import Failure

NICENESS = 10  # of the system's `nice`: where a core is short, all others get nine times the share


def run_worker(work: Callable[[], None], messages: Connection, threads: int) -> None:
    """Do the work of a process of its own, to its end or its failure.

    Args:
        work: Returns when the run is over.
        messages: Where a failure's traceback goes.
        threads: Of torch.
    """
    # Ctrl-C and a batch system's SIGTERM reach every process; the parent hears them, too, and tells us in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # Left alone, torch takes as many as there are cores, in each process: they stand in each other's way.
    torch.set_num_threads(threads)
    try:
        work()
    except Exception:  # noqa: BLE001 - whatever it was, the parent shall hear of it
        with contextlib.suppress(ConnectionError):  # the parent is gone, and nobody is left to hear of it
            messages.send(Failure(traceback.format_exc()))
        sys.exit(1)


def lower_priority() -> None:
    """Let the other processes go first where there are fewer cores than processes; Windows knows no such thing."""
    if sys.platform != "win32":
        os.nice(NICENESS)


def exit_with_parent() -> None:
    """Wait for the parent's end, then end this process at once, whatever it is waiting for."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
