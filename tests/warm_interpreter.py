"""An interpreter that has imported large packages, and runs each program in a fork of itself.

Importing PyTorch and Numba takes more processor time than most programs. This package isn't imported here, so
each program imports it as in a new interpreter. Reads requests from stdin, and answers with exit codes.
"""

import gc
import json
import os
import runpy
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import numba

LARGE = ("scipy.linalg", "torch._dynamo", "gymnasium", "stable_baselines3")
TIMEOUT_SECONDS = 900  # for each program, on a busy machine


def become_program(arguments: list[str], outputs: list[str]) -> None:
    """Run a program as Python would, with its stdout and stderr in files."""
    for handle, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY), handle)
    signal.alarm(TIMEOUT_SECONDS)
    sys.argv, sys.path[0] = arguments, os.path.dirname(arguments[0])
    runpy.run_path(arguments[0], run_name="__main__")


def next_program() -> dict[str, Any] | None:
    """Return the next request in a fork; return None in this process once there are no more requests."""
    with os.fdopen(os.dup(0)) as requests, os.fdopen(os.dup(1), "w") as answers:
        for request in requests:
            if (child := os.fork()) == 0:
                return json.loads(request)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
    return None


if __name__ == "__main__":
    for package in LARGE:
        with suppress(ImportError):
            import_module(package)
    numba.njit("int64(int64)")(lambda number: number)  # loads the compiler
    gc.freeze()  # so that a fork neither visits nor copies at its end what is imported here
    if (request := next_program()) is not None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        become_program(**request)
