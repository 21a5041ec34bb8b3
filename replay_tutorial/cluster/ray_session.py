"""What of Ray's ways all callers have to know: how a call fails, and how arrays are shared."""

from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, UnserializableException

from replay_tutorial.cluster.actor_link import GATEWAY_ANSWER_SECONDS

# The called code failed: with an error, or with one that can't be brought here.
WRONG = (RayTaskError, UnserializableException)


def is_lost(error: BaseException) -> bool:
    """Return whether a call did not get through: its process, its host or the way to it is gone."""
    return isinstance(error, RayError) and not isinstance(error, WRONG)


def call(method: Any, *arguments: Any) -> Future[Any]:
    """Call a method of a Ray actor; the answer is an error of Ray's also if it could not even be called."""
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
