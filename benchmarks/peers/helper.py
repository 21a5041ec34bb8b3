"""Helper processes, which receive requests and send responses as lines of JSON.

Reverb's TensorFlow requires another version of NumPy, so `make lab TARGET=peers` installs it in its own
environment (Linux only). Output lines that don't start with "{" come from libraries and are ignored. Windows
is not supported, because `select` can't wait for pipes there.
"""

import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.measuring.fresh import QUIET_ON_CPU, python_of, python_path
from benchmarks.peers.buffer import NotMeasurable
from replay_course.timing import SelfTimed
from replay_tutorial.tables.remote.addresses import KEY_VARIABLE

ANSWER_SECONDS = 300.0  # timeout of a response
KEY = {KEY_VARIABLE: f"server-{secrets.token_hex(64)}"}  # of our servers and their clients


@contextmanager
def run_beside(command: Sequence[str]) -> Generator[None]:
    """Run another program of the lab, which needs no connection, and kill it at the end."""
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": python_path()}) as process:
        try:
            yield
        finally:
            process.kill()


class HelperLost(RuntimeError):
    """A helper process has exited or doesn't respond, so its peer can't be measured any more."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class HelperProcess:
    """A helper process and the connection to it; `description` is its first response."""

    def __init__(
        self, name: str, start: Mapping[str, object], *, reverb: bool, prefix: Sequence[str] = ()
    ) -> None:
        """Start the process of a peer, and wait until its buffer or table is full.

        `start` contains the options of the buffer or table. The process uses Reverb's interpreter if `reverb`
        is true, else this one. `prefix` precedes its command. Raises NotMeasurable if it can't be started.
        """
        self.name = name
        other = python_of("reverb") if reverb else None
        if reverb and other is None:
            raise NotMeasurable("there is no benchmarks/.venv/reverb; run `make lab TARGET=peers`")
        module = f"benchmarks.peers.helper_{'reverb' if reverb else 'our_tables'}"
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self.process = subprocess.Popen(
            [*prefix, other or sys.executable, "-m", module, json.dumps(start, allow_nan=False)],
            bufsize=0,  # `select` doesn't see lines in a buffer of this process
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **QUIET_ON_CPU, **KEY, "PYTHONPATH": python_path(other)},
        )
        try:
            self.description = self.receive()
        except HelperLost as error:
            self.close()
            raise NotMeasurable(f"{name} failed to start: {error}") from error

    def receive(self) -> dict[str, Any]:
        """Wait for the next response; raises HelperLost if there is none within `ANSWER_SECONDS`."""
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
            line = self.process.stdout.readline()
            if not line.endswith(b"\n"):
                raise self.lost("ended")
            if line.startswith(b"{"):
                return json.loads(line)
        raise self.lost(f"didn't respond within {ANSWER_SECONDS:g} s")

    def lost(self, what: str) -> HelperLost:
        """Return an error that quotes the last line of the process's standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        quoted = f"; its last message was '{last}'" if last else ""
        return HelperLost(self.name, f"its helper process {what}{quoted}")

    def send(self, kind: str, **options: object) -> None:
        """Send a request; `receive` returns the response. Raises HelperLost if the process ended."""
        assert self.process.stdin is not None
        try:
            line = json.dumps({"kind": kind, **options}, allow_nan=False)
            self.process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError as error:
            raise self.lost("ended") from error

    def request(self, kind: str, **options: object) -> dict[str, Any]:
        """Send a request and return the response; raises HelperLost as `send` and `receive` do."""
        self.send(kind, **options)
        return self.receive()

    def workload(self, do: str, size: int = 1) -> SelfTimed:
        """Return a workload that calls an operation in the process."""
        return SelfTimed(lambda calls: float(self.request("calls", do=do, size=size, calls=calls)["seconds"]))

    def close(self) -> None:
        """Kill the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            if file is not None:
                file.close()
