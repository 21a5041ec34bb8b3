"""Engines: what runs the roles of a run, and how the parent watches them until the run is over.

An engine is a layer above this folder, so nothing here can import it: it is passed to `train`, or is the one
of this machine, imported by its name. To write another one takes `make_context`, the five protocols of
`apex.context`, and `run`: what starts actors, learner and evaluator where they belong, as `Workers` for
`watch`. `cluster` is one, whose actors are elsewhere.

The parent neither plays nor learns. When the run is over, the actors just stop, the learner writes a last
checkpoint, and the evaluator evaluates the newest policy once more, unless nobody waits for it.
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
    """Runs actors, learner and evaluator somewhere."""

    def make_context(
        self, config: Config, spaces: Spaces, parameter_count: int, initial_counters: InitialCounters
    ) -> Context:
        """Reserve everything through which the roles meet; `parameter_count` is the policy's.

        Raises:
            MemoryError: If there is less room than the replay may come to need.
        """
        ...

    def run(self, setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
        """Run until it is solved, its budget is spent, or somebody asks it to stop.

        Raises:
            ProcessDied: If a role ended before its time. None is left then.
        """
        ...


def local_engine() -> Engine:
    """Return the engine that runs the roles as processes of this machine."""
    return import_module(LOCAL_ENGINE).LocalEngine()


class ProcessDied(RuntimeError):
    """A process of the run ended though nobody had asked it to; the message says why.

    Args:
        reason: Why.
        resumable: Whether the run can resume from its newest checkpoint; if not, the reason says what helps.
    """

    def __init__(self, reason: str, resumable: bool = True) -> None:
        super().__init__(reason)
        self.resumable = resumable


class Workers(Protocol):
    """The processes of a run, as the parent sees them."""

    _error: ProcessDied | None = None  # to be raised by the next `receive`

    @property
    def restarts(self) -> int:
        """How many processes have been replaced."""
        ...

    def receive(self, timeout: float) -> list[Message]:
        """Return the messages that have come, after at most `timeout` seconds.

        Raises:
            ProcessDied: If a process has failed, or died and is not replaced.
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
            self._error = error  # what came before it must not be lost
        return received

    def collect_messages(self, received: list[Message], timeout: float) -> None:
        """Append the messages to `received`, as `receive` says; replace the processes that are due."""
        ...

    def stop(self, last_evaluation: bool = False) -> None:
        """Ask all processes to end. From now on their ends are no deaths."""
        ...

    def is_working(self, role: str) -> bool:
        """Return whether the process of a role is still there, or its last messages are."""
        ...


def watch(setup: RunSetup, workers: Workers, recorder: Recorder, stop: StopRequest) -> End:
    """Record what the processes say until there is a reason to end, then let them end.

    Raises:
        ProcessDied: If one ended before its time; a learner that was left has written a last checkpoint.
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
    """Record what the processes say until there is a reason to end."""
    counters, total_steps = setup.context.counters, setup.context.config.total_steps
    while not stop.received:
        for message in workers.receive(POLL_SECONDS):
            recorder.receive(message)
            if isinstance(message, EvaluationReport) and message.solved:
                return "solved"
        if workers.restarts > recorder.restarts:
            recorder.restarts = workers.restarts
            recorder.print_line(f"an actor was killed and has been replaced; {workers.restarts} so far")
        recorder.update_progress(counters.steps)
        if counters.steps >= total_steps:
            return "budget spent"
    return "interrupted"


def drain(workers: Workers, recorder: Recorder, last_evaluation: Callable[[], bool]) -> None:
    """Wait for the learner's last checkpoint, and maybe the last evaluation, as long as they take.

    A second Ctrl-C is an exception that ends the waiting.
    """
    while workers.is_working("learner") or (last_evaluation() and workers.is_working("evaluator")):
        try:
            for message in workers.receive(POLL_SECONDS):
                recorder.receive(message)
        except ProcessDied as error:
            # The run is over, but this must not go unsaid.
            recorder.print_line(str(error))
