"""Who goes where: actors all over the cluster, gateways beside the learner.

The driver's host is the learner's. Gateways open its shared memory, so they have to be there. Actors want a
core each, and go wherever there is one.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from replay_tutorial.cluster.cluster_options import ClusterOptions
from replay_tutorial.cluster.connection import ClusterUnavailable

ROOM_SECONDS = 600.0  # that hosts get to join: a cloud takes minutes to start one
LOOK_SECONDS = 1.0

log = logging.getLogger(__name__)


def of_gateway() -> dict[str, Any]:
    """Return Ray's options for a gateway: on this host; begun again when it is killed, but no call twice."""
    # Not soft: with no core of its own a soft wish is ignored (Ray 2.60).
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": here}


def of_actor(options: ClusterOptions) -> dict[str, Any]:
    """Return Ray's options for an actor: spread over the hosts, in one life only."""
    return {"num_cpus": options.cpus_per_actor, "max_retries": 0, "scheduling_strategy": "SPREAD"}


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


class HostWatch:
    """Looks again and again which hosts there are, in a thread: whoever asks a dead head waits.

    Attributes:
        addresses: Those of the last answer, by Ray's names for the hosts.
        answered: When that came, by `time.monotonic`.
    """

    def __init__(self) -> None:
        self.addresses, self.answered = addresses(), time.monotonic()
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._work, name="hosts", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while not self.closing.wait(LOOK_SECONDS):
            with suppress(RayError):  # the answer is old then, which is seen
                self.addresses, self.answered = addresses(), time.monotonic()


def fitting(cpus: float, options: ClusterOptions) -> int:
    """Return how many actors fit into so many cores of one host."""
    return int(cpus / options.cpus_per_actor + 1e-9)


def room_for_actors(options: ClusterOptions) -> int:
    """Return how many actors fit on the hosts together, whoever else uses them."""
    return sum(fitting(host["Resources"].get("CPU", 0.0), options) for host in hosts())


def await_room(actors: int, options: ClusterOptions) -> None:
    """Wait until the hosts of the cluster have room for the actors; one that can grow is asked to.

    Raises:
        ClusterUnavailable: If they have not within ten minutes.
    """

    def shortage(room: int) -> str:
        return (
            f"the cluster has room for {room} of {actors} actors of {options.cpus_per_actor:g} CPU "
            f"on hosts: {len(hosts())}. Add hosts, or lower --actors or --cpus-per-actor."
        )

    needs = {"CPU": options.cpus_per_actor}
    await_places("actors", actors, needs, lambda: room_for_actors(options), shortage)


def await_places(
    who: str, count: int, needs: dict[str, float], room: Callable[[], int], shortage: Callable[[int], str]
) -> None:
    """Wait until there is room for so many who need the same.

    Args:
        who: They are, in a word.
        count: How many.
        needs: Of each, by Ray's names for it.
        room: Returns for how many there is room.
        shortage: What is wrong, and what would help, if it is for so many only.

    Raises:
        ClusterUnavailable: If there is not enough within ten minutes.
    """
    if (found := room()) >= count:
        return
    deadline = time.monotonic() + ROOM_SECONDS
    log.info("waiting up to %g s for hosts: there is room for %d of %d %s", ROOM_SECONDS, found, count, who)
    # This wish ends with this process, however that ends; what `request_resources` asks for would be kept.
    wish = placement_group([needs] * count)
    try:
        while (found := room()) < count:
            if time.monotonic() >= deadline:
                raise ClusterUnavailable(shortage(found))
            time.sleep(LOOK_SECONDS)
    finally:
        remove_placement_group(wish)
