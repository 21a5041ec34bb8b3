"""Run code in a new process: to measure without effects of earlier code, or with another interpreter.

Some libraries need other versions of NumPy or PyTorch. The Makefile beside the benchmarks installs each in an
environment of its own, `benchmarks/.venv/NAME`, whose interpreter imports this clone through PYTHONPATH.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2]
ENVIRONMENTS = SOURCE / "benchmarks" / ".venv"
# For libraries: hides GPUs, and turns off TensorFlow's log.
QUIET_ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


def python_path(python: Path | None = None) -> str:
    """Return a PYTHONPATH with which another process imports this copy of the package.

    Args:
        python: The interpreter of another environment; packages in the current PYTHONPATH may be incompatible
            with it.
    """
    return os.pathsep.join(filter(None, [str(SOURCE), "" if python else os.environ.get("PYTHONPATH")]))


def python_of(name: str) -> Path | None:
    """Return the interpreter of the environment `benchmarks/.venv/NAME`, or None if there is none."""
    python = ENVIRONMENTS / name / "bin" / "python"
    return python if python.is_file() else None


def run_python(
    *arguments: str,
    python: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 600.0,
) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process that can import this copy of the package.

    Args:
        arguments: Arguments of the interpreter.
        python: The interpreter (default: this one).
        environment: Environment variables to add.
        timeout: Seconds after which the process is killed.

    Raises:
        RuntimeError: If the process exceeds the timeout.
    """
    try:
        return subprocess.run(
            [python or sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": python_path(python), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the process took more than {timeout:g} s") from error


def run_fresh(*arguments: str, **options: Any) -> Any:
    """Run a program as `run_python` does; return its result, JSON on the last line of its output.

    Raises:
        RuntimeError: If the process fails; the message is the last line of its standard error.
    """
    result = run_python(*arguments, **options)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise RuntimeError(lines[-1])
    return json.loads(result.stdout.splitlines()[-1])
