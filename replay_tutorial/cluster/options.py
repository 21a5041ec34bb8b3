"""The options of a cluster: its address, its gateways, and the resources of an actor.

These options are not settings of the run, because a run may be resumed on another cluster or on one machine.
The run's folder stores them in `cluster.json`, so that `resume` without options uses the same cluster.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from replay_tutorial.apex.runs.files import CLUSTER_FILE, DamagedFile, read_json


@dataclass(frozen=True)
class ClusterOptions:
    """Where the actors run, and how."""

    address: str
    """Ray cluster: auto (the cluster of this host), host:port, or local (starts one on this machine)."""
    gateways: int = 1
    """Number of processes on the learner's host that receive rows; each receives 45,000 small rows/s."""
    cpus_per_actor: float = 1.0
    """Share of a core per actor; below 1, several actors share a core."""

    def __post_init__(self) -> None:
        """Raise ValueError if an option is out of range."""
        if not self.address:
            raise ValueError("cluster is empty; it must be auto, local or host:port.")
        if self.gateways < 1:
            raise ValueError(f"gateways is {self.gateways}; it must be at least 1.")
        if not 0.01 <= self.cpus_per_actor <= 64:
            raise ValueError(f"cpus_per_actor is {self.cpus_per_actor}; it must be between 0.01 and 64.")


NO_CLUSTER = "none"  # address that stands for no cluster: the actors run on this machine


def add_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options of a cluster to a parser; the help texts state `default` as their default."""
    end = f" (default: {default})"
    where = "Ray cluster that runs the actors: auto, host:port, local (starts one), or none (this machine)"
    parser.add_argument("--cluster", metavar="ADDRESS", help=where + end)
    gateways = "number of processes on the learner's host that receive the actors' rows"
    parser.add_argument("--gateways", type=int, help=gateways + end)
    share = "share of a core per actor"
    parser.add_argument("--cpus-per-actor", type=float, help=share + end)


def resolve_options(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, saved: ClusterOptions | None = None
) -> ClusterOptions | None:
    """Return the options that were parsed, or None for this machine; omitted options are taken from `saved`.

    If the options are invalid, print the reason and exit with status 2.
    """
    names = [option.name for option in fields(ClusterOptions)]
    passed = {name: getattr(parsed, name) for name in names[1:] if getattr(parsed, name) is not None}
    address = parsed.cluster if parsed.cluster is not None else saved and saved.address
    if address in (None, NO_CLUSTER):
        if passed:
            parser.error(f"--{min(passed).replace('_', '-')} requires a cluster: add --cluster ADDRESS")
        return None
    values: dict[str, Any] = {} if saved is None else asdict(saved)
    values |= {**passed, "address": address}
    try:
        return ClusterOptions(**values)
    except ValueError as error:
        parser.error(str(error))


def split_options(program: str, arguments: Sequence[str]) -> tuple[ClusterOptions | None, list[str]]:
    """Split arguments into cluster options, which are None without `--cluster`, and all others."""
    parser = argparse.ArgumentParser(prog=program, add_help=False, allow_abbrev=False)
    add_options(parser, "this machine")
    known, others = parser.parse_known_args(list(arguments))
    return resolve_options(parser, known), others


def saved_options(run: Path) -> ClusterOptions | None:
    """Return the options with which a run was last trained, or None if it was trained on one machine."""
    path = run / CLUSTER_FILE
    if not path.exists():
        return None
    contents = read_json(path)
    known = {field.name: contents[field.name] for field in fields(ClusterOptions) if field.name in contents}
    try:
        return ClusterOptions(**known)
    except (TypeError, ValueError) as error:
        raise DamagedFile(f"{path} is damaged ({error}). Remove it, and pass --cluster ADDRESS.") from None
