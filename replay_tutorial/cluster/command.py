"""The command line of clusters: `python -m replay_tutorial cluster check ADDRESS` and `cluster launch NAME`.

It also creates the engine for `train --cluster ADDRESS`.
"""

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from replay_tutorial.cluster.options import ClusterOptions

if TYPE_CHECKING:
    from replay_tutorial.apex.runs.engine import Engine
    from replay_tutorial.cluster.check import Host

log = logging.getLogger(__name__)

# Files that start a cluster: for `ray up` and `kubectl`, each with two blanks to fill in, and for `sbatch`.
LAUNCH_FILES = {"aws": "aws.yaml", "kuberay": "kuberay.yaml", "slurm": "slurm.sh"}


def make_engine(options: ClusterOptions | None) -> "Engine | None":
    """Return the engine of a cluster, or None to run on this machine, which doesn't require Ray."""
    if options is None:
        return None
    log.info("actors run on the Ray cluster at %s; connecting takes a few seconds", options.address)

    from replay_tutorial.cluster.engine import ClusterEngine

    return ClusterEngine(options)


def cluster(arguments: Sequence[str]) -> int:
    """Check a cluster before a run, or print a file that starts one.

    The exit status is 1 if a run with this number of actors would fail, and 2 if there is no such cluster.
    """
    what = "Check a cluster before a run, or print a file that starts one."
    parser = argparse.ArgumentParser(prog="python -m replay_tutorial cluster", description=what)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    checker = commands.add_parser("check", help="check hosts, versions and network, and whether actors fit")
    checker.add_argument("address", metavar="ADDRESS", help="host:port, auto (this machine's Ray), or local")
    checker.add_argument("--actors", type=int, default=0, help="check whether this many actors fit")
    share = "share of a core per actor, as for `train --cluster`"
    checker.add_argument("--cpus-per-actor", type=float, default=1.0, help=share)
    launch = commands.add_parser("launch", help="print a file that starts a cluster")
    launch.add_argument(
        "name",
        choices=LAUNCH_FILES,
        help="aws: for `ray up`; kuberay: for `kubectl create`; slurm: for `sbatch`",
    )
    options = parser.parse_args(arguments)
    if options.command == "check":
        return check(options.address, options.actors, options.cpus_per_actor)
    print(launch_file(options.name), end="")
    return 0


def launch_file(name: str) -> str:
    """Return the file of one of `LAUNCH_FILES`, with its comments and blanks."""
    return (files("replay_tutorial.cluster") / "launch" / LAUNCH_FILES[name]).read_text(encoding="utf-8")


def check(address: str, actors: int, cpus_per_actor: float) -> int:
    """Connect to a cluster, print its state, and disconnect; return the exit status of `cluster`."""
    from replay_tutorial.cluster.connection import ClusterUnavailable, connect

    try:
        options = ClusterOptions(address, cpus_per_actor=cpus_per_actor)
        connect(address, actors * cpus_per_actor)
    except (ClusterUnavailable, ValueError) as error:
        print(f"cluster check: {error}", file=sys.stderr)
        return 2

    import ray

    from replay_tutorial.cluster.check import find_problems, find_warnings, inspect_hosts

    try:
        hosts = inspect_hosts()
        warnings = find_warnings(hosts)
        problems = find_problems(hosts, actors, ray.available_resources().get("CPU", 0.0), options)
    finally:
        ray.shutdown()
    for line in format_hosts(hosts):
        print(line)
    for line in problems + warnings:
        print(f"- {line}")
    if actors:
        print(f"{actors} actors fit: {'no' if problems else 'yes'}")
    return 1 if problems else 0


def format_hosts(hosts: "list[Host]") -> Iterator[str]:
    """Yield a line for each host, and one for the health checks."""
    from replay_tutorial.cluster.check import detection_seconds

    yield "CPUs    memory      call  32 MB to here  Python   Ray      replay_tutorial        host"
    for host in hosts:
        python, ray, version, sources = [
            host.installed.get(what, "?") for what in ("python", "ray", "replay_tutorial", "sources")
        ]
        yield (
            f"{host.cpus:4g} {host.memory / 2**30:5.0f} GiB {host.latency * 1e3:6.2f} ms "
            f"{host.rate / 1e6:9,.0f} MB/s  {python:8} {ray:8} {version:7} {sources:13} "
            f"{host.name}{' (here)' if host.here else ''}"
        )
    for host in hosts:
        if host.head and not host.error:
            lost, cut = detection_seconds(host.environment)
            yield f"health checks: a lost host is detected after {lost:g} s, and a cut cable after {cut:g} s"
