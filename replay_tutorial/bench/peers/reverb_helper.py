"""The other end of `reverb`: a program for the Python that has Reverb, which needs a NumPy of its own.

It makes a server with one table in this process, fills it, and then does what each line of its input asks
for. The clock is read here, so the way between the processes isn't measured.
"""

import importlib
import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

# as in `peer`, which can't be imported here
FIELDS = {"obs": 15, "act": 3, "next_obs": 15, "rew": 1, "done": 1}
TABLE = "table"
# batches of a dataset: drawn before the clock runs, and timed at least
UNTIMED, MIN_CALLS = 10, 20


class Server:
    """The server with its table, and the calls of its client."""

    def __init__(self, capacity: int, alpha: float) -> None:
        """Make it, with a uniform table if alpha is 0, and fill it by one writer."""
        self.reverb: Any = importlib.import_module("reverb")
        self.tensorflow: Any = importlib.import_module("tensorflow")
        selectors, limiters = self.reverb.selectors, self.reverb.rate_limiters
        draw = selectors.Prioritized(alpha) if alpha else selectors.Uniform()
        table = self.reverb.Table(TABLE, draw, selectors.Fifo(), capacity, limiters.MinSize(1))
        self.server: Any = self.reverb.Server([table])
        self.client: Any = self.reverb.Client(f"localhost:{self.server.port}")
        rng = np.random.default_rng(0)
        self.row = {name: rng.random(shape, dtype=np.float32) for name, shape in FIELDS.items()}
        with self.client.writer(max_sequence_length=1) as writer:
            for priority in rng.exponential(size=capacity):
                writer.append(self.row)
                writer.create_item(TABLE, 1, priority)

    def workload(self, do: str, size: int) -> Callable[[], object]:
        """Return a call that adds or samples this many rows in one of the four ways."""
        client, row = self.client, self.row
        if do == "sample":
            return lambda: list(client.sample(TABLE, num_samples=size))
        if do == "dataset":
            batches = iter(self.dataset(size))
            return lambda: next(batches)

        def insert() -> None:
            for _ in range(size):
                client.insert(row, {TABLE: 1.0})

        def write() -> None:
            with client.writer(max_sequence_length=1) as writer:
                for _ in range(size):
                    writer.append(row)
                    writer.create_item(TABLE, 1, 1.0)

        return insert if do == "insert" else write

    def dataset(self, size: int) -> Any:
        """Return batches, made as in the documentation."""
        single = self.reverb.TimestepDataset(
            server_address=f"localhost:{self.server.port}",
            table=TABLE,
            dtypes={name: self.tensorflow.float32 for name in FIELDS},
            shapes={name: self.tensorflow.TensorShape([shape]) for name, shape in FIELDS.items()},
            max_in_flight_samples_per_worker=2 * size,
        )
        return single.batch(size)


def main(capacity: int, alpha: float) -> None:
    """Answer until the input ends: the version first, then the seconds of each order."""
    server = Server(capacity, alpha)
    workloads: dict[tuple[str, int], Callable[[], object]] = {}
    metadata: Any = importlib.import_module("importlib.metadata")
    print(json.dumps({"version": metadata.version("dm-reverb")}, allow_nan=False), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        key = (order["do"], order["size"])
        if key not in workloads:
            workloads.clear()  # a dataset goes on fetching as long as it lives
            workloads[key] = server.workload(*key)
        seconds = seconds_of(workloads[key], order["calls"], queued=order["do"] == "dataset")
        print(json.dumps({"seconds": seconds}, allow_nan=False), flush=True)


def seconds_of(workload: Callable[[], object], calls: int, queued: bool) -> float:
    """Return the seconds of this many calls.

    A dataset fills its queue while others are measured: a few batches are drawn from it before, and more
    are timed than were asked for, or the clock would see a queue and not what fills it.
    """
    timed = max(calls, MIN_CALLS) if queued else calls
    for _ in range(UNTIMED if queued else 0):
        workload()
    start = perf_counter()
    for _ in range(timed):
        workload()
    return (perf_counter() - start) * calls / timed


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
