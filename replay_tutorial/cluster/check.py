"""Checks a cluster before a run: hosts, versions, network, and whether N actors fit.

A Ray actor on each host returns the installed versions, replies to 50 empty calls, and sends 32 MB. Problems
are printed with their remedies: a host with different sources, a cluster without a token, too few cores. The
network between two other hosts is not measured, because a run doesn't use it.
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

ANSWER_TIMEOUT_SECONDS = 60.0  # a host that takes longer is reported as not responding
CALLS = 50
BLOCK = 32_000_000  # bytes
# Ray's health checks: setting → default, in milliseconds or failures
HEALTH = {"period_ms": 3_000, "timeout_ms": 10_000, "failure_threshold": 5}


class Host(NamedTuple):
    """One host of the cluster and its properties."""

    name: str
    here: bool  # whether this process runs on it: the learner's host
    cpus: float
    memory: float  # bytes that Ray may allocate
    installed: Mapping[str, str]  # package → version, and `sources` → digest of the package's files
    latency: float  # round trip of an empty call in seconds, median of 50
    rate: float  # bytes per second of a 32 MB object sent from there to here
    environment: Mapping[str, str]  # the environment variables RAY_* of its Ray processes
    head: bool  # whether it is Ray's head, which runs the health checks
    error: str = ""  # the reason why the host could not be inspected


class Probe:
    """The Ray actor that inspects a host."""

    def describe(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the installed versions and the environment variables RAY_*."""
        return installed_here(), {name: text for name, text in os.environ.items() if name.startswith("RAY_")}

    def ping(self) -> None:
        """Do nothing."""

    def block(self) -> np.ndarray:
        """Return 32 MB."""
        return np.ones(BLOCK, np.uint8)


def installed_here() -> dict[str, str]:
    """Return the versions that must be the same on all hosts, and the digest of the package's sources."""
    return versions_of(("ray", "replay_tutorial")) | {"sources": digest_of_sources()[:12]}


def inspect_hosts() -> list[Host]:
    """Return all hosts of the cluster that this process has joined, the host of this process first."""
    here = ray.get_runtime_context().get_node_id()
    return sorted(
        (inspect_host(node, node["NodeID"] == here) for node in hosts()), key=lambda host: not host.here
    )


def inspect_host(node: Mapping[str, Any], here: bool) -> Host:
    """Inspect one host; if it doesn't respond, return it with the error."""
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
    """Return the seconds that it takes to send 32 MB here, excluding the time to allocate them."""
    block = probe.block.remote()
    ray.wait([block], timeout=ANSWER_TIMEOUT_SECONDS, fetch_local=False)
    return timed(lambda: ray.get(block, timeout=ANSWER_TIMEOUT_SECONDS))


def timed(call: Any) -> float:
    """Return the duration of a call in seconds."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def detection_seconds(environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the maximum times in seconds until the head detects a lost host and a cut cable."""
    setting = {name: int(environment.get(f"RAY_health_check_{name}", HEALTH[name])) for name in HEALTH}
    period, timeout = setting["period_ms"] / 1e3, setting["timeout_ms"] / 1e3
    return period * setting["failure_threshold"], (period + timeout) * setting["failure_threshold"]


def find_warnings(hosts: list[Host]) -> list[str]:
    """Return risks that don't stop a run, as lines to print."""
    found = [host for host in hosts if not host.error]
    if all(host.environment.get("RAY_AUTH_MODE") == "token" for host in found):
        return []
    return [f"warning: {NO_TOKEN} To require a token, {TOKEN_INSTRUCTIONS}."]


def find_problems(hosts: list[Host], actors: int, free: float, options: ClusterOptions) -> list[str]:
    """Return the problems that would stop a run, as lines to print with their remedies.

    `hosts` is the result of `inspect_hosts`, and `free` the number of CPUs not in use. With no actors, only
    the versions are compared.
    """
    here = installed_here()
    problems = [f"{host.name} did not respond: {host.error}" for host in hosts if host.error]
    hosts = [host for host in hosts if not host.error]
    for host in hosts:
        others = [f"{what} {host.installed[what]}" for what in here if host.installed[what] != here[what]]
        if others:
            problems.append(
                f"{host.name} has {', '.join(others)}. Install the same versions as on this host."
            )
    room = sum(actors_that_fit(options, host.cpus, host.memory) for host in hosts)
    if actors > min(room, actors_that_fit(options, free, math.inf)):
        problems.append(
            f"{actors} actors need {options.cpus_per_actor:g} CPU and {ACTOR_MEMORY / 2**20:.0f} MiB each. "
            f"{free:g} CPUs are free, and the hosts have room for {room} actors. Add hosts, or wait for "
            "other runs to end."
        )
    return problems
