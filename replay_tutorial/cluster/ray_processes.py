"""The processes that Ray starts: gateways on the learner's host, and actors on any host.

A gateway is a Ray actor. Its process doesn't import torch, so that it starts and restarts a second earlier.
An actor is the same as on one machine, connected to the gateways. It runs in a Ray task, which Ray doesn't
retry: if it dies, the driver starts a new one with other seeds, wherever there is room (`workers`).
"""

import pickle
import socket
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError, UnserializableException

from replay_tutorial.agents.environments import Spaces, slow_steps_reported
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context
from replay_tutorial.apex.messages import Note
from replay_tutorial.apex.runs.run_provenance import digest_of_sources
from replay_tutorial.cluster.actor_link import GATEWAY_TIMEOUT_SECONDS, ActorLink
from replay_tutorial.cluster.gateway import Gateway, Report
from replay_tutorial.cluster.remote_context import remote_context
from replay_tutorial.local.shared_context import SharedReplay

# The called code raised an exception; the second type replaces one that can't be unpickled here.
CODE_ERRORS = (RayTaskError, UnserializableException)


class RemoteGateway(Gateway):
    """A gateway in its own process, from the context and limiter that `pack` returned.

    Ray restarts an actor only if its arguments take at most 100 kB, and the spaces of images are larger;
    packed they take 3 kB.
    """

    def __init__(self, packed: bytes) -> None:
        context, limiter = pickle.loads(zlib.decompress(packed))
        super().__init__(context, limiter, share)

    @staticmethod
    def pack(context: Context) -> bytes:
        """Return the compressed constructor arguments; shared memory is passed by its address."""
        limiter = cast(SharedReplay, context.replay).limiter
        return zlib.compress(pickle.dumps((context, limiter)))


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that a call was lost: its process, its host or the network failed."""
    return isinstance(error, RayError) and not isinstance(error, CODE_ERRORS)


def call(method: Any, *arguments: Any) -> Future[Any]:
    """Call a method of a gateway; if the call can't even be made, the future holds a RayError."""
    try:
        answer: Future[Any] = method.remote(*arguments).future()
    except (OSError, RayError) as error:  # this host's object store is full, or its Ray is shutting down
        answer = Future()
        answer.set_exception(error if isinstance(error, RayError) else RayError(str(error)))
    return answer


def share(array: Any) -> list[Any]:
    """Put an array into Ray's object store; return a list, because Ray would resolve a bare reference."""
    return [ray.put(array)]


def fetch(reference: list[Any]) -> Any:
    """Return a shared array, or None if the array or its host is gone."""
    try:
        return ray.get(reference[0], timeout=GATEWAY_TIMEOUT_SECONDS)
    except (RayError, OSError):  # OSError: this host's object store failed
        return None


class SourcesDiffer(RuntimeError):
    """A host has another version of this package than the learner's host."""


class ActorTask(NamedTuple):
    """The arguments of an actor's task."""

    config: Config
    spaces: Spaces
    number: int  # number of the actor
    restart_count: int
    seed: np.random.SeedSequence
    sources: str  # digest of the sources on the learner's host
    path: tuple[str, ...]  # sys.path of the learner's host: the environment's module may not be installed


def play(task: ActorTask, gateways: Sequence[Any]) -> None:
    """Act until the run is over; raise SourcesDiffer if this host has another version of the package."""
    if digest_of_sources() != task.sources:
        raise SourcesDiffer(
            f"{socket.gethostname()} has a different version of replay_tutorial from the learner's host. "
            "Install the same version on all hosts."
        )
    place = f"{socket.gethostname()} {ray.util.get_node_ip_address()}"
    call(gateways[task.number % len(gateways)].record_start, task.number, task.restart_count, place)

    import torch  # after the host is reported, because it takes seconds, on a busy host a minute

    from replay_tutorial.apex.actor import Actor

    sys.path.extend(place for place in task.path if place not in sys.path)
    torch.set_num_threads(task.config.threads)
    sends = [partial(call, gateway.send) for gateway in gateways]
    link = ActorLink(sends, task.number, task.restart_count, is_lost)
    context = remote_context(task.config, task.spaces, link, fetch)

    def report_slow_step(line: str) -> None:
        # Not through the link, which sends messages only between two steps.
        note = Note(f"actor {task.number}: {line}")
        report = Report(task.number, task.restart_count, link.rows_lost, (note,))
        link.gateways[link.turn % len(sends)](None, link.version, report)

    with slow_steps_reported(report_slow_step, task.config.slow_step_seconds):
        Actor(context, task.number, task.seed).run()
