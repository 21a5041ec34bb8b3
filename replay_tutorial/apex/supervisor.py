"""The supervisor: starts the actors' processes, hears their reports, notices their deaths and sees them all out.

Nothing here waits for a process that can die: reports come through one pipe for each actor, which ends when its process
does, and the stop flag is one byte of shared memory without a lock. An actor's death ends the run with the reason, in
the parent, where the reader is.

Left out: starting an actor again.
"""

import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Self

import numpy as np

from replay_tutorial.apex.actor import ActorTask, Failure, Report, run_actor
from replay_tutorial.apex.signals import sigint_ignored
from replay_tutorial.shared.memory import SharedArrays

FAREWELL = 5.0  # seconds that an actor gets to end by itself, before it is ended


class ActorDied(RuntimeError):
    """An actor's process ended though nobody had asked it to; the message says why."""


class Supervisor:
    """The processes of all actors. A context manager: they are gone when it is left, whatever happened.

    Args:
        task_of: Makes an actor's task from its number, the stop flag, and its end of the pipe of reports.
        actors: How many to start.
    """

    def __init__(self, task_of: Callable[[int, SharedArrays, Connection], ActorTask], actors: int) -> None:
        self.task_of = task_of
        self.actors = actors
        self.stop = SharedArrays({"flag": ((1,), np.dtype(np.bool_))})
        self.processes: list[SpawnProcess] = []
        self.reports: list[Connection] = []

    def __enter__(self) -> Self:
        """Start the actors; they begin to play in a few seconds, when their imports are done."""
        # spawn, because a forked child inherits threads' locks in whatever state they are (OpenMP, CUDA).
        context = get_context("spawn")
        with sigint_ignored():
            try:
                for number in range(self.actors):
                    reports, actor_end = context.Pipe(duplex=False)
                    self.reports.append(reports)
                    task = self.task_of(number, self.stop, actor_end)
                    process = context.Process(
                        target=run_actor, args=(task,), name=f"actor-{number}", daemon=True
                    )
                    process.start()
                    self.processes.append(process)
                    # The actor has its own copy; with ours closed, its death closes the pipe.
                    actor_end.close()
            except BaseException:
                self.end_all()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ask all actors to stop, and end those that don't."""
        self.end_all()

    def hear(self) -> list[Report]:
        """Return the reports that have come since the last call.

        Raises:
            ActorDied: If an actor has ended; with its traceback, exit code or signal.
        """
        heard: list[Report] = []
        for number, connection in enumerate(self.reports):
            try:
                while connection.poll():
                    message = connection.recv()
                    if isinstance(message, Failure):
                        raise ActorDied(f"actor {number} failed:\n\n{message.traceback}")
                    heard.append(message)
            except (EOFError, OSError):
                raise ActorDied(f"actor {number} {cause_of_death(self.processes[number])}") from None
        return heard

    def end_all(self) -> None:
        """See every actor out: ask, wait a little, terminate, kill. Afterwards no process is left."""
        self.stop["flag"][0] = True
        drain(self.reports, [process.sentinel for process in self.processes], FAREWELL)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
                process.join(FAREWELL)
            if process.is_alive():
                process.kill()
            process.join()
        for connection in self.reports:
            connection.close()


def drain(connections: Sequence[Connection], sentinels: Sequence[int], seconds: float) -> None:
    """Throw reports away until all processes have ended: a full pipe would keep an actor from its end."""
    deadline = time.monotonic() + seconds
    talking: list[Connection] = list(connections)
    alive: list[int] = list(sentinels)
    while alive and (left := deadline - time.monotonic()) > 0:
        ready = wait([*talking, *alive], timeout=left)
        alive = [sentinel for sentinel in alive if sentinel not in ready]
        for connection in [connection for connection in talking if connection in ready]:
            try:
                connection.recv()
            except (EOFError, OSError):
                talking.remove(connection)


def cause_of_death(process: SpawnProcess) -> str:
    """Say how a process ended."""
    process.join(FAREWELL)
    code = process.exitcode
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name} (exit code {code})"
    return f"ended with exit code {code}; what it printed stands above"
