"""DeepMind's Reverb, in a Python of its own: its TensorFlow wants another NumPy than ours.

`make bench-peers` makes that Python in `.venv/reverb`. A helper process there holds a server with a
table, and times its own calls. Reverb has two ways to add and two to sample, so it stands in the table
twice: `Client.insert` with `Client.sample`, and a writer with a dataset. It runs on
Linux alone. `update` isn't measured: there are no importance weights to pair it with.
"""

import os
from pathlib import Path
from typing import Any

from replay_tutorial.bench.peers.helper import HelperProcess
from replay_tutorial.bench.peers.peer import Buffer, Float32Array, Kind, Values
from replay_tutorial.measuring.timing import RemoteWorkload, Workload

PYTHON_VARIABLE = "REPLAY_TUTORIAL_REVERB"
MAX_ROWS = 2**16
# of its server's memory: from 0.8 to 2.0 GB between 2^16 and 2^18 rows of 140 bytes
KILOBYTES_PER_ROW = 6
WAYS = {"Reverb client": ("insert", "sample"), "Reverb dataset": ("writer", "dataset")}


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
    """The helper process of a peer is gone or silent; the peer can't be measured any more."""

    def __init__(self, name: str, reason: str) -> None:
        """Keep who lost it."""
        super().__init__(reason)
        self.name = name


class Helper(HelperProcess):
    """The process with the server."""

    def __init__(self, kind: Kind) -> None:
        """Start it and wait until its table is full.

        Raises:
            ImportError: If there is no such Python, or no Reverb in it.
        """
        if kind.capacity > MAX_ROWS:
            memory = kind.capacity * KILOBYTES_PER_ROW / 2**20
            raise ImportError(
                f"left out above {MAX_ROWS:,} rows, as its server takes {KILOBYTES_PER_ROW} KB of memory "
                f"a row, here {memory:.0f} GB, and minutes to fill"
            )
        python = reverb_python()
        program = Path(__file__).with_name("reverb_helper.py")
        alpha = kind.alpha if kind.prioritized else 0.0
        super().__init__([python, "-I", program, str(kind.capacity), str(alpha)])
        try:
            self.version = str(self.answer()["version"])
        except RuntimeError as error:
            self.close()
            raise ImportError(f"{python} could not start Reverb: {error}") from error

    def seconds(self, do: str, size: int, calls: int) -> float:
        """Let it do something this many times, and return the seconds that it took there.

        Raises:
            RuntimeError: As `answer`.
        """
        self.order({"do": do, "size": size, "calls": calls})
        return float(self.answer()["seconds"])


class Reverb(Buffer):
    """One of the two ways to use it; each buffer has a server of its own, which is full from the start."""

    def __init__(self, name: str, module: Any, example: Values, kind: Kind) -> None:
        """Start the helper."""
        self.name = name
        self.adds, self.samples = WAYS[name]
        self.helper = Helper(kind)

    def workload(self, do: str, size: int) -> Workload:
        """Return an order to the helper as a workload; it raises HelperLost when the helper is lost."""

        def timed(calls: int) -> float:
            try:
                return self.helper.seconds(do, size, calls)
            except RuntimeError as error:
                raise HelperLost(self.name, str(error)) from error

        return RemoteWorkload(timed)

    def adding(self, values: Values, priorities: Float32Array | None = None) -> Workload:
        return self.workload(self.adds, 1)

    def extending(self, values: Values, priorities: Float32Array | None = None) -> Workload:
        return self.workload(self.adds, len(values["rew"]))

    def sampling(self, batch_size: int) -> Workload:
        return self.workload(self.samples, batch_size)

    def fill(self, values: Values) -> None:
        """Nothing is left to do: the helper has filled it."""

    def close(self) -> None:
        """End the helper."""
        self.helper.close()
