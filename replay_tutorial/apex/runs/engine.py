"""Engines: run the roles of a run, and watch them until the run is over.

Engines are in layers above this folder and can't be imported here: `train` takes one as an argument, or
imports the local engine by name. To write another engine, implement `make_context`, the four protocols of
`apex.context`, and `run`, which starts actors, learner and evaluator and passes them to `watch` as `Workers`.
The engine in `cluster`, for example, runs the actors on other hosts.

The parent process itself neither acts nor learns. At the end of a run the actors stop and the learner writes
a last checkpoint. If the steps were used up, the evaluator evaluates the newest policy once more.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import POLL_SECONDS, Context, InitialCounters
from replay_tutorial.apex.messages import EvaluationReport, Message
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import ENDING, StopRequest

LOCAL_ENGINE = "replay_tutorial.local.local_engine"


class Engine(Protocol):
    """Runs actors, learner and evaluator."""

    def make_context(
        self, config: Config, spaces: Spaces, parameter_count: int, initial_counters: InitialCounters
    ) -> Context:
        """Allocate everything that the roles share.

        Raises:
            MemoryError: If the replay doesn't fit into memory when it is full.
        """
        ...

    def run(self, setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
        """Run until the environment is solved, the steps are used up, or a stop is requested.

        Raises:
            ProcessDied: If a role ended unexpectedly. All other processes have been stopped.
        """
        ...


def local_engine() -> Engine:
    """Return the engine that runs the roles as processes of this machine."""
    return import_module(LOCAL_ENGINE).LocalEngine()


class ProcessDied(RuntimeError):
    """A process of the run ended unexpectedly; the message states why.

    If the run isn't `resumable` from its newest checkpoint, the message states the remedy.
    """

    def __init__(self, reason: str, resumable: bool = True) -> None:
        super().__init__(reason)
        self.resumable = resumable


class Workers(Protocol):
    """The processes of a run, as seen by the parent."""

    _error: ProcessDied | None = None  # raised by the next `receive`

    @property
    def restarts(self) -> int:
        """Number of processes that have been restarted."""
        ...

    def receive(self, timeout: float) -> list[Message]:
        """Return the messages that have arrived, after at most `timeout` seconds.

        Raise ProcessDied if a process has failed, or has died and isn't restarted.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        received: list[Message] = []
        try:
            self.collect_messages(received, timeout)
        except ProcessDied as error:
            if not received:
                raise
            self._error = error  # the messages that arrived before it must not be lost
        return received

    def collect_messages(self, received: list[Message], timeout: float) -> None:
        """Append new messages to `received`, and restart processes that are due; see `receive`."""
        ...

    def stop(self, last_evaluation: bool = False) -> None:
        """Request all processes to stop; from now on their exits are expected."""
        ...

    def is_working(self, role: str) -> bool:
        """Return whether a role's process is running or has messages left to receive."""
        ...


def watch(setup: RunSetup, workers: Workers, recorder: Recorder, stop: StopRequest) -> End:
    """Record the messages of the processes until the run should end, then stop the processes.

    If a process ended unexpectedly, raise ProcessDied, after a last checkpoint if the learner still runs.
    """
    try:
        end = receive_until_end(setup, workers, recorder, stop)
    except Exception:
        workers.stop()
        drain(workers, recorder, lambda: False)
        raise
    if end == "interrupted":
        recorder.print_line(ENDING)
    workers.stop(last_evaluation=end == "budget spent")
    drain(workers, recorder, lambda: end == "budget spent" and not stop.received)
    return end


def receive_until_end(setup: RunSetup, workers: Workers, recorder: Recorder, stop: StopRequest) -> End:
    """Record the messages of the processes until the run should end; return the reason."""
    counters, total_steps = setup.context.counters, setup.context.config.total_steps
    if setup.best is not None and setup.best.solves(setup.solved_at):
        return "solved"  # the run was killed before or in its final evaluation
    while not stop.received:
        for message in workers.receive(POLL_SECONDS):
            recorder.receive(message)
            if isinstance(message, EvaluationReport) and message.solved:
                return "solved"
        if workers.restarts > recorder.restarts:
            recorder.restarts = workers.restarts
            recorder.print_line(
                f"an actor was killed and has been restarted; number of restarts: {workers.restarts}"
            )
        recorder.update_progress(counters.steps)
        if counters.steps >= total_steps:
            return "budget spent"
    return "interrupted"


def drain(workers: Workers, recorder: Recorder, last_evaluation: Callable[[], bool]) -> None:
    """Block until the learner has written its last checkpoint and, if requested, the last evaluation is done.

    There is no timeout; a second Ctrl-C raises an exception.
    """
    while workers.is_working("learner") or (last_evaluation() and workers.is_working("evaluator")):
        try:
            for message in workers.receive(POLL_SECONDS):
                recorder.receive(message)
        except ProcessDied as error:
            # The run is over, so the error is only printed.
            recorder.print_line(str(error))
