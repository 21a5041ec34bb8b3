"""The options of a cluster: where it is, and how the actors share it. They are no settings of a run: a run
may be resumed on another cluster, or on one machine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ClusterOptions:
    """Where the actors run."""

    address: str
    """A Ray cluster: auto for the one that this host belongs to, host:port, or local to start one here."""
    gateways: int = 1
    """Processes that take in rows on the learner's host; one takes 45,000 small rows a second."""
    cpus_per_actor: float = 1.0
    """Share of a core that an actor is given; below 1, several of them share one."""

    def __post_init__(self) -> None:
        """Refuse what can't work."""
        if not self.address:
            raise ValueError("cluster is empty; it must be auto, local or host:port.")
        if self.gateways < 1:
            raise ValueError(f"gateways is {self.gateways}; it must be at least 1.")
        if not 0.01 <= self.cpus_per_actor <= 64:
            raise ValueError(f"cpus_per_actor is {self.cpus_per_actor}; it must be between 0.01 and 64.")


def split_options(program: str, arguments: Sequence[str]) -> tuple[ClusterOptions | None, list[str]]:
    """Split a command's arguments into the options of the cluster, None without `--cluster`, and the others.

    Raises:
        SystemExit: With status 2, if they can't be parsed; the reason has been printed.
    """
    parser = argparse.ArgumentParser(prog=program, add_help=False, allow_abbrev=False)
    parser.add_argument("--cluster")
    parser.add_argument("--gateways", type=int)
    parser.add_argument("--cpus-per-actor", type=float)
    known, others = parser.parse_known_args(list(arguments))
    given = {name: value for name, value in vars(known).items() if value is not None}
    address = given.pop("cluster", None)
    if address is None:
        if given:
            parser.error(f"--{min(given).replace('_', '-')} is for a run on a cluster: add --cluster ADDRESS")
        return None, others
    try:
        return ClusterOptions(address, **given), others
    except ValueError as error:
        parser.error(str(error))
