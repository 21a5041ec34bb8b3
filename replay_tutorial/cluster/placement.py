"""Placement: which processes run on which host.

Gateways run on the driver's host, which is the learner's, because they open its shared memory. Actors run on
any host that has enough free CPU and memory.
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

CAPACITY_TIMEOUT_SECONDS = 600.0  # time for new hosts to join; a cloud takes minutes to start one
POLL_SECONDS = 1
ACTOR_MEMORY = 415 * 2**20  # bytes; a Python process with torch was measured at 300 to 415 MiB

log = logging.getLogger(__name__)


def gateway_options() -> dict[str, Any]:
    """Return Ray's options for a gateway: on this host; Ray restarts it, but never repeats a call."""
    # Not soft: Ray 2.60 ignores soft affinity if the actor reserves no CPU.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": here}


def actor_options(options: ClusterOptions) -> dict[str, Any]:
    """Return Ray's options for an actor: spread over the hosts, and never restarted by Ray."""
    room = {"num_cpus": options.cpus_per_actor, "memory": ACTOR_MEMORY}
    return {**room, "max_retries": 0, "scheduling_strategy": "SPREAD"}


def hosts() -> list[dict[str, Any]]:
    """Return Ray's descriptions of the hosts that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def describe(options: ClusterOptions) -> dict[str, Any]:
    """Return the options, the hosts and Ray's version as JSON values."""
    cpus = [{"name": h["NodeManagerHostname"], "cpus": h["Resources"].get("CPU", 0.0)} for h in hosts()]
    return {**asdict(options), "hosts": cpus, "ray": ray.__version__}


def free_resources() -> Mapping[str, float]:
    """Return the free resources of all hosts together, keyed by Ray's resource names."""
    return ray.available_resources()


class HostMonitor:
    """Polls the hosts in a thread, because a call to a dead head blocks.

    Attributes:
        addresses: Node ID → address, from the last reply.
        free: Free resources of all hosts together, from the last reply.
        answered: Time of the last reply, as in `time.monotonic`.
    """

    def __init__(self) -> None:
        self._update()
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._work, name="hosts", daemon=True)
        self.thread.start()

    def _update(self) -> None:
        self.addresses = {host["NodeID"]: host["NodeManagerAddress"] for host in hosts()}
        self.free, self.answered = free_resources(), time.monotonic()

    def _work(self) -> None:
        while not self.closing.wait(POLL_SECONDS):
            with suppress(RayError):  # in this case, `answered` is not updated
                self._update()


def actors_that_fit(options: ClusterOptions, cpus: float, memory: float) -> int:
    """Return the number of actors that fit into the given number of CPUs and bytes of memory."""
    return int(min(cpus / options.cpus_per_actor + 1e-9, memory / ACTOR_MEMORY))


def capacity_message(who: str, options: ClusterOptions, free: Mapping[str, float], hosts: int) -> str:
    """Return the message for actors that don't fit; `free` are the resources of all hosts together."""
    needed, cpus, memory = ACTOR_MEMORY / 2**20, free.get("CPU", 0.0), free.get("memory", 0.0) / 2**20
    return (
        f"no room for {who}: an actor needs {options.cpus_per_actor:g} CPU and {needed:.0f} MiB on one "
        f"host. {cpus:g} CPUs and {memory:,.0f} MiB are free on {host_count(hosts)}. Add hosts, wait for "
        "other runs to end, or lower --actors or --cpus-per-actor."
    )


def host_count(hosts: int) -> str:
    """Return a number of hosts as text."""
    return f"{hosts} host{'s' * (hosts != 1)}"


def wait_for_capacity(actors: int, options: ClusterOptions) -> None:
    """Block until all actors fit, or raise ClusterUnavailable after ten minutes.

    An autoscaler, if there is one, is asked to add hosts.
    """
    # A placement group is released when this process ends; `request_resources` would keep its request.
    needs = {"CPU": options.cpus_per_actor, "memory": float(ACTOR_MEMORY)}
    reservation = placement_group([needs] * actors, "SPREAD")
    deadline, logged = time.monotonic() + CAPACITY_TIMEOUT_SECONDS, False
    try:
        while not reservation.wait(POLL_SECONDS):
            free = free_resources()
            room = actors_that_fit(options, free.get("CPU", 0.0), free.get("memory", 0.0))
            reason = capacity_message(
                f"{max(1, actors - room)} of {actors} actors", options, free, len(hosts())
            )
            if time.monotonic() >= deadline:
                raise ClusterUnavailable(reason)
            if not logged:
                log.info("waiting up to %g s: %s", CAPACITY_TIMEOUT_SECONDS, reason)
            logged = True
    finally:
        remove_placement_group(reservation)
    log.info("the cluster has room for %d actors on %s", actors, host_count(len(hosts())))
