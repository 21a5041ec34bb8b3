"""Where a figure comes from: the command, the day, the machine and the versions.

A figure without them can't be checked, so they travel with every record and stand below every table.

Left out: how busy the machine was; take the figures on an idle one.
"""

import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, Self

from replay_tutorial.apex.runs.run_provenance import describe_machine, versions_of

PACKAGE = Path(__file__).parents[1]


class Provenance(NamedTuple):
    """All that is needed to take a figure again."""

    command: str
    date: str
    machine: dict[str, str | int]
    versions: dict[str, str]

    @classmethod
    def of(cls, benchmark: str, argv: Sequence[str], packages: Iterable[str] = ()) -> Self:
        """Describe this run of a benchmark, and the packages that it measures beside ours."""
        return cls.of_command(["python", "-m", "replay_tutorial", "bench", benchmark, *argv], packages)

    @classmethod
    def of_command(cls, command: Sequence[str], packages: Iterable[str] = ()) -> Self:
        """Describe this run of a command."""
        versions = versions_of(("replay_tutorial", "numpy", "numba", *packages))
        versions["replay_tutorial"] += revision()
        return cls(shlex.join(command), date.today().isoformat(), describe_machine(), versions)

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """Take it out of a record."""
        return cls(*(record[name] for name in cls._fields))

    def __str__(self) -> str:
        """Return one sentence."""
        versions = ", ".join(f"{package} {version}" for package, version in self.versions.items())
        return (
            f"`{self.command}` on {self.date}, {self.machine['processor']}, {self.machine['cores']} cores, "
            f"{self.machine['system']}; {versions}."
        )


def revision() -> str:
    """Return the last commit of this package's source and whether it has changed since; "" without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(PACKAGE), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Of this folder: an environment may lie inside of a clone of something else.
        commit, changed = git("log", "-1", "--format=%h", "--", "."), git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" ({commit}{', changed' if changed else ''})" if commit else ""
