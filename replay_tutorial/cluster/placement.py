"""Who goes where: actors all over the cluster, gateways beside the learner.

The driver's host is the learner's. Gateways open its shared memory, so they have to be there. Actors need a
core and some memory each, and go wherever both are free.
"""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from replay_tutorial.cluster.connection import ClusterUnavailable
from replay_tutorial.cluster.options import ClusterOptions

CAPACITY_TIMEOUT_SECONDS = 600.0  # that hosts get to join: a cloud takes minutes to start one
POLL_SECONDS = 1
ACTOR_MEMORY = 415 * 2**20  # bytes of a Python process with torch, as measured: 300 to 415 MiB

log = logging.getLogger(__name__)


def gateway_options() -> dict[str, Any]:
    """Return Ray's options for a gateway: on this host; begun again when it is killed, but no call twice."""
    # Not soft: with no core of its own a soft reservation is ignored (Ray 2.60).
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": here}


def actor_options(options: ClusterOptions) -> dict[str, Any]:
    """Return Ray's options for an actor: spread over the hosts, in one life only."""
    room = {"num_cpus": options.cpus_per_actor, "memory": ACTOR_MEMORY}
    return {**room, "max_retries": 0, "scheduling_strategy": "SPREAD"}


def hosts() -> list[dict[str, Any]]:
    """Return Ray's descriptions of the hosts that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def describe(options: ClusterOptions) -> dict[str, Any]:
    """Return what there is, as JSON."""
    cpus = [{"name": h["NodeManagerHostname"], "cpus": h["Resources"].get("CPU", 0.0)} for h in hosts()]
    return {**asdict(options), "hosts": cpus, "ray": ray.__version__}


def addresses() -> dict[str, str]:
    """Return the address of each host that is alive, by Ray's name for it."""
    return {host["NodeID"]: host["NodeManagerAddress"] for host in hosts()}


def free_resources() -> Mapping[str, float]:
    """Return what nobody uses, of all hosts together, by Ray's names for it."""
    return ray.available_resources()


class HostMonitor:
    """Looks again and again which hosts there are, in a thread: whoever asks a dead head waits.

    Attributes:
        addresses: Those of the last answer, by Ray's names for the hosts.
        free: What nobody uses, of all hosts together, by Ray's names for it.
        answered: When that came, by `time.monotonic`.
    """

    def __init__(self) -> None:
        self.addresses, self.free, self.answered = addresses(), free_resources(), time.monotonic()
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._work, name="hosts", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while not self.closing.wait(POLL_SECONDS):
            with suppress(RayError):  # the answer is old then, which is seen
                self.addresses, self.free, self.answered = addresses(), free_resources(), time.monotonic()


def actors_that_fit(options: ClusterOptions, cpus: float, memory: float) -> int:
    """Return how many actors fit into so many cores and bytes."""
    return int(min(cpus / options.cpus_per_actor + 1e-9, memory / ACTOR_MEMORY))


def capacity_message(who: str, options: ClusterOptions, free: Mapping[str, float], hosts: int) -> str:
    """Say why actors have no place, and what would help; `free` is that of all hosts together."""
    needed, cpus, memory = ACTOR_MEMORY / 2**20, free.get("CPU", 0.0), free.get("memory", 0.0) / 2**20
    return (
        f"no place for {who}: an actor needs {options.cpus_per_actor:g} CPU and {needed:.0f} MiB on one "
        f"host. {cpus:g} CPUs and {memory:,.0f} MiB are free on {host_count(hosts)}. Add hosts, wait for "
        "other runs, or lower --actors or --cpus-per-actor."
    )


def host_count(hosts: int) -> str:
    """Return a number of hosts as it is printed."""
    return f"{hosts} host{'s' * (hosts != 1)}"


def wait_for_capacity(actors: int, options: ClusterOptions) -> None:
    """Wait until there is a free place for each actor; a cluster that can grow is asked to.

    Raises:
        ClusterUnavailable: If there is none within ten minutes.
    """
    # A placement group is released when this process ends; `request_resources` would keep its request.
    needs = {"CPU": options.cpus_per_actor, "memory": float(ACTOR_MEMORY)}
    reservation = placement_group([needs] * actors, "SPREAD")
    deadline, said = time.monotonic() + CAPACITY_TIMEOUT_SECONDS, False
    try:
        while not reservation.wait(POLL_SECONDS):
            free = free_resources()
            room = actors_that_fit(options, free.get("CPU", 0.0), free.get("memory", 0.0))
            reason = capacity_message(
                f"{max(1, actors - room)} of {actors} actors", options, free, len(hosts())
            )
            if time.monotonic() >= deadline:
                raise ClusterUnavailable(reason)
            if not said:
                log.info("waiting up to %g s: %s", CAPACITY_TIMEOUT_SECONDS, reason)
            said = True
    finally:
        remove_placement_group(reservation)
    log.info("there is room for %d actors on %s", actors, host_count(len(hosts())))
