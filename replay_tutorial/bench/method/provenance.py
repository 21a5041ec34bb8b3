"""Where a figure comes from: the command, the day, the machine and the versions.

A figure without them can't be checked, so they travel with every record and stand below every table.

Left out: how busy the machine was; take the figures on an idle one.
"""

import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Self


class Provenance(NamedTuple):
    """All that is needed to take a figure again."""

    command: str
    date: str
    machine: dict[str, str | int]
    versions: dict[str, str]

    @classmethod
    def of(cls, program: str, argv: Sequence[str], packages: Iterable[str] = ()) -> Self:
        """Describe this run of a program, and the packages that it measures beside ours."""
        names = ("replay_tutorial", "numpy", "numba", *packages)
        versions = {"python": platform.python_version(), **{name: version_of(name) for name in names}}
        versions["replay_tutorial"] += revision()
        command = shlex.join([*program.split(), *argv])
        return cls(command, date.today().isoformat(), describe_machine(), versions)

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


def version_of(package: str) -> str:
    """The version of an installed package; this one may also be run from its source folder."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "from its source folder" if package == "replay_tutorial" else "not installed"


def revision() -> str:
    """The last commit of this package's source, and whether it was changed since; nothing outside of a clone."""
    folder = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Of this folder: an environment may lie inside of a clone of something else.
        commit, changed = git("log", "-1", "--format=%h", "--", "."), git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" ({commit}{', changed' if changed else ''})" if commit else ""


def describe_machine() -> dict[str, str | int]:
    """The processor's name, the cores that this process may use, and the system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "processor": processor_name(),
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
    }


def processor_name() -> str:
    """The processor's model, as Linux tells it; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
