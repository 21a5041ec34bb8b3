"""Fresh processes: what a start costs, in time or memory, shows only where nothing else has been done.

Such a process runs a few lines of code and prints one line of JSON.

Left out: objects; it gets text and answers with text.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2]


def python_path() -> str:
    """Return a PYTHONPATH by which another process imports this same package."""
    return os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))


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
        The last line, decoded.

    Raises:
        RuntimeError: If it fails or takes too long.
    """
    try:
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": python_path(), **(environment or {})},
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
