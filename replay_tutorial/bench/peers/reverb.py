"""Reverb as a peer in the buffer benchmarks, with its server in a helper process.

Reverb is measured twice: `Client.insert` with `Client.sample`, and a writer with a dataset. Updates are not
measured, because Reverb computes no importance weights.
"""

from typing import Any

import numpy as np

from replay_tutorial.bench.peers.helper import HelperProcess
from replay_tutorial.bench.peers.peer import FIELDS, Buffer, Kind, Values
from replay_tutorial.measuring.timing import Workload

MAX_ROWS = 2**16
# memory of the server: 0.8 GB with 2^16 rows of 140 bytes, 2.0 GB with 2^18
KILOBYTES_PER_ROW = 6
WAYS = {"Reverb client": ("insert", "sample"), "Reverb dataset": ("writer", "dataset")}


class Reverb(Buffer):
    """One of the two ways to call Reverb; each buffer has its own server, which starts full."""

    def __init__(self, name: str, module: Any, example: Values, kind: Kind) -> None:
        """Start the helper.

        Raises:
            ImportError: If Reverb's interpreter doesn't exist or can't import Reverb, or if `kind` has more
                than `MAX_ROWS` rows.
        """
        if kind.capacity > MAX_ROWS:
            memory = kind.capacity * KILOBYTES_PER_ROW / 2**20
            raise ImportError(
                f"above {MAX_ROWS:,} rows its server takes minutes to fill and {KILOBYTES_PER_ROW} KB per "
                f"row, here {memory:.0f} GB"
            )
        self.adds, self.samples = WAYS[name]
        alpha = kind.alpha if kind.prioritized else 0.0
        rows = {"capacity": kind.capacity, "alpha": alpha, "fields": FIELDS}
        self.helper = HelperProcess(name, {"rows": rows}, reverb=True)

    def adding(self, values: Values) -> Workload | None:
        return self.helper.workload(self.adds) if can_add(values) else None

    def extending(self, values: Values) -> Workload | None:
        return self.helper.workload(self.adds, len(values["rew"])) if can_add(values) else None

    def sampling(self, batch_size: int) -> Workload:
        return self.helper.workload(self.samples, batch_size)

    def fill(self, values: Values) -> None:
        """Do nothing, because the helper has filled its buffer."""

    def close(self) -> None:
        """Stop the helper process."""
        self.helper.close()


def can_add(values: Values) -> bool:
    """Return whether the helper can add these rows: it supports only `FIELDS`."""
    lengths = {name: np.shape(value)[-1:] for name, value in values.items()}
    return lengths == {name: (length,) for name, length in FIELDS.items()}
