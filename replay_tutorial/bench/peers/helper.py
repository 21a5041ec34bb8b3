"""A helper: another process, which answers each line of JSON with one.

It may be another Python, with packages that this one can't have: DeepMind's Reverb needs a TensorFlow that
needs another NumPy, so `make bench-peers` makes a Python for it in `.venv/reverb`, on Linux alone. Lines
that don't begin with "{" are some library's, and skipped.

Left out: Windows, where nobody can wait for a pipe with `select`.
"""

import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replay_tutorial.measuring.fresh import python_path
from replay_tutorial.measuring.timing import RemoteWorkload
from replay_tutorial.tables.remote.local_socket import KEY_VARIABLE

PYTHON_VARIABLE = "REPLAY_TUTORIAL_REVERB"
PROGRAM = Path(__file__).with_name("program.py")
ANSWER_SECONDS = 300.0  # after which a helper without an answer is lost
# No GPU, only errors from TensorFlow, and one key for our servers and their clients.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONPATH": python_path(),
    KEY_VARIABLE: secrets.token_hex(32),
}


def reverb_python() -> Path:
    """Return the Python with Reverb.

    Raises:
        ImportError: If there is none.
    """
    python = Path(os.environ.get(PYTHON_VARIABLE, Path(".venv") / "reverb" / "bin" / "python"))
    if not python.is_file():
        raise ImportError(
            f"there is no {python}; `make bench-peers` makes it, or name one in {PYTHON_VARIABLE}"
        )
    return python


class HelperLost(RuntimeError):
    """A helper process has ended or is silent; its peer can't be measured any more."""

    def __init__(self, name: str, reason: str) -> None:
        """Keep who lost it."""
        super().__init__(reason)
        self.name = name


class HelperProcess:
    """The process, and what it says.

    Attributes:
        name: Of the peer in it.
        made: What it said of the replay that it made.
    """

    def __init__(self, name: str, start: Mapping[str, object], *, reverb: bool) -> None:
        """Start it, and wait until its replay is full.

        Args:
            name: Of the peer.
            start: Which replay it makes.
            reverb: Whether it is Reverb's Python; this one otherwise.

        Raises:
            ImportError: If it can't be started.
        """
        self.name = name
        python = [reverb_python(), "-I"] if reverb else [sys.executable]
        module = "reverb_calls" if reverb else "our_tables"
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self.process = subprocess.Popen(
            [*python, PROGRAM, module, json.dumps(start, allow_nan=False)],
            bufsize=0,  # a line that waits in a buffer here would not wake `select`
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **ENVIRONMENT},
        )
        try:
            self.made = self.answer()
        except HelperLost as error:
            self.close()
            raise ImportError(f"{python[0]} could not start {name}: {error}") from error

    def answer(self) -> dict[str, Any]:
        """Wait for the next line that it writes.

        Raises:
            HelperLost: If it ended, or kept silent for too long.
        """
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
            line = self.process.stdout.readline()
            if not line.endswith(b"\n"):
                raise self.lost("has ended")
            if line.startswith(b"{"):
                return json.loads(line)
        raise self.lost(f"was silent for {ANSWER_SECONDS:g} s")

    def lost(self, what: str) -> HelperLost:
        """Return the error that quotes the last line that it wrote to its standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        last = next((f", last saying '{line.strip()}'" for line in reversed(lines) if line.strip()), "")
        return HelperLost(self.name, f"its helper process {what}{last}")

    def order(self, kind: str, **order: object) -> None:
        """Let it do something; what it answers is to be fetched.

        Raises:
            HelperLost: If it ended.
        """
        assert self.process.stdin is not None
        try:
            line = json.dumps({"kind": kind, **order}, allow_nan=False)
            self.process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError as error:
            raise self.lost("has ended") from error

    def ask(self, kind: str, **order: object) -> dict[str, Any]:
        """Let it do something, and wait for what it answers; raises HelperLost as `answer` and `order`."""
        self.order(kind, **order)
        return self.answer()

    def workload(self, do: str, size: int = 1) -> RemoteWorkload:
        """Return a call there as a workload."""
        return RemoteWorkload(
            lambda calls: float(self.ask("calls", do=do, size=size, calls=calls)["seconds"])
        )

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            if file is not None:
                file.close()
