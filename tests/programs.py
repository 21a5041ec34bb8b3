"""Run programs as a user would: each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from places import ROOT

Result = subprocess.CompletedProcess[str]


def run_python(*arguments: str | Path, environment: dict[str, str] | None = None, **options: Any) -> Result:
    """Run Python with this package, and return its status, output and errors; options are subprocess's."""
    options = {"timeout": 900, "cwd": ROOT, **options}  # a busy machine takes long
    options["env"] = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, *arguments], check=False, text=True, **pipes)
