"""The supervisor: starts the processes of a run, receives their messages, and replaces dead actors.

The supervisor never blocks on a process that may have died. Each process sends messages through its own pipe,
which is closed when the process ends; the stop flag is a number in shared memory, without a lock. If an actor
dies, only its unfinished episodes are lost, so it is replaced, after a delay that doubles each time, until it
has died too often in a row. If any other process ends early, the run ends with the cause; it can then be
resumed from its checkpoint.
"""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

from replay_tutorial.apex.messages import Failure, Message
from replay_tutorial.apex.runs.engine import ProcessDied, Workers
from replay_tutorial.apex.runs.restart_policy import RestartPolicy
from replay_tutorial.apex.runs.signals import signals_deferred

SHUTDOWN_SECONDS = 5.0  # grace period before a process is killed
LOST = 255  # exit code of a process whose fork server died before it could report the real one

Start = tuple[Callable[..., None], tuple[object, ...]]  # the function of a process, and its arguments


def start_context() -> Any:
    """Return the multiprocessing context: "forkserver" on Linux, "spawn" elsewhere.

    Forking this process is not safe, because its threads may hold locks (OpenMP, CUDA). The fork server has
    imported all dependencies, because importing torch in five processes takes seconds on two cores. On other
    systems, libraries don't support being forked.
    """
    if sys.platform != "linux":
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["replay_tutorial.local.fork_server", "replay_tutorial.local.workers"])
    return context


def start_fork_server() -> None:
    """Start the fork server on Linux, so that its imports, which take seconds, run in the background."""
    if sys.platform == "linux":
        from multiprocessing import forkserver

        start_context()
        forkserver.ensure_running()


class Role(NamedTuple):
    """How to start, and restart, the process of a role."""

    name: str
    start: Callable[[int, Connection], Start]  # number of earlier starts, pipe → function and arguments
    max_failures: int | None = None  # consecutive failures that end the run; None: the first failure ends it


class Worker:
    """A role and its current process, if any."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.restart_policy = RestartPolicy(role.name, role.max_failures)
        self.process: BaseProcess | None = None
        self.messages: Connection | None = None

    def start(self) -> None:
        """Start a process; raise ProcessDied if the system can't, or the fork server was killed."""
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
                    f"{self.role.name} could not be started ({type(error).__name__}: {error}); the fork "
                    "server may have been killed because memory ran out"
                ) from error
            except BaseException:
                messages.close()
                raise
            finally:
                # The process has its own copy. Close ours, so that the pipe is closed when the process dies.
                other_end.close()
        self.process, self.messages = process, messages
        self.restart_policy.record_start()

    def handle_death(self) -> None:
        """Schedule a restart after the death of the process, or raise ProcessDied if none is allowed."""
        assert self.process is not None and self.messages is not None
        cause = describe_exit(self.process)
        self.messages.close()
        self.process = self.messages = None
        self.restart_policy.record_failure(cause)


class Supervisor(Workers):
    """Context manager that starts the processes of a run, and makes sure that all have ended when it exits.

    `request_stop` asks all processes to stop; with True, the evaluator makes a last evaluation first.
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
            self.stop_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ask all processes to stop and kill those that don't; kill at once after a second Ctrl-C."""
        self.stop_all(0.0 if kind is not None and issubclass(kind, KeyboardInterrupt) else SHUTDOWN_SECONDS)

    @property
    def restarts(self) -> int:
        return sum(worker.restart_policy.restarts for worker in self.workers)

    def collect_messages(self, received: list[Message], timeout: float) -> None:
        with suppress(InterruptedError):  # on Windows, Ctrl-C interrupts it even if the handler returns
            wait([worker.messages for worker in self.workers if worker.messages is not None], timeout)
        for worker in self.workers:
            self._receive(worker, received)
            if worker.restart_policy.is_due() and not self.stopping:
                worker.start()

    def _receive(self, worker: Worker, received: list[Message]) -> None:
        if worker.process is None or worker.messages is None:
            return
        # On Windows the pipe stays open if a process dies before it has unpickled its end, because we still
        # hold a duplicate. Checked before reading the pipe, so that the last message is received.
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
                worker.handle_death()

    def stop(self, last_evaluation: bool = False) -> None:
        self.stopping = True
        self.request_stop(last_evaluation)

    def is_working(self, role: str) -> bool:
        return any(worker.messages is not None for worker in self.workers if worker.role.name == role)

    def stop_all(self, seconds: float = SHUTDOWN_SECONDS) -> None:
        """Stop every process: ask it to end, wait up to `seconds`, then kill it."""
        self.stop()
        deadline = time.monotonic() + seconds
        # Keep reading, because a process can't end while it is writing to a full pipe.
        while (left := deadline - time.monotonic()) > 0 and any(w.messages is not None for w in self.workers):
            try:
                self.receive(min(left, 0.1))
            except ProcessDied:
                continue  # another error is being raised, or the run already has a result
        for worker in self.workers:
            if worker.process is not None:
                worker.process.join(max(0.0, deadline - time.monotonic()))
                if worker.process.is_alive():
                    worker.process.kill()  # because they ignore SIGTERM
                worker.process.join()
            if worker.messages is not None:
                worker.messages.close()


def describe_exit(process: BaseProcess) -> str:
    """Describe how a process ended, for an error message."""
    process.join(SHUTDOWN_SECONDS)
    code = process.exitcode
    if code == LOST:
        return "is lost: its fork server was killed (possibly out of memory)"
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = "; possibly out of memory" if name == "SIGKILL" else ""
        return f"was killed by {name} (exit code {code}{hint})"
    return f"ended with exit code {code}; see the output above"
