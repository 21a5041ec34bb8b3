"""The provenance of a measurement: command, date, machine and versions.

It is part of every record and of every table's caption. The load of the machine isn't recorded, so measure on
an idle machine.
"""

import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, Self

from replay_tutorial.apex.runs.run_provenance import describe_machine, versions_of

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ("replay_tutorial", "benchmarks")  # folders whose last commit is reported


class Provenance(NamedTuple):
    """Everything that is needed to repeat a measurement.

    Attributes:
        command: Command line.
        date: ISO date.
        machine: Processor, number of cores and operating system.
        versions: Package → version.
    """

    command: str
    date: str
    machine: dict[str, str | int]
    versions: dict[str, str]

    @classmethod
    def of(cls, benchmark: str, argv: Sequence[str], packages: Iterable[str] = ()) -> Self:
        """Return the provenance of this run of a benchmark; `packages` are reported besides ours."""
        return cls.of_command(["python", "-m", "benchmarks", benchmark, *argv], packages)

    @classmethod
    def of_command(cls, command: Sequence[str], packages: Iterable[str] = ()) -> Self:
        """Return the provenance of this run of a command."""
        versions = versions_of(("replay_tutorial", "numpy", "numba", *packages))
        versions["replay_tutorial"] += revision()
        return cls(shlex.join(command), date.today().isoformat(), describe_machine(), versions)

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """Return the provenance stored in a record."""
        return cls(*(record[name] for name in cls._fields))

    def is_like(self, other: Self) -> bool:
        """Return whether two provenances differ at most in the command."""
        return self._replace(command="") == other._replace(command="")

    def __str__(self) -> str:
        """Return the provenance as a sentence of a caption."""
        versions = ", ".join(f"{package} {version}" for package, version in self.versions.items())
        return (
            f"Measured on {self.date} with `{self.command}`; {self.machine['processor']}, "
            f"{self.machine['cores']} cores, {self.machine['system']}; {versions}."
        )


def revision() -> str:
    """Return the last commit of `MEASURED` as " (abc1234)" or " (abc1234, changed)"; "" without git."""
    try:
        # Restricted to their folders, because the package may lie inside another repository.
        commit = git(ROOT, "log", "-1", "--format=%h", "--", *MEASURED)
        changed = git(ROOT, "status", "--porcelain", "--", *MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" ({commit}{', changed' if changed else ''})" if commit else ""


def git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command in a folder; raises CalledProcessError if it fails."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
