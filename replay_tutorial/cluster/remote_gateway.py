"""A gateway as an actor of Ray's, and how it is called: which errors say that a call was lost.

Its process imports no torch, so it is there, and there again, a second earlier.
"""

import pickle
import zlib
from concurrent.futures import Future
from typing import Any, cast

import ray
from ray.exceptions import RayError, RayTaskError, UnserializableException

from replay_tutorial.apex.context import Context
from replay_tutorial.cluster.actor_link import GATEWAY_ANSWER_SECONDS
from replay_tutorial.cluster.gateway import Gateway
from replay_tutorial.local.shared_context import SharedReplay

# The called code failed: with an error, or with one that can't be brought here.
WRONG = (RayTaskError, UnserializableException)


class RemoteGateway(Gateway):
    """A gateway in a process of its own.

    Args:
        packed: Its context and limiter. Spaces of images are large, and Ray starts an actor again only with
            arguments of at most 100 kB: these are 3.
    """

    def __init__(self, packed: bytes) -> None:
        context, limiter = pickle.loads(zlib.decompress(packed))
        super().__init__(context, limiter, share)

    @staticmethod
    def pack(context: Context) -> bytes:
        """Pack what a gateway is made of; shared memory goes by its address."""
        limiter = cast(SharedReplay, context.replay).limiter
        return zlib.compress(pickle.dumps((context, limiter)))


def is_lost(error: BaseException) -> bool:
    """Return whether a call did not get through: its process, its host or the way to it is gone."""
    return isinstance(error, RayError) and not isinstance(error, WRONG)


def call(method: Any, *arguments: Any) -> Future[Any]:
    """Call a method of a gateway; the answer is an error of Ray's also if it could not even be called."""
    try:
        answer: Future[Any] = method.remote(*arguments).future()
    except (OSError, RayError) as error:  # the host's own store has no room, or its Ray is dying
        answer = Future()
        answer.set_exception(error if isinstance(error, RayError) else RayError(str(error)))
    return answer


def share(array: Any) -> list[Any]:
    """Put an array where every host can read it; a list, or Ray would send the array itself."""
    return [ray.put(array)]


def fetch(reference: list[Any]) -> Any:
    """Return what was shared; None if it is gone, or its host is."""
    try:
        return ray.get(reference[0], timeout=GATEWAY_ANSWER_SECONDS)
    except (RayError, OSError):  # also if this host's own store fails
        return None
