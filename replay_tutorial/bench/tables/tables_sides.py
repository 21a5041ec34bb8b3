"""The two sides, ours and Reverb, each in a process and a Python of its own.

Both run the same program (`tables_helper`) and take their orders in turns, so that one rests while the other
is measured.

Left out: what they are asked for.
"""

import json
import secrets
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from replay_tutorial.bench.peers.helper import QUIET, HelperProcess
from replay_tutorial.bench.peers.peer import OURS
from replay_tutorial.bench.peers.reverb import reverb_python
from replay_tutorial.measuring.fresh import python_path
from replay_tutorial.measuring.timing import RemoteWorkload
from replay_tutorial.tables.remote.local_socket import VARIABLE

REVERB = "Reverb"
NAMES = (OURS, REVERB)
ENVIRONMENT = {**QUIET, "PYTHONPATH": python_path(), VARIABLE: secrets.token_hex(32)}
PROGRAM = Path(__file__).with_name("tables_helper.py")


class Side(HelperProcess):
    """A process with a table, or one that calls it.

    Attributes:
        name: OURS or REVERB.
        version: Of what it measures.
        address: Of its server; "" if others can't call it.
        bytes_per_item: What an item of its table takes beside the values of a step; 0 where nobody knows.
    """

    def __init__(self, name: str, table: str, *, serve: str = "", address: str = "") -> None:
        """Start it, and wait until its table is full.

        Args:
            name: OURS or REVERB.
            table: "uniform" or "prioritized".
            serve: Where ours shall listen for other processes; Reverb chooses that for itself.
            address: Of the server that it is to call; it has none of its own then.

        Raises:
            ImportError: If it can't be started.
        """
        start = json.dumps({"table": table, "serve": serve, "address": address}, allow_nan=False)
        if name == REVERB:
            command: list[str | Path] = [reverb_python(), "-E", "-s", PROGRAM, "reverb_tables", start]
        else:
            command = [sys.executable, PROGRAM, "our_tables", start]
        super().__init__(command, ENVIRONMENT)
        self.name = name
        try:
            made = self.answer()
        except RuntimeError as error:
            self.close()
            raise ImportError(f"{name} could not be started: {error}") from error
        self.version = str(made["version"])
        self.address = str(made["address"])
        self.bytes_per_item = float(made["bytes_per_item"])

    def ask(self, kind: str, **order: object) -> dict[str, Any]:
        """Let it do something, and wait for what it answers.

        Raises:
            RuntimeError: If it ended, or kept silent for too long.
        """
        self.order({"kind": kind, **order})
        return self.answer()

    def workload(self, do: str, size: int = 1) -> RemoteWorkload:
        """Return a call there as a workload."""
        return RemoteWorkload(
            lambda calls: float(self.ask("calls", do=do, size=size, calls=calls)["seconds"])
        )


def reverb_is_missing() -> str:
    """Return why Reverb can't be measured; "" if it can."""
    try:
        reverb_python()
    except ImportError as error:
        return str(error)
    return ""


@contextmanager
def both_sides(names: Sequence[str], table: str, *, serve: str = "") -> Generator[list[Side]]:
    """Start a process for each side; end them afterwards."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Side(name, table, serve=serve))) for name in names]
