"""The local engine: runs the roles as processes with shared memory, or in turns in one process."""

from functools import partial
from multiprocessing.connection import Connection

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, InitialCounters
from replay_tutorial.apex.runs.engine import Engine, watch
from replay_tutorial.apex.runs.files import CLUSTER_FILE
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import StopRequest
from replay_tutorial.local.serial import run_serial
from replay_tutorial.local.shared_context import make_shared_context
from replay_tutorial.local.supervisor import Role, Start, Supervisor
from replay_tutorial.local.workers import act, evaluate, learn_and_save, run_worker


class LocalEngine(Engine):
    """Runs all roles on this machine."""

    def make_context(
        self, config: Config, spaces: Spaces, parameter_count: int, initial_counters: InitialCounters
    ) -> Context:
        return make_shared_context(config, spaces, parameter_count, initial_counters)

    def run(self, setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
        (setup.folder.path / CLUSTER_FILE).unlink(missing_ok=True)  # so that `resume` is local, too
        if setup.context.config.actors == 0:
            return run_serial(setup, recorder, stop)
        with Supervisor(roles(setup), setup.context.stop.request) as supervisor:
            return watch(setup, supervisor, recorder, stop)


def central_roles(setup: RunSetup) -> list[Role]:
    """Return the learner and the evaluator, which run on the host of the replay."""

    def start_learner(_: int, messages: Connection) -> Start:
        checkpoint = None if setup.checkpoint is None else setup.checkpoint.path
        arguments = (setup.seeds.network, setup.folder.path, checkpoint)
        return run_worker, (messages, setup.context, learn_and_save, *arguments)

    def start_evaluator(_: int, messages: Connection) -> Start:
        arguments = (setup.folder, setup.solved_at, setup.best, setup.evaluated_update)
        return run_worker, (messages, setup.context, evaluate, *arguments)

    return [Role("learner", start_learner), Role("evaluator", start_evaluator)]


def roles(setup: RunSetup) -> list[Role]:
    """Return all roles of a run."""

    def start_actor(number: int, restart_count: int, messages: Connection) -> Start:
        seed = setup.seeds.actor(number, setup.initial_counters.steps, restart_count)
        return run_worker, (messages, setup.context, act, number, seed)

    config = setup.context.config
    actors = [
        Role(f"actor {number}", partial(start_actor, number), max_failures=config.restart_limit)
        for number in range(config.actors)
    ]
    learner, evaluator = central_roles(setup)
    return [learner, *actors, evaluator]
