"""Fresh processes, and the memory that a process takes.

What a program costs at its start, or in memory, can only be seen in a process that has done nothing else. Such a
process runs a few lines of code and prints one line of JSON.

Left out: Windows in `peak_memory` and `free_memory`, where they know nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[3]
UNITS = 1024  # bytes of the kB in which Linux tells memory


def run_fresh(
    code: str,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = 600.0,
) -> Any:
    """Run code in a fresh Python process that imports this same package.

    Args:
        code: A program; the last line that it prints is JSON.
        arguments: What it finds in `sys.argv[1:]`.
        environment: Variables to set besides those of this process.
        timeout: Seconds after which it is killed.

    Returns:
        What the last line says.

    Raises:
        RuntimeError: If it fails or takes too long.
    """
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    try:
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"it took more than {timeout:g} s") from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise RuntimeError(lines[-1])
    return json.loads(result.stdout.splitlines()[-1])


def resident_memory() -> int:
    """Bytes of memory that this process has now; where the system doesn't tell, the most that it has had."""
    return memory_line(Path("/proc/self/status"), "VmRSS:") or peak_memory()


def peak_memory() -> int:
    """Bytes of memory that this process has had at most; 0 where nobody knows."""
    if peak := memory_line(Path("/proc/self/status"), "VmHWM:"):
        return peak
    if sys.platform == "win32":
        return 0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * UNITS


def free_memory() -> int | None:
    """Bytes of memory that could be had now; None where the system doesn't tell."""
    return memory_line(Path("/proc/meminfo"), "MemAvailable:")


def memory_line(path: Path, name: str) -> int | None:
    """Read one line of a file in which Linux tells memory in kB."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    figures = [int(line.split()[1]) * UNITS for line in lines if line.startswith(name)]
    return figures[0] if figures else None


def add_one(buffer: Any) -> None:
    """Add one row: what a spawned worker does. It is here because this module imports next to nothing."""
    buffer.add(obs=[0.0] * 4, rew=1.0)
