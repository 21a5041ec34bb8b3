"""Looks at a cluster before a run does: hosts, versions, network, and whether N actors find room.

A Ray actor on each host tells what is installed there, answers 50 empty calls, and hands over 32 MB. What a
run would trip over is told now, in a line each, with the remedy: a host with other sources, a cluster that
asks for no token, too few cores.

Left out: the network between two other hosts, which nothing of a run crosses.
"""

import math
import os
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from replay_tutorial.apex.runs.run_provenance import digest_of_sources, versions_of
from replay_tutorial.cluster.connection import NO_TOKEN, TOKEN_INSTRUCTIONS
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.cluster.placement import ACTOR_MEMORY, actors_that_fit, hosts

ANSWER_TIMEOUT_SECONDS = 60.0  # seconds for an answer; a host that needs longer is as good as lost
CALLS = 50
BLOCK = 32_000_000  # bytes
# Ray's settings of its health checks, in milliseconds and failures: name → what it is if nobody sets it
HEALTH = {"period_ms": 3_000, "timeout_ms": 10_000, "failure_threshold": 5}


class Host(NamedTuple):
    """One host of the cluster, as it was found."""

    name: str
    here: bool  # whether this process runs on it: the learner's host
    cpus: float
    memory: float  # bytes that Ray may give away
    installed: Mapping[str, str]  # package → version, and `sources` → digest of the package's files
    latency: float  # seconds of an empty call, there and back: the median of 50
    rate: float  # bytes per second of a 32 MB object from there to here
    environment: Mapping[str, str]  # the variables of Ray's processes there that begin with RAY_
    head: bool  # whether it keeps the cluster's records, and asks the others whether they are alive
    error: str = ""  # why nothing is known of it


class Probe:
    """What runs on each host for a moment."""

    def describe(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return what is installed, and the environment that Ray was started in."""
        return installed_here(), {name: text for name, text in os.environ.items() if name.startswith("RAY_")}

    def ping(self) -> None:
        """Answer."""

    def block(self) -> np.ndarray:
        """Return 32 MB."""
        return np.ones(BLOCK, np.uint8)


def installed_here() -> dict[str, str]:
    """Return the versions that all hosts must share, and the digest of the package's sources."""
    return versions_of(("ray", "replay_tutorial")) | {"sources": digest_of_sources()[:12]}


def inspect_hosts() -> list[Host]:
    """Return all hosts of the cluster that this process has joined, the one it runs on first."""
    here = ray.get_runtime_context().get_node_id()
    return sorted(
        (inspect_host(node, node["NodeID"] == here) for node in hosts()), key=lambda host: not host.here
    )


def inspect_host(node: Mapping[str, Any], here: bool) -> Host:
    """Ask one host what it is; without an answer that is its fault."""
    resources = node["Resources"]
    name = f"{node['NodeManagerHostname']} {node['NodeManagerAddress']}"
    head = "node:__internal_head__" in resources
    room = (name, here, resources.get("CPU", 0.0), resources.get("memory", 0.0))
    where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    start: Any = ray.remote(Probe)
    probe = start.options(num_cpus=0, scheduling_strategy=where).remote()
    try:
        installed, environment = ray.get(probe.describe.remote(), timeout=ANSWER_TIMEOUT_SECONDS)
        calls = [
            timed(lambda: ray.get(probe.ping.remote(), timeout=ANSWER_TIMEOUT_SECONDS)) for _ in range(CALLS)
        ]
        rate = max(BLOCK / fetch(probe) for _ in range(3))
    except RayError as error:
        return Host(*room, {}, 0.0, 0.0, {}, head, str(error).strip().splitlines()[-1])
    finally:
        ray.kill(probe)
    return Host(*room, installed, median(calls), rate, environment, head)


def fetch(probe: Any) -> float:
    """Return the seconds in which 32 MB come here; making them there isn't counted."""
    block = probe.block.remote()
    ray.wait([block], timeout=ANSWER_TIMEOUT_SECONDS, fetch_local=False)
    return timed(lambda: ray.get(block, timeout=ANSWER_TIMEOUT_SECONDS))


def timed(call: Any) -> float:
    """Return the seconds of a call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def detection_seconds(environment: Mapping[str, str]) -> tuple[float, float]:
    """Return after how many seconds at most the head notices a lost host, and a cut cable."""
    setting = {name: int(environment.get(f"RAY_health_check_{name}", HEALTH[name])) for name in HEALTH}
    period, timeout = setting["period_ms"] / 1e3, setting["timeout_ms"] / 1e3
    return period * setting["failure_threshold"], (period + timeout) * setting["failure_threshold"]


def find_warnings(hosts: list[Host]) -> list[str]:
    """Return what a run does not trip over, and its owner may."""
    found = [host for host in hosts if not host.error]
    if all(host.environment.get("RAY_AUTH_MODE") == "token" for host in found):
        return []
    return [f"warning: {NO_TOKEN} To require a token, {TOKEN_INSTRUCTIONS}."]


def find_problems(hosts: list[Host], actors: int, free: float, options: ClusterOptions) -> list[str]:
    """Return what stands in the way of a run with so many actors: nothing, or a line each with its remedy.

    Args:
        hosts: What `inspect_hosts` found; the first one is this machine.
        actors: How many actors are to find room; 0 asks only whether the hosts agree.
        free: CPUs that nobody uses.
        options: What an actor needs.
    """
    here = installed_here()
    faults = [f"{host.name} did not answer: {host.error}" for host in hosts if host.error]
    hosts = [host for host in hosts if not host.error]
    for host in hosts:
        others = [f"{what} {host.installed[what]}" for what in here if host.installed[what] != here[what]]
        if others:
            faults.append(f"{host.name} has {', '.join(others)}. Install there what is installed here.")
    room = sum(actors_that_fit(options, host.cpus, host.memory) for host in hosts)
    if actors > min(room, actors_that_fit(options, free, math.inf)):
        faults.append(
            f"{actors} actors need {options.cpus_per_actor:g} CPU and {ACTOR_MEMORY / 2**20:.0f} MiB each: "
            f"{free:g} CPUs are free, cores and memory are for {room}. Add hosts, or wait for other runs."
        )
    return faults
