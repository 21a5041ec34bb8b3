"""A helper: another process, which answers each line of JSON with one.

It may be another Python, with packages that this one can't have. Lines that don't begin with "{" are some
library's, and skipped.

Left out: Windows, where nobody can wait for a pipe with `select`.
"""

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 300.0  # after which a helper without an answer is lost
# No GPU, and only errors from TensorFlow.
QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}


class HelperProcess:
    """The process, and what it says."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str] = QUIET) -> None:
        """Start it.

        Args:
            command: The program and its arguments.
            environment: Variables to set besides those of this process.
        """
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self.process = subprocess.Popen(
            command,
            bufsize=0,  # a line that waits in a buffer here would not wake `select`
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **environment},
        )

    def answer(self) -> dict[str, Any]:
        """Wait for the next line that it writes.

        Raises:
            RuntimeError: If it ended, or kept silent for too long.
        """
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
            line = self.process.stdout.readline()
            if not line.endswith(b"\n"):
                raise RuntimeError(f"its helper process has ended{self.last_error()}")
            if line.startswith(b"{"):
                return json.loads(line)
        raise RuntimeError(f"its helper process was silent for {ANSWER_SECONDS:g} s{self.last_error()}")

    def last_error(self) -> str:
        """Quote the last line that it wrote to its standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        return next((f", last saying '{line.strip()}'" for line in reversed(lines) if line.strip()), "")

    def order(self, order: Mapping[str, object]) -> None:
        """Let it do something; what it answers is to be fetched.

        Raises:
            RuntimeError: If it ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order, allow_nan=False).encode() + b"\n")
        except BrokenPipeError as error:
            raise RuntimeError(f"its helper process has ended{self.last_error()}") from error

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            if file is not None:
                file.close()
