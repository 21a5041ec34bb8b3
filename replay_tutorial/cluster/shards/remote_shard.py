"""How a shard is made a Ray actor, and called from the learner.

Ray does not begin it again when it dies: the next life has another number, which only the driver knows. Its
files are sent by a thread of their own, so that they keep nobody waiting for rows.

Left out: on which host it lives.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from replay_tutorial.cluster.shards.shard_files import ShardCalls

# Ray's options: in one life only, and no call is made twice.
OPTIONS: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {"files": 1}}


def shard_calls(shard: Any) -> ShardCalls:
    """Return how to call a shard, by Ray's handle of it."""

    def save() -> Iterator[Future[bytes]]:
        # The next piece is waited for here; if its host is gone, until Ray has noticed.
        for piece in shard.save.options(num_returns="streaming", concurrency_group="files").remote():
            yield piece.future()

    return ShardCalls(calling(shard.sample), calling(shard.update), save, calling(shard.load))


def calling(method: Any) -> Callable[..., Future[Any]]:
    """Return a function that calls a method of Ray's handle, and returns the Future of its answer."""

    def call(*arguments: Any) -> Future[Any]:
        return method.remote(*arguments).future()

    return call
