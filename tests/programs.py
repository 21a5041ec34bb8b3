"""Run programs as a user would: each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def warm_interpreter(folder: Path) -> Iterator[Callable[..., Result]]:
    """Start `warm_interpreter.py`, and return a function that runs a program in a fork of it."""
    server = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "warm_interpreter.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore::UserWarning:minari.utils"},
        cwd=ROOT,
    )
    assert server.stdin and server.stdout
    outputs = [folder / "stdout", folder / "stderr"]

    def run(*arguments: str | Path) -> Result:
        for output in outputs:
            output.write_text("")
        request = {"arguments": list(map(str, arguments)), "outputs": list(map(str, outputs))}
        print(json.dumps(request), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        return Result(arguments, status, *(output.read_text("utf-8") for output in outputs))

    with server:
        yield run
        server.stdin.close()
