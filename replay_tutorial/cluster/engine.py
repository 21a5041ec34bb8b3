"""The cluster engine: actors on every host of a Ray cluster, all other roles on the learner's host.

The learner's host is the one on which `train` is called. The replay is in its shared memory, and the learner,
the evaluator, records, checkpoints and resuming work as in a run on one machine. Rows are sent once, with
each frame once; batches are never sent (see `gateway`). The replay is limited to one host's memory, and there
is one learner.

Paper: Horgan et al. 2018, section 3 and appendix F.
"""

from typing import TYPE_CHECKING

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, InitialCounters
from replay_tutorial.apex.runs.engine import Engine, watch
from replay_tutorial.apex.runs.files import CLUSTER_FILE
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import StopRequest
from replay_tutorial.cluster.connection import ClusterUnavailable, connect
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.local.local_engine import central_roles
from replay_tutorial.local.shared_context import make_shared_context
from replay_tutorial.local.supervisor import start_fork_server

if TYPE_CHECKING:
    from replay_tutorial.cluster.workers import ClusterWorkers


class ClusterEngine(Engine):
    """Runs the actors on a Ray cluster.

    Ray is imported only when the engine connects, because some of Ray's settings must be set before the
    import.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.connected = False  # whether this engine has connected

    def make_context(
        self, config: Config, spaces: Spaces, parameter_count: int, initial_counters: InitialCounters
    ) -> Context:
        """Connect to the cluster, wait until the actors fit, and allocate the learner's shared memory.

        Raises:
            ClusterUnavailable: If there is no such cluster, it has too few resources, or `actors` is 0.
            MemoryError: As for `Engine.make_context`.
        """
        if config.actors == 0:
            raise ClusterUnavailable(
                "actors is 0, but a cluster requires at least one actor. Omit --cluster."
            )
        start_fork_server()  # while Ray starts
        self.connected |= connect(self.options.address, config.actors * self.options.cpus_per_actor)

        from replay_tutorial.cluster.placement import wait_for_capacity

        try:
            wait_for_capacity(config.actors, self.options)
            return make_shared_context(config, spaces, parameter_count, initial_counters)
        except BaseException:
            self.disconnect()
            raise

    def run(self, setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
        from replay_tutorial.cluster.placement import describe

        try:
            setup.folder.write_json(CLUSTER_FILE, describe(self.options))
            with self.workers(setup) as workers:
                return watch(setup, workers, recorder, stop)
        finally:
            self.disconnect()

    def workers(self, setup: RunSetup) -> "ClusterWorkers":
        """Return the processes of a run; they have not been started."""
        from replay_tutorial.cluster.workers import ClusterWorkers

        return ClusterWorkers(setup, self.options, central_roles(setup))

    def disconnect(self) -> None:
        """Disconnect from the cluster if this engine has connected; a local cluster shuts down."""
        if self.connected:
            import ray

            ray.shutdown()
            self.connected = False
