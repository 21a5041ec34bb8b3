"""A run with processes: actors, learner and evaluator side by side, watched by the parent."""

from functools import partial
from multiprocessing.connection import Connection

from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import StopRequest
from replay_tutorial.apex.runs.watch import watch
from replay_tutorial.local.supervisor import Role, Start, Supervisor
from replay_tutorial.local.workers import act, evaluate, learn_and_save, run_worker


def roles(setup: RunSetup) -> list[Role]:
    """Return who takes part in a run."""
    context, config, folder = setup.context, setup.context.config, setup.folder
    checkpoint = None if setup.checkpoint is None else setup.checkpoint.path

    def learner(_: int, messages: Connection) -> Start:
        arguments = (setup.seeds.network, folder.path, checkpoint)
        return run_worker, (messages, context, learn_and_save, *arguments)

    def evaluator(_: int, messages: Connection) -> Start:
        arguments = (folder, setup.solved_at, setup.best, setup.evaluated_update)
        return run_worker, (messages, context, evaluate, *arguments)

    def actor(number: int, life: int, messages: Connection) -> Start:
        seed = setup.seeds.actor(number, setup.counters.update, life)
        return run_worker, (messages, context, act, number, seed)

    actors = [
        Role(f"actor {number}", partial(actor, number), max_restarts=config.restart_limit - 1)
        for number in range(config.actors)
    ]
    return [Role("learner", learner), *actors, Role("evaluator", evaluator)]


def run_parallel(setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
    """Run until it is solved, its budget is spent, or somebody asks it to stop.

    Raises:
        ProcessDied: As for `Engine.run`; the learner, if it is not the one, has written a last checkpoint.
    """
    with Supervisor(roles(setup), setup.context.stop.ask) as supervisor:
        return watch(setup, supervisor, recorder, stop)
