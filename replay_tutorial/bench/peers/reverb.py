"""Reverb as a peer of the buffers, in a helper process that holds a server with a table of rows.

It has two ways to add and two to sample, so it stands in the table twice: `Client.insert` with
`Client.sample`, and a writer with a dataset. `update` isn't measured: there are no importance weights to pair
it with.
"""

from typing import Any

import numpy as np

from replay_tutorial.bench.peers.helper import HelperProcess
from replay_tutorial.bench.peers.peer import FIELDS, Buffer, Float32Array, Kind, Values
from replay_tutorial.measuring.timing import Workload

MAX_ROWS = 2**16
# of its server's memory: from 0.8 to 2.0 GB between 2^16 and 2^18 rows of 140 bytes
KILOBYTES_PER_ROW = 6
WAYS = {"Reverb client": ("insert", "sample"), "Reverb dataset": ("writer", "dataset")}


class Reverb(Buffer):
    """One of the two ways to use it; each buffer has a server of its own, which is full from the start."""

    def __init__(self, name: str, module: Any, example: Values, kind: Kind) -> None:
        """Start the helper.

        Raises:
            ImportError: If there is no such Python, no Reverb in it, or too little memory.
        """
        if kind.capacity > MAX_ROWS:
            memory = kind.capacity * KILOBYTES_PER_ROW / 2**20
            raise ImportError(
                f"left out above {MAX_ROWS:,} rows, as its server takes {KILOBYTES_PER_ROW} KB of memory "
                f"a row, here {memory:.0f} GB, and minutes to fill"
            )
        self.adds, self.samples = WAYS[name]
        alpha = kind.alpha if kind.prioritized else 0.0
        rows = {"capacity": kind.capacity, "alpha": alpha, "fields": FIELDS}
        self.helper = HelperProcess(name, {"rows": rows}, reverb=True)

    def adding(self, values: Values, priorities: Float32Array | None = None) -> Workload | None:
        return self.helper.workload(self.adds) if adds_such(values, priorities) else None

    def extending(self, values: Values, priorities: Float32Array | None = None) -> Workload | None:
        return self.helper.workload(self.adds, len(values["rew"])) if adds_such(values, priorities) else None

    def sampling(self, batch_size: int) -> Workload:
        return self.helper.workload(self.samples, batch_size)

    def fill(self, values: Values) -> None:
        """Nothing is left to do: the helper has filled it."""

    def close(self) -> None:
        """End the helper."""
        self.helper.close()


def adds_such(values: Values, priorities: Float32Array | None) -> bool:
    """Return whether the helper adds such rows: its own have `FIELDS`, and the priority 1."""
    lengths = {name: np.shape(value)[-1:] for name, value in values.items()}
    return priorities is None and lengths == {name: (length,) for name, length in FIELDS.items()}
