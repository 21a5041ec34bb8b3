"""A run with processes: actors, learner and evaluator side by side, watched by the parent.

The parent neither plays nor learns: it hears what the others say, writes the records, and decides when it is over. When
it is, the actors just end, the learner writes a last checkpoint, and the evaluator takes a last look at the newest
policy, unless nobody waits for it.
"""

from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

from replay_tutorial.apex.actor import ActorTask, run_actor
from replay_tutorial.apex.evaluator import EvaluatorTask, run_evaluator
from replay_tutorial.apex.learner import LearnerTask, run_learner
from replay_tutorial.apex.messages import EvaluationReport
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import StopRequest
from replay_tutorial.local.shared_context import POLL_SECONDS
from replay_tutorial.local.supervisor import ProcessDied, Role, Supervisor


def roles(setup: RunSetup) -> list[Role]:
    """Return who takes part in a run."""
    common, config = setup.common, setup.common.config

    def learner(_: int, messages: Connection) -> tuple[Callable[..., None], object]:
        checkpoint = None if setup.checkpoint is None else setup.checkpoint.path
        return run_learner, LearnerTask(common, setup.seeds.network, setup.folder.path, checkpoint, messages)

    def evaluator(_: int, messages: Connection) -> tuple[Callable[..., None], object]:
        task = EvaluatorTask(
            common, setup.folder, setup.solved_at, setup.best, setup.evaluated_update, messages
        )
        return run_evaluator, task

    def actor(number: int, life: int, messages: Connection) -> tuple[Callable[..., None], object]:
        seed = setup.seeds.actor(number, common.first_update, life)
        return run_actor, ActorTask(common, number, seed, messages)

    actors = [
        Role(f"actor {number}", partial(actor, number), lives=config.restart_limit)
        for number in range(config.actors)
    ]
    return [Role("learner", learner), *actors, Role("evaluator", evaluator)]


def run_parallel(setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
    """Run until it is solved, its budget is spent, or somebody asks it to stop.

    Raises:
        ProcessDied: If a process ended before its time. The others are gone, too, but the learner, if it is not the
            one, has written a last checkpoint.
    """
    common = setup.common
    with Supervisor(roles(setup), common.ask_to_stop) as supervisor:
        try:
            end = watch(setup, supervisor, recorder, stop)
        except Exception:
            drain(supervisor, recorder, lambda: False)
            raise
        if end == "budget spent":
            common.ask_for_last_look()
        drain(supervisor, recorder, lambda: common.last_look and not stop.received)
    return end


def drain(supervisor: Supervisor, recorder: Recorder, last_look: Callable[[], bool]) -> None:
    """Wait for the learner's last checkpoint, and maybe the evaluator's last look, as long as they take.

    A second Ctrl-C is an exception that ends the waiting.
    """
    supervisor.stop()
    while supervisor.is_working("learner") or (last_look() and supervisor.is_working("evaluator")):
        try:
            for message in supervisor.hear(POLL_SECONDS):
                recorder.hear(message)
        except ProcessDied as error:  # the run is over, but it shall not be a secret
            recorder.say(str(error))


def watch(setup: RunSetup, supervisor: Supervisor, recorder: Recorder, stop: StopRequest) -> End:
    """Hear the processes until there is a reason to end."""
    common = setup.common
    while not stop.received:
        for message in supervisor.hear(POLL_SECONDS):
            recorder.hear(message)
            if isinstance(message, EvaluationReport) and message.solved:
                return "solved"
        if supervisor.restarts > recorder.restarts:
            recorder.restarts = supervisor.restarts
            recorder.say(f"an actor was killed and has been replaced; {supervisor.restarts} so far")
        recorder.show(common.steps)
        if common.steps >= common.config.total_steps:
            return "budget spent"
    return "interrupted"
