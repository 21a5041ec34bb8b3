"""The connection to Ray, and what of Ray's ways all callers have to know.

Ray's processes talk to each other with a token: whoever has it can run code on every host, so it is a secret.
A cluster that is started here, `local`, is for this machine only.

Left out: encryption. A token is no secret on a network that others can read; Ray has TLS for that.
"""

import os
import secrets
import sys
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

LOCAL = "local"
STORE_BYTES = 256 << 20  # for a local cluster: some chunks and parameters; the replay lies elsewhere
ANSWER_SECONDS = 10.0  # after which what another host was asked for won't come any more


class ClusterUnavailable(OSError):
    """There is no such cluster, or it has no room; the message says what would help."""


def connect(address: str, actors: int) -> None:
    """Connect this process to a cluster, or start one for this machine.

    Args:
        address: `auto`, `local` or host:port.
        actors: Actors that a local one is to have room for.

    Raises:
        ClusterUnavailable: If there is none, or it can't be used.
    """
    if sys.platform != "linux":
        raise ClusterUnavailable(
            f"--cluster needs Linux; this is {sys.platform}. Without it, train runs here."
        )
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "address": address}
    if address == LOCAL:
        if os.environ.get("RAY_AUTH_MODE") != "token":
            raise ClusterUnavailable(
                "Ray was imported before replay_tutorial.cluster, and so without its token: set "
                "RAY_AUTH_MODE=token in the environment, or import replay_tutorial.cluster first."
            )
        cpus = max(actors, os.cpu_count() or 1)
        options |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # nobody else is to have it
    try:
        ray.init(**options)
    except (RayError, ConnectionError, ValueError, RuntimeError) as error:
        raise ClusterUnavailable(f"the cluster at {address} can't be used: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return why Ray refused, with the remedy where there is one."""
    text = str(error)
    if "AuthenticationError" in type(error).__name__ or "InvalidAuthToken" in text:
        return (
            "its token is not the one of this host. `ray get-auth-token` shows the one here; copy "
            "~/.ray/auth_token from the cluster's head, or name a copy by RAY_AUTH_TOKEN_PATH."
        )
    if "Version mismatch" in text:
        return f"its versions are others than here.\n{text}"
    return (
        f"{text.strip() or type(error).__name__} Start one with `ray start --head`, or use --cluster local."
    )


def is_lost(error: BaseException) -> bool:
    """Return whether a call did not get through: its process, its host or the way to it is gone."""
    return isinstance(error, RayError) and not isinstance(error, RayTaskError)


def share(array: Any) -> list[Any]:
    """Put an array where every host can read it; a list, or Ray would send the array itself."""
    return [ray.put(array)]


def fetch(reference: list[Any]) -> Any:
    """Return what was shared; None if it is gone, or its host is."""
    try:
        return ray.get(reference[0], timeout=ANSWER_SECONDS)
    except RayError as error:
        if not is_lost(error):
            raise
        return None
