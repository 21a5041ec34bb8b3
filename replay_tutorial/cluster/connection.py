"""Joins a Ray cluster as its driver, or says in one line why it can't.

Ray itself is patient: where nobody answers it goes on trying for minutes, and of a wrong token it says only
that it failed to connect. So somebody knocks first; and the token is always used, which Ray leaves out while
`RAY_AUTH_MODE` is not set.

Left out: starting a cluster, but for "local", which ends with this process.
"""

import logging
import os
import re
import socket

# Before Ray is imported, which reads them once; what the caller has set is kept.
ENVIRONMENT = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
# Ray listens on every network of the host, and takes 127.0.0.1 for the host's own address on it. It stays on
# 127.0.0.1 where it takes Linux for macOS.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
KNOCK = 3.0  # seconds until nobody is at an address


class NoCluster(ConnectionError):
    """There is no cluster to join: nobody answers, or Ray refuses this process."""


def connect(address: str, namespace: str | None = None) -> None:
    """Join a Ray cluster as its driver.

    Args:
        address: "host:6379"; "auto" for the Ray that runs on this machine; "local" for one that is started
            now, listens on 127.0.0.1 only, and ends with this process.
        namespace: Where the names of the run's Ray actors are kept.

    Raises:
        NoCluster: If nobody answers, the token is missing or wrong, or Ray or Python has another version.
    """
    if address not in ("auto", "local"):
        knock(address)
    stays = address == "local" or bool(re.match(r"127\.|localhost:", address))
    for name, value in (ENVIRONMENT | (LOOPBACK if stays else {})).items():
        os.environ.setdefault(name, value)
    import ray
    from ray.exceptions import AuthenticationError

    dashboard = False if address == "local" else None
    try:
        ray.init(
            address=address,
            namespace=namespace,
            include_dashboard=dashboard,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except AuthenticationError as error:
        raise NoCluster(
            f"there is no token for {address} here. Copy ~/.ray/auth_token of the machine that started the "
            "cluster to the same place here, readable by you alone, or name the file in RAY_AUTH_TOKEN_PATH."
        ) from error
    except ConnectionError as error:
        raise NoCluster(
            f"{address}: {error}. Does Ray run there (`ray status`), and is ~/.ray/auth_token here the same "
            "file as there?"
        ) from error
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise
        said = " ".join(str(error).split())
        raise NoCluster(f"{said}. Install the same versions of Ray and Python on every host.") from error


def knock(address: str) -> None:
    """Refuse an address at which nobody listens.

    Raises:
        NoCluster: If it is no address, or nobody listens there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise NoCluster(f"{address!r} is no address: give host:port (Ray's own is 6379), auto, or local.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()
    except OSError as error:
        raise NoCluster(
            f"nobody answers at {address} ({error}). `ray start --head` prints the address to use."
        ) from error
