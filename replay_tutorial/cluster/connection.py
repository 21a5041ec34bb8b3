"""Connects to a Ray cluster, or starts one on this machine.

Ray's processes authenticate each other with a token. The token is a secret, because its holder can run code
on every host. Several of Ray's settings must be set before it is imported, so this module imports it inside
functions. Connections are not encrypted: on a network that others can read, enable Ray's TLS.
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
STORE_BYTES = 1 << 30  # object store of a local cluster, for chunks and parameters
CONNECT_TIMEOUT_SECONDS = 3.0  # Ray itself would retry for minutes
STARTUP_TIMED_OUT = "timed out during startup"  # Ray's error for a host that didn't start within 30 s
# Require a token, and listen on 127.0.0.1 only. By default, Ray listens on all networks; despite its name,
# the second variable is the only setting that prevents this.
PRIVATE_ENVIRONMENT = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
NO_TOKEN = "anyone who can reach this cluster can run code on it."
TOKEN_INSTRUCTIONS = (
    "run `ray get-auth-token --generate` on one host, copy its ~/.ray/auth_token to all others, and start "
    "Ray on each host with `RAY_AUTH_MODE=token ray start ...`"
)

# A line of Ray's C++ code: [2026-11-23 01:10:22,987 W 9380 9380] gcs_client.cc:210: Failed to ...
RAY_LOG_LINE = re.compile(rb"\[\d{4}-\d\d-\d\d [\d:,]+ [A-Z] \d+ \d+\] (\([^)]*\) )?\w+\.cc:\d+: ")

log = logging.getLogger(__name__)


class ClusterUnavailable(OSError):
    """There is no such cluster, or it has too few resources; the message states the remedy."""


def connect(address: str, cpus: float) -> bool:
    """Connect this process to a cluster, or start one on this machine with at least `cpus` CPUs.

    Return False if this process was already connected; it then stays connected to the same cluster, whatever
    the address (`auto`, `local` or host:port) is.

    Raises:
        ClusterUnavailable: If there is no such cluster, or it can't be used.
    """
    if sys.platform != "linux":
        raise ClusterUnavailable(
            f"--cluster requires Linux, not {sys.platform}. Omit it to run on this machine only."
        )
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
    # Processes that Ray starts here inherit the blocked SIGHUP, so that they outlive a closed terminal until
    # the run has ended. Ray itself protects them from Ctrl-C.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        with ray_logs_dropped():
            ray.init(**options)
    except Exception as error:
        known = isinstance(error, RayError | OSError | ValueError | RuntimeError)
        if not known and STARTUP_TIMED_OUT not in str(error):  # Ray raises a plain Exception for a timeout
            raise
        raise ClusterUnavailable(
            f"the cluster at {address} can't be used: {failure_reason(error)}"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if os.environ.get("RAY_AUTH_MODE") != "token":
        log.warning("%s To require a token, %s.", NO_TOKEN, TOKEN_INSTRUCTIONS)
    return True


def suppress_driver_output() -> None:
    """Send the messages that Ray prints about errors on other hosts, with C++ stack traces, to our debug log.

    Ray has no setting for this: `log_to_driver` controls other output. Our own log lines report lost hosts.
    """
    from ray._private import worker

    def to_log(data: object, ignore_prefix: bool) -> None:
        log.debug("%s", data)

    worker.print_to_stdstream = to_log


@contextmanager
def ray_logs_dropped() -> Generator[None]:
    """Drop the log lines of Ray's C++ code on stderr: about 20 while it connects would hide our own message.

    Ray's own setting takes effect only once it has connected. All other lines are passed on.
    """
    sys.stderr.flush()
    terminal, (end, start) = os.dup(2), os.pipe()
    os.dup2(start, 2)
    os.close(start)

    def forward() -> None:
        with open(end, "rb") as lines:
            for line in lines:
                if not RAY_LOG_LINE.match(line):
                    os.write(terminal, line)
        os.close(terminal)

    thread = threading.Thread(target=forward, daemon=True)
    thread.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        # The pipe closes with its last copy, unless a process that Ray has started holds one.
        os.dup2(terminal, 2)
        thread.join(1.0)


def restrict_to_localhost() -> None:
    """Set Ray's environment so that a cluster started here accepts only the owner of this process.

    Raise ClusterUnavailable if Ray has already been imported with other settings.
    """
    if sys.modules.get("ray") is not None and not PRIVATE_ENVIRONMENT.items() <= os.environ.items():
        settings = " ".join(f"{name}={value}" for name, value in PRIVATE_ENVIRONMENT.items())
        raise ClusterUnavailable(
            "Ray has already been imported, so a cluster can't be restricted to this machine. Set "
            f"{settings} in the environment before Ray is imported."
        )
    os.environ.update(PRIVATE_ENVIRONMENT)
    if "ray" not in sys.modules:  # Ray reads the token only once
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def check_reachable(address: str) -> str:
    """Return an address, host:port or `auto`, as host:port after checking that a process listens at it.

    Raise ClusterUnavailable if it is invalid, this host belongs to no cluster, or no process listens.
    """
    import ray
    from ray._private.services import canonicalize_bootstrap_address

    if address == "auto":
        try:  # Ray reads the address from a file, so that cluster may have been killed
            address = str(canonicalize_bootstrap_address(address))
        except ConnectionError as error:
            raise ClusterUnavailable(
                "Ray is not running on this host: start it with `ray start --head`, or use --cluster local."
            ) from error
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterUnavailable(
            f"{address!r} is not a cluster address: pass auto, local, or host:port (Ray's default is 6379)."
        )
    # Ray replaces these names with the address under which other hosts reach this one.
    host = ray.util.get_node_ip_address() if host in ("localhost", "127.0.0.1") else host.strip("[]")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_SECONDS).close()
    except OSError as error:
        raise ClusterUnavailable(
            f"can't connect to {host}:{port} ({error}). `ray start --head` prints the address to use."
        ) from error
    return address


def failure_reason(error: Exception) -> str:
    """Return the reason why the connection failed, and the remedy if there is one."""
    text = str(error)
    if "no authentication token was found" in text:
        return (
            "RAY_AUTH_MODE is token, but this host has no token. Copy ~/.ray/auth_token from the cluster's "
            f"head. If the head has no token either, {TOKEN_INSTRUCTIONS}."
        )
    # If the token is missing or wrong, Ray may report only that it failed to connect, after 20 seconds.
    refused = "AuthenticationError" in type(error).__name__
    if refused or "Failed to connect" in text:
        fault = "" if refused else "no working Ray listens there, or "
        if os.environ.get("RAY_AUTH_MODE") != "token":
            fault += "it requires a token, but this host has none."
        else:
            fault += "its token differs from that of this host, which `ray get-auth-token` shows."
        return (
            f"{fault} Copy ~/.ray/auth_token from the cluster's head, or set RAY_AUTH_TOKEN_PATH to a copy."
        )
    if STARTUP_TIMED_OUT in text:
        return f"Ray did not start in time: the machine is busy or out of memory. Try again.\n{text}"
    if "Version mismatch" in text:
        return f"its versions differ from those of this host.\n{text}"
    return (
        f"{text.strip() or type(error).__name__} Start one with `ray start --head`, or use --cluster local."
    )
