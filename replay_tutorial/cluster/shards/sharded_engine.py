"""The engine of many machines when the rows lie in shards: more than the learner's host could hold.

All else is as in the engine that it stands on: learner, evaluator, limiter and records on the host of the
driver, actors anywhere, gateways between them. What the learner's batches cost is said in `sharded_replay`.

Left out: several learners.
"""

from typing import TYPE_CHECKING, cast

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, Counters, Replay
from replay_tutorial.apex.runs.setup import RunSetup
from replay_tutorial.cluster.cluster_engine import ClusterEngine
from replay_tutorial.cluster.connection import ClusterUnavailable
from replay_tutorial.cluster.shards.rows_elsewhere import RowsElsewhere
from replay_tutorial.local.shared_context import context_around, make_limiter

if TYPE_CHECKING:
    from replay_tutorial.cluster.shards.sharded_workers import ShardedWorkers


class ShardedEngine(ClusterEngine):
    """Runs the actors and the shards of the replay on a cluster."""

    def make_context(
        self, config: Config, spaces: Spaces, parameter_count: int, counters: Counters
    ) -> Context:
        """Do as `ClusterEngine.make_context`; refuse more shards than rows."""
        shards = self.options.shards
        if config.capacity < shards:
            raise ClusterUnavailable(
                f"shards is {shards}, but the replay holds only {config.capacity} rows: each shard needs one "
                "at least. Raise --capacity or lower --shards."
            )
        return super().make_context(config, spaces, parameter_count, counters)

    def reserve(self, config: Config, spaces: Spaces, parameter_count: int, counters: Counters) -> Context:
        """Wait for the memory of the shards, and reserve what the learner's host holds itself.

        Raises:
            ClusterUnavailable: If the hosts have not as much.
        """
        from replay_tutorial.cluster.shards.shard_places import await_memory

        await_memory(config, spaces, self.options.shards)
        limiter = make_limiter(config, counters)
        replay = cast(Replay, RowsElsewhere(limiter, config.actors))
        return context_around(replay, limiter, config, spaces, parameter_count, counters)

    def workers(self, setup: RunSetup) -> "ShardedWorkers":
        """Return who takes part in a run, the shards among them."""
        from replay_tutorial.cluster.shards.sharded_workers import ShardedWorkers

        return ShardedWorkers(setup, self.options)
