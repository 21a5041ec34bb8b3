"""The supervisor: starts the processes of a run, hears them, replaces fallen actors, and sees all of them out.

Nothing here waits for a process that can die: messages come through one pipe for each process, which ends when the
process does, and the stop flag is one number of shared memory without a lock. An actor that is killed costs the run its
open episodes and no more, so another takes its place, after a pause that doubles each time, until it has died too often
in a row. What else ends before its time ends the run with the reason, in the parent, where the reader is.

Left out: replacing the learner or the evaluator (a run is resumed from its checkpoint instead).
"""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

from replay_tutorial.apex.messages import Failure, Message
from replay_tutorial.apex.runs.signals import signals_deferred

SHUTDOWN_SECONDS = 5.0  # seconds that a process gets to end by itself, before it is ended
FIRST_PAUSE_SECONDS = 0.5  # seconds before the first replacement of an actor; twice as long each time
STABLE_SECONDS = 60.0  # seconds: who has lived so long has not died in a row with the one before


# What a run's processes import, the most of their start.
PRELOADED = ["replay_tutorial.apex.actor", "replay_tutorial.apex.learner", "replay_tutorial.apex.evaluator"]


def start_context() -> Any:
    """Return how processes are started: never as a copy of this one, whose threads' locks (OpenMP, CUDA) may be held.

    On Linux they are copies of a server that has imported what they need, and done nothing else: five processes that
    each import torch take seconds on two cores. Other systems' libraries do not stand a copy.
    """
    if sys.platform != "linux":
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class ProcessDied(RuntimeError):
    """A process of the run ended though nobody had asked it to; the message says why."""


class Role(NamedTuple):
    """What is needed to start a process, and to start it again."""

    name: str
    start: Callable[
        [int, Connection], tuple[Callable[..., None], object]
    ]  # life, pipe → function, its argument
    lives: int = 1  # how often it may be started in a row


class Worker:
    """One role and the process that fills it now, if any."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.life = 0  # processes started so far
        self.in_a_row = 0  # of them, those since the last healthy one
        self.process: BaseProcess | None = None
        self.messages: Connection | None = None
        self.started = 0.0  # time.monotonic()
        self.due: float | None = None  # when the next one is to be started

    def start(self) -> None:
        """Start a process; it begins to work in a few seconds, when its imports are done."""
        context = start_context()
        messages, other_end = context.Pipe(duplex=False)
        function, argument = self.role.start(self.life, other_end)
        process = context.Process(target=function, args=(argument,), name=self.role.name, daemon=True)
        with signals_deferred():
            try:
                process.start()
            except BaseException:
                messages.close()
                raise
            finally:
                other_end.close()  # the process has its own copy; with ours closed, its death closes the pipe
        self.process, self.messages = process, messages
        self.started, self.due = time.monotonic(), None
        self.life += 1
        self.in_a_row += 1

    def died(self) -> None:
        """Arrange a replacement.

        Raises:
            ProcessDied: If the role has no life left, with the way in which its last process ended.
        """
        assert self.process is not None and self.messages is not None
        cause = cause_of_death(self.process)
        self.messages.close()
        self.process = self.messages = None
        if time.monotonic() - self.started >= STABLE_SECONDS:
            self.in_a_row = 0
        if self.in_a_row >= self.role.lives:
            often = f", {self.in_a_row} times in a row" if self.in_a_row > 1 else ""
            raise ProcessDied(f"{self.role.name} {cause}{often}")
        self.due = time.monotonic() + FIRST_PAUSE_SECONDS * 2 ** max(0, self.in_a_row - 1)


class Supervisor:
    """The processes of a run. A context manager: they are gone when it is left, whatever happened.

    Args:
        roles: Who is to be started, in this order.
        ask_to_stop: Tells all of them to end.
    """

    def __init__(self, roles: Sequence[Role], ask_to_stop: Callable[[], None]) -> None:
        self.workers = [Worker(role) for role in roles]
        self.ask_to_stop = ask_to_stop
        self.stopping = False

    def __enter__(self) -> Self:
        """Start all processes."""
        try:
            for worker in self.workers:
                worker.start()
        except BaseException:
            self.end_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ask all processes to stop, and end those that don't; after a second Ctrl-C at once."""
        self.end_all(0.0 if kind is not None and issubclass(kind, KeyboardInterrupt) else SHUTDOWN_SECONDS)

    @property
    def restarts(self) -> int:
        """How many processes have been replaced."""
        return sum(max(0, worker.life - 1) for worker in self.workers)

    def hear(self, timeout: float) -> list[Message]:
        """Return the messages that have come, after at most `timeout` seconds; start the replacements that are due.

        Raises:
            ProcessDied: If a process has failed, or died once too often; with its traceback, exit code or signal.
        """
        wait([worker.messages for worker in self.workers if worker.messages is not None], timeout)
        heard: list[Message] = []
        for worker in self.workers:
            heard += self._hear(worker)
            if worker.due is not None and time.monotonic() >= worker.due and not self.stopping:
                worker.start()
        return heard

    def _hear(self, worker: Worker) -> list[Message]:
        heard: list[Message] = []
        if worker.process is None or worker.messages is None:
            return heard
        # On Windows a pipe outlives a process that dies before it has unpickled its end: we hold another one until
        # then. Asked before the pipe is read: what it said last is heard.
        gone = not worker.process.is_alive()
        try:
            while worker.messages.poll():
                message = worker.messages.recv()
                if isinstance(message, Failure):
                    raise ProcessDied(f"{worker.role.name} failed:\n\n{message.traceback}")
                heard.append(message)
            if gone:
                raise EOFError
        except (EOFError, OSError):
            if self.stopping:
                worker.messages.close()
                worker.messages = None
            else:
                worker.died()
        return heard

    def stop(self) -> None:
        """Ask all processes to end. From now on their ends are no deaths; `hear` tells what they still have to say."""
        self.stopping = True
        self.ask_to_stop()

    def is_working(self, name: str) -> bool:
        """Tell whether the process of a role is still there, or has still something to say."""
        return any(worker.messages is not None for worker in self.workers if worker.role.name == name)

    def end_all(self, seconds: float = SHUTDOWN_SECONDS) -> None:
        """See every process out: ask, wait a little, kill. Afterwards none is left."""
        self.stop()
        deadline = time.monotonic() + seconds
        # A full pipe would keep a process from its end: hear them out.
        while (left := deadline - time.monotonic()) > 0 and any(w.messages is not None for w in self.workers):
            try:
                self.hear(min(left, 0.1))
            except ProcessDied:
                continue  # there is another error on its way, or the run has its result
        for worker in self.workers:
            if worker.process is not None:
                worker.process.join(max(0.0, deadline - time.monotonic()))
                if worker.process.is_alive():
                    worker.process.kill()  # they ignore SIGTERM
                worker.process.join()
            if worker.messages is not None:
                worker.messages.close()


def cause_of_death(process: BaseProcess) -> str:
    """Say how a process ended."""
    process.join(SHUTDOWN_SECONDS)
    code = process.exitcode
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = "; perhaps memory ran out" if name == "SIGKILL" else ""
        return f"was killed by {name} (exit code {code}{hint})"
    return f"ended with exit code {code}; what it printed stands above"
