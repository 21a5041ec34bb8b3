"""The supervisor: starts a run's processes, receives their messages, replaces killed actors, ends them all.

Nothing here waits for a process that can die: messages come through one pipe per process, which ends when the
process does, and the stop flag is one number of shared memory without a lock. An actor that is killed costs
the run only its open episodes, so another takes its place, after a pause that doubles each time, until it has
died too often in a row. Any other process that ends before its time ends the run, and the parent says why.

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
from replay_tutorial.apex.runs.engine import ProcessDied, Workers
from replay_tutorial.apex.runs.restart_policy import RestartPolicy
from replay_tutorial.apex.runs.signals import signals_deferred

SHUTDOWN_SECONDS = 5.0  # that a process gets to end by itself, before it is killed
LOST = 255  # the exit code of a process whose server died before it could tell it

Start = tuple[Callable[..., None], tuple[object, ...]]  # a process's function, and its arguments


def start_context() -> Any:
    """Return how to start processes: not as a copy of this one, whose threads may hold locks (OpenMP, CUDA).

    On Linux they are copies of a server that has only imported what they need: five processes that each
    import torch take seconds on two cores. Other systems' libraries do not survive being copied.
    """
    if sys.platform != "linux":
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["replay_tutorial.local.fork_server", "replay_tutorial.local.workers"])
    return context


def start_fork_server() -> None:
    """Start the server that processes are copied from, where there is one: its imports take seconds.

    For who has something else to wait for meanwhile.
    """
    if sys.platform == "linux":
        from multiprocessing import forkserver

        start_context()
        forkserver.ensure_running()


class Role(NamedTuple):
    """What is needed to start a process, and to start it again."""

    name: str
    start: Callable[[int, Connection], Start]  # life and pipe → what the process calls
    max_failures: int | None = None  # in a row, that end the run; None if it is never replaced


class Worker:
    """One role and the process that fills it now, if any."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.restart_policy = RestartPolicy(role.name, role.max_failures)
        self.process: BaseProcess | None = None
        self.messages: Connection | None = None

    def start(self) -> None:
        """Start a process; it begins to work in a few seconds, when its imports are done.

        Raises:
            ProcessDied: If the system can't start one, or the server that starts them was killed.
        """
        context = start_context()
        messages, other_end = context.Pipe(duplex=False)
        function, arguments = self.role.start(self.restart_policy.starts, other_end)
        process = context.Process(target=function, args=arguments, name=self.role.name, daemon=True)
        with signals_deferred():
            try:
                process.start()
            except (EOFError, OSError) as error:
                messages.close()
                raise ProcessDied(
                    f"{self.role.name} could not be started ({type(error).__name__}: {error}); perhaps the "
                    "server that starts processes was killed because memory ran out"
                ) from error
            except BaseException:
                messages.close()
                raise
            finally:
                # The process has its own copy; with ours closed, its death closes the pipe.
                other_end.close()
        self.process, self.messages = process, messages
        self.restart_policy.record_start()

    def died(self) -> None:
        """Arrange a replacement.

        Raises:
            ProcessDied: If the role is not replaced, or has been too often; says how its process ended.
        """
        assert self.process is not None and self.messages is not None
        cause = cause_of_death(self.process)
        self.messages.close()
        self.process = self.messages = None
        self.restart_policy.record_failure(cause)


class Supervisor(Workers):
    """The processes of a run. A context manager: they are gone when it is left, whatever happened.

    Args:
        roles: Who is to be started, in this order.
        request_stop: Asks all of them to end, the evaluator perhaps after a last evaluation.
    """

    def __init__(self, roles: Sequence[Role], request_stop: Callable[[bool], None]) -> None:
        self.workers = [Worker(role) for role in roles]
        self.request_stop = request_stop
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
        return sum(worker.restart_policy.restarts for worker in self.workers)

    def collect_messages(self, received: list[Message], timeout: float) -> None:
        wait([worker.messages for worker in self.workers if worker.messages is not None], timeout)
        for worker in self.workers:
            self._receive(worker, received)
            if worker.restart_policy.is_due() and not self.stopping:
                worker.start()

    def _receive(self, worker: Worker, received: list[Message]) -> None:
        if worker.process is None or worker.messages is None:
            return
        # On Windows a pipe outlives a process that dies before it has unpickled its end: we hold another one
        # until then. Asked before the pipe is read, so that its last message is received.
        gone = not worker.process.is_alive()
        try:
            while worker.messages.poll():
                message = worker.messages.recv()
                if isinstance(message, Failure):
                    reason = f"{worker.role.name} failed: {message.traceback}"
                    raise ProcessDied(reason, message.resumable)
                received.append(message)
            if gone:
                raise EOFError
        except (EOFError, OSError):
            if self.stopping:
                worker.messages.close()
                worker.messages = None
            else:
                worker.died()

    def stop(self, last_evaluation: bool = False) -> None:
        self.stopping = True
        self.request_stop(last_evaluation)

    def is_working(self, role: str) -> bool:
        return any(worker.messages is not None for worker in self.workers if worker.role.name == role)

    def end_all(self, seconds: float = SHUTDOWN_SECONDS) -> None:
        """End every process: ask, wait a little, kill. Afterwards none is left."""
        self.stop()
        deadline = time.monotonic() + seconds
        # A full pipe would keep a process from its end: empty it.
        while (left := deadline - time.monotonic()) > 0 and any(w.messages is not None for w in self.workers):
            try:
                self.receive(min(left, 0.1))
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
    if code == LOST:
        return "is lost: the server that started it was killed (perhaps memory ran out)"
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = "; perhaps memory ran out" if name == "SIGKILL" else ""
        return f"was killed by {name} (exit code {code}{hint})"
    return f"ended with exit code {code}; see the output above"
