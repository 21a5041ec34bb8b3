"""The provenance of a run: machine, versions and sources. Benchmarks record the same."""

import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from replay_tutorial import __version__

SOURCES = Path(__file__).resolve().parents[2]


def provenance_of_run() -> dict[str, Any]:
    """Return the command, the time, the machine, the package versions, and the digest of the sources."""
    packages = ("replay_tutorial", "numpy", "numba", "torch", "gymnasium")
    return {
        "command": sys.argv,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": describe_machine(),
        "versions": {**versions_of(packages), "platform": platform.platform()},
        "sources": digest_of_sources(),
    }


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of `packages`, which need not be installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            # An installed replay_tutorial may be older than the code that runs.
            found[package] = __version__ if package == "replay_tutorial" else version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def describe_machine() -> dict[str, str | int]:
    """Return the processor model, the number of usable cores, and the operating system."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
    }


def digest_of_sources() -> str:
    """Return the SHA-256 digest of the package's source files, which doesn't depend on git.

    Hidden files are skipped: editors leave lock files there, and Jupyter its checkpoints.
    """
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES)
        if not any(part.startswith(".") for part in name.parts):
            digest.update(name.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
