"""A gateway as a Ray actor, how to call it, and which errors mean that a call was lost.

The process doesn't import torch, so that it starts and restarts a second earlier.
"""

import pickle
import zlib
from concurrent.futures import Future
from typing import Any, cast

import ray
from ray.exceptions import RayError, RayTaskError, UnserializableException

from replay_tutorial.apex.context import Context
from replay_tutorial.cluster.actor_link import GATEWAY_TIMEOUT_SECONDS
from replay_tutorial.cluster.gateway import Gateway
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
