"""The engine of this machine: roles as processes that meet in shared memory, or in turns in one process."""

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, Counters
from replay_tutorial.apex.runs.engine import Engine
from replay_tutorial.apex.runs.files import CLUSTER_FILE
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import StopRequest
from replay_tutorial.local.parallel import run_parallel
from replay_tutorial.local.serial import run_serial
from replay_tutorial.local.shared_context import make_shared_context


class LocalEngine(Engine):
    """Runs the roles on this machine."""

    def make_context(
        self, config: Config, spaces: Spaces, parameter_count: int, counters: Counters
    ) -> Context:
        return make_shared_context(config, spaces, parameter_count, counters)

    def run(self, setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
        (setup.folder.path / CLUSTER_FILE).unlink(missing_ok=True)  # the next `resume` stays here, too
        run = run_parallel if setup.context.config.actors else run_serial
        return run(setup, recorder, stop)
