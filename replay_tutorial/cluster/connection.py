"""Connecting to a Ray cluster, or starting one for this machine alone.

Ray's processes talk to each other with a token: whoever has it can run code on every host, so it is a secret.
What Ray is to do otherwise it must be told before it is imported, so nothing here imports it at the top.

Left out: encryption. A token is no secret on a network that others can read; Ray has TLS for that.
"""

import logging
import math
import os
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

LOCAL = "local"
STORE_BYTES = 1 << 30  # for a local cluster, at most: chunks and parameters
CONNECT_TIMEOUT_SECONDS = (
    3.0  # after which nobody listens at an address; Ray itself would go on trying for minutes
)
STARTUP_TIMED_OUT = (
    "timed out during startup"  # what Ray says of a host that it could not begin in half a minute
)
# With a token, and on 127.0.0.1 only. By itself Ray listens on every network, except where it is told not to
# form clusters: it knows no other name for that.
PRIVATE_ENVIRONMENT = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
NO_TOKEN = "anybody who can reach this cluster can run code on it."
TOKEN_INSTRUCTIONS = (
    "run `ray get-auth-token --generate` on one host, copy its ~/.ray/auth_token to all others, and start "
    "Ray on each host by `RAY_AUTH_MODE=token ray start ...`"
)

# A line of Ray's C++ code: [2026-11-23 01:10:22,987 W 9380 9380] gcs_client.cc:210: Failed to ...
LOGGED = re.compile(rb"\[\d{4}-\d\d-\d\d [\d:,]+ [A-Z] \d+ \d+\] (\([^)]*\) )?\w+\.cc:\d+: ")

log = logging.getLogger(__name__)


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
        restrict_to_localhost()
        room = {"num_cpus": max(math.ceil(cpus), os.cpu_count() or 1), "object_store_memory": STORE_BYTES}
        options |= {"include_dashboard": False, **room}

    import ray
    from ray.exceptions import RayError

    suppress_driver_output()
    if address != LOCAL:
        options["address"] = check_reachable(address)
    # What Ray starts here must outlive a closed terminal until the run has ended; of Ctrl-C Ray sees to that.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        with ray_logs_dropped():
            ray.init(**options)
    except Exception as error:
        known = isinstance(error, RayError | OSError | ValueError | RuntimeError)
        if not known and STARTUP_TIMED_OUT not in str(error):  # for that Ray has no class of its own
            raise
        raise ClusterUnavailable(f"the cluster at {address} can't be used: {reason_of(error)}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if os.environ.get("RAY_AUTH_MODE") != "token":
        log.warning("%s To require a token, %s.", NO_TOKEN, TOKEN_INSTRUCTIONS)
    return True


def suppress_driver_output() -> None:
    """Keep Ray's thread from printing what went wrong on other hosts, stack traces of C++ code among it.

    Ray has no setting for that: `log_to_driver` is for other output. Our lines say which host is gone.
    """
    from ray._private import worker

    def to_log(data: object, ignore_prefix: bool) -> None:
        log.debug("%s", data)

    worker.print_to_stdstream = to_log


@contextmanager
def ray_logs_dropped() -> Generator[None]:
    """Drop the lines that Ray's C++ code logs to stderr: 20 of them while it connects would hide our message.

    Ray's own setting has an effect only when it has connected. All other lines pass.
    """
    sys.stderr.flush()
    terminal, (end, start) = os.dup(2), os.pipe()
    os.dup2(start, 2)
    os.close(start)

    def forward() -> None:
        with open(end, "rb") as lines:
            for line in lines:
                if not LOGGED.match(line):
                    os.write(terminal, line)
        os.close(terminal)

    thread = threading.Thread(target=forward, daemon=True)
    thread.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(
            terminal, 2
        )  # the pipe ends with its last copy, unless a process that Ray has started has one
        thread.join(1.0)


def restrict_to_localhost() -> None:
    """See to it that a Ray that is started here listens to nobody but this machine's owner.

    Raises:
        ClusterUnavailable: If it is too late for that.
    """
    if sys.modules.get("ray") is not None and not PRIVATE_ENVIRONMENT.items() <= os.environ.items():
        settings = " ".join(f"{name}={value}" for name, value in PRIVATE_ENVIRONMENT.items())
        raise ClusterUnavailable(
            "Ray was imported before a cluster could be started for this machine alone: set "
            f"{settings} in the environment, or import Ray later."
        )
    os.environ.update(PRIVATE_ENVIRONMENT)
    if "ray" not in sys.modules:  # Ray keeps the first one that it has read
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # nobody else is to have it


def check_reachable(address: str) -> str:
    """Return the address of a cluster, host:port, if anything listens there.

    Args:
        address: That, or `auto` for the cluster that this host belongs to.

    Raises:
        ClusterUnavailable: If it is no address, this host belongs to no cluster, or nothing listens there.
    """
    import ray
    from ray._private.services import canonicalize_bootstrap_address

    if address == "auto":
        try:  # the address may be that of a Ray that has been killed: Ray keeps it in a file
            address = str(canonicalize_bootstrap_address(address))
        except ConnectionError as error:
            raise ClusterUnavailable(
                "no Ray runs on this host: start one with `ray start --head`, or use --cluster local."
            ) from error
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterUnavailable(
            f"{address!r} is no address of a cluster: give auto, local, or host:port (Ray's own is 6379)."
        )
    # Ray takes this name for the address that other hosts know this one by.
    host = ray.util.get_node_ip_address() if host in ("localhost", "127.0.0.1") else host.strip("[]")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_SECONDS).close()
    except OSError as error:
        raise ClusterUnavailable(
            f"nothing answers at {host}:{port} ({error}). `ray start --head` prints the address to use."
        ) from error
    return address


def reason_of(error: Exception) -> str:
    """Return why Ray refused, with the remedy where there is one."""
    text = str(error)
    if "no authentication token was found" in text:
        return (
            "RAY_AUTH_MODE is token, and this host has no token. Copy ~/.ray/auth_token from the cluster's "
            f"head. If that has none either, {TOKEN_INSTRUCTIONS}."
        )
    # Of a missing or wrong token Ray may say only that it failed to connect, 20 seconds later.
    refused = "AuthenticationError" in type(error).__name__
    if refused or "Failed to connect" in text:
        fault = "" if refused else "what listens there is no Ray that works, or "
        if os.environ.get("RAY_AUTH_MODE") != "token":
            fault += "it asks for a token, and this host has none."
        else:
            fault += "its token is not the one of this host, which `ray get-auth-token` shows."
        return (
            f"{fault} Copy ~/.ray/auth_token from the cluster's head, or set RAY_AUTH_TOKEN_PATH to a copy."
        )
    if STARTUP_TIMED_OUT in text:
        return f"Ray could not begin in time: the machine is busy, or out of memory. Try again.\n{text}"
    if "Version mismatch" in text:
        return f"its versions are others than here.\n{text}"
    return (
        f"{text.strip() or type(error).__name__} Start one with `ray start --head`, or use --cluster local."
    )
