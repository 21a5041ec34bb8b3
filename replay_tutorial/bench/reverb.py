"""DeepMind's Reverb, in a Python of its own: its TensorFlow wants another NumPy than ours.

`make bench-peers` makes that Python in `.venv/reverb`. A helper process there holds a server and its tables, and times
what it is told to. Reverb has two ways to add and two to sample, so it stands in the table twice: `Client.insert` with
`Client.sample`, and a writer with a dataset.

Left out: systems other than Linux, for which there is no Reverb; `update`, as it has no importance weights to pair it.
"""

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

from replay_tutorial.bench.peers import Float32Array, Rows
from replay_tutorial.bench.timing import ElsewhereWork, Work

PYTHON_VARIABLE = "REPLAY_TUTORIAL_REVERB"
PATIENCE = 300.0  # seconds without an answer
MOST_ROWS = 2**16  # its writer takes minutes to fill more
WAYS = {"Reverb client": ("insert", "sample"), "Reverb dataset": ("writer", "dataset")}


def reverb_python() -> Path:
    """Tell where the Python with Reverb should be."""
    return Path(os.environ.get(PYTHON_VARIABLE, Path(".venv") / "reverb" / "bin" / "python"))


class Helper:
    """The process with the server."""

    def __init__(self, capacity: int, alpha: float) -> None:
        """Start it and wait until its tables are full.

        Raises:
            ImportError: If there is no such Python, or no Reverb in it.
        """
        if capacity > MOST_ROWS:
            raise ImportError(f"left out above {MOST_ROWS:,} rows, as filling its tables takes minutes")
        python = reverb_python()
        if not python.is_file():
            raise ImportError(
                f"there is no {python}; `make bench-peers` makes it, or name one in {PYTHON_VARIABLE}"
            )
        program = Path(__file__).with_name("reverb_helper.py")
        self.process = subprocess.Popen(
            [python, "-I", program, str(capacity), str(alpha)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        try:
            self.version = str(self.answer()["version"])
        except RuntimeError as error:
            self.close()
            raise ImportError(f"{python} could not start Reverb: {error}") from error

    def answer(self) -> dict[str, Any]:
        """Wait for the next line that it writes.

        Raises:
            RuntimeError: If it ended, or kept silent for too long.
        """
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], PATIENCE)[0]:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the helper process of Reverb has ended")
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"the helper process of Reverb was silent for {PATIENCE:g} s")

    def seconds(self, kind: str, table: str, size: int, calls: int) -> float:
        """Let it do something so many times; what it took there."""
        assert self.process.stdin is not None
        order = {"kind": kind, "table": table, "size": size, "calls": calls}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return float(self.answer()["seconds"])

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Reverb:
    """One of the two ways to use it; each has a server of its own."""

    def __init__(self, name: str, module: Any, capacity: int, alpha: float) -> None:
        """Start the helper."""
        self.name = name
        self.adds, self.samples = WAYS[name]
        self.helper = Helper(capacity, alpha)
        self.version = self.helper.version

    def work(self, kind: str, prioritized: bool, size: int) -> Work:
        """Make a work of an order to the helper."""
        table = "prioritized" if prioritized else "uniform"
        return ElsewhereWork(lambda calls: self.helper.seconds(kind, table, size, calls))

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Float32Array | None = None) -> Work | None:
        """Add, as `Peer` says."""
        return self.work(self.adds, prioritized, 1 if rows["obs"].ndim == 1 else len(rows["obs"]))

    def sampling(self, batch_size: int, *, prioritized: bool) -> Work | None:
        """Sample, as `Peer` says."""
        return self.work(self.samples, prioritized, batch_size)

    def updating(self, batch_size: int) -> Work | None:
        """Sample and update, as `Peer` says."""
        return None

    def close(self) -> None:
        """End the helper."""
        self.helper.close()
