"""Run code in a new process, to measure start-up time or memory without effects of earlier code.

The code receives strings as arguments and prints its result as one line of JSON.
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
    """Return a PYTHONPATH with which another process imports this copy of the package."""
    return os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))


def run_fresh(
    code: str,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = 600.0,
) -> Any:
    """Run code in a new Python process that can import this copy of the package.

    Args:
        code: Source of a program that prints its result as JSON on the last line.
        arguments: Passed as `sys.argv[1:]`.
        environment: Environment variables to add.
        timeout: Seconds after which the process is killed.

    Returns:
        The decoded result.

    Raises:
        RuntimeError: If the process fails or exceeds the timeout. The message is the last line of its
            standard error.
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
        raise RuntimeError(f"the process took more than {timeout:g} s") from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise RuntimeError(lines[-1])
    return json.loads(result.stdout.splitlines()[-1])
