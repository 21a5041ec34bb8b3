"""Connecting to a Ray cluster, or starting one for this machine alone.

Ray's processes talk to each other with a token: whoever has it can run code on every host, so it is a secret.
What Ray is to do otherwise it must be told before it is imported, so nothing here imports it at the top.

Left out: encryption. A token is no secret on a network that others can read; Ray has TLS for that.
"""

import math
import os
import secrets
import signal
import socket
import sys
from typing import Any

LOCAL = "local"
STORE_BYTES = 1 << 30  # for a local cluster, at most: chunks and parameters
KNOCK_SECONDS = 3.0  # after which nobody listens at an address; Ray itself would go on trying for minutes
STARTUP = "timed out during startup"  # what Ray says of a host that it could not begin in half a minute
# With a token, and on 127.0.0.1 only. By itself Ray listens on every network, except where it is told not to
# form clusters: it knows no other name for that.
PRIVATE = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class ClusterUnavailable(OSError):
    """There is no such cluster, or it has no room; the message says what would help."""


def connect(address: str, cpus: float) -> bool:
    """Connect this process to a cluster, or start one for this machine.

    Args:
        address: `auto`, `local` or host:port.
        cpus: That a local one is to have at least.

    Returns:
        Whether this process was not connected yet; one that was stays so, whatever the address.

    Raises:
        ClusterUnavailable: If there is none, or it can't be used.
    """
    if sys.platform != "linux":
        raise ClusterUnavailable(f"--cluster needs Linux; this is {sys.platform}. Leave it out to run here.")
    if (loaded := sys.modules.get("ray")) is not None and loaded.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "address": address}
    if address == LOCAL:
        make_private()
        room = {"num_cpus": max(math.ceil(cpus), os.cpu_count() or 1), "object_store_memory": STORE_BYTES}
        options |= {"include_dashboard": False, **room}

    import ray
    from ray.exceptions import RayError

    if address not in ("auto", LOCAL):
        knock(address)
    # What Ray starts here must outlive a closed terminal until the run has ended; of Ctrl-C Ray sees to that.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        ray.init(**options)
    except Exception as error:
        known = isinstance(error, RayError | OSError | ValueError | RuntimeError)
        if not known and STARTUP not in str(error):  # for that Ray has no class of its own
            raise
        raise ClusterUnavailable(f"the cluster at {address} can't be used: {reason_of(error)}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return True


def make_private() -> None:
    """See to it that a Ray that is started here listens to nobody but this machine's owner.

    Raises:
        ClusterUnavailable: If it is too late for that.
    """
    if sys.modules.get("ray") is not None and not PRIVATE.items() <= os.environ.items():
        settings = " ".join(f"{name}={value}" for name, value in PRIVATE.items())
        raise ClusterUnavailable(
            "Ray was imported before a cluster could be started for this machine alone: set "
            f"{settings} in the environment, or import Ray later."
        )
    os.environ.update(PRIVATE)
    if "ray" not in sys.modules:  # Ray keeps the first one that it has read
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # nobody else is to have it


def knock(address: str) -> None:
    """Refuse an address at which nobody listens.

    Raises:
        ClusterUnavailable: If it is no address, or nobody listens there.
    """
    import ray

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterUnavailable(
            f"{address!r} is no address of a cluster: give auto, local, or host:port (Ray's own is 6379)."
        )
    # Ray takes this name for the address that other hosts know this one by.
    host = ray.util.get_node_ip_address() if host in ("localhost", "127.0.0.1") else host.strip("[]")
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()
    except OSError as error:
        raise ClusterUnavailable(
            f"nobody answers at {host}:{port} ({error}). `ray start --head` prints the address to use."
        ) from error


def reason_of(error: Exception) -> str:
    """Return why Ray refused, with the remedy where there is one."""
    text, refused = str(error), "AuthenticationError" in type(error).__name__
    # of a wrong token it says only that it failed to connect, 20 seconds later
    if refused or "Failed to connect" in text:
        return (
            f"{'' if refused else 'what listens there is no Ray that works, or '}its token is not the one of "
            "this host. `ray get-auth-token` shows the one here; copy ~/.ray/auth_token from the cluster's "
            "head, or name a copy by RAY_AUTH_TOKEN_PATH."
        )
    if STARTUP in text:
        return f"Ray could not begin in time: the machine is busy, or out of memory. Try again.\n{text}"
    if "Version mismatch" in text:
        return f"its versions are others than here.\n{text}"
    return (
        f"{text.strip() or type(error).__name__} Start one with `ray start --head`, or use --cluster local."
    )
