"""A peer: a buffer that is measured. Here are ours and cpprb's, and the machine itself as the ceiling.

A peer turns an operation ("add these rows") into a workload: a call without arguments, ready to be timed,
with nothing between the clock and the library except that call. All peers hold the same rows, and get the
same arrays by keyword. The ceiling is what the barest NumPy call needs to move the same bytes: no drawing,
no tree, no checks.

Left out: libraries whose calls differ from cpprb's; `plain_python`, `frameworks` and `reverb` have a class
for each.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from replay_tutorial.bench.method.timing import Workload

Float32Array = npt.NDArray[np.float32]
Rows = Mapping[str, Float32Array]
Priorities = Float32Array | None

# field → shape; float32, 140 bytes per row
FIELDS = {"obs": 15, "act": 3, "next_obs": 15, "rew": 1, "done": 1}
ALPHA, BETA = 0.6, 0.4
OURS, CEILING = "ours", "ceiling"
FILL_CHUNK = 2**14


class Peer(Protocol):
    """Turns operations into workloads on a buffer that is full; an operation that it doesn't have is None."""

    name: str

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload | None:
        """Return an `add` of one transition (fields without a batch axis) or of a batch."""
        ...

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload | None:
        """Return a `sample`."""
        ...

    def updating(self, batch_size: int) -> Workload | None:
        """Return a `sample` of a prioritized buffer with the `update_priorities` of what it drew."""
        return None


def random_rows(rng: np.random.Generator, count: int | None) -> Rows:
    """Draw rows: fields float32[count, shape], or float32[shape] of one transition if `count` is None."""
    batch = () if count is None else (count,)
    return {name: rng.random((*batch, shape), dtype=np.float32) for name, shape in FIELDS.items()}


def endless_priorities(rng: np.random.Generator, batch_size: int) -> Iterator[Float32Array]:
    """Repeat 256 batches of priorities, drawn beforehand: float32, as a network's |TD errors| are."""
    return itertools.cycle(list(rng.exponential(size=(256, batch_size)).astype(np.float32)))


class Library(Peer):
    """A library with cpprb's calls: ours, or cpprb itself. Only the imported module differs."""

    def __init__(self, name: str, module: Any, capacity: int, alpha: float = ALPHA) -> None:
        """Make a uniform and a prioritized buffer of `capacity` rows, and fill both."""
        self.name = name
        env_dict = {field: {"shape": shape} for field, shape in FIELDS.items()}
        self.uniform: Any = module.ReplayBuffer(capacity, env_dict)
        self.prioritized: Any = module.PrioritizedReplayBuffer(capacity, env_dict, alpha=alpha)
        rng = np.random.default_rng(0)
        for start in range(0, capacity, FILL_CHUNK):
            count = min(FILL_CHUNK, capacity - start)
            rows = random_rows(rng, count)
            self.uniform.add(**rows)
            self.prioritized.add(**rows, priorities=rng.exponential(size=count))

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload:
        obs, act, next_obs, rew, done = (rows[field] for field in FIELDS)
        add = self.prioritized.add if prioritized else self.uniform.add
        # The keywords are written out: **rows would add the same cost to both sides and shrink the ratio.
        if priorities is None:
            return lambda: add(obs=obs, act=act, next_obs=next_obs, rew=rew, done=done)
        return lambda: add(obs=obs, act=act, next_obs=next_obs, rew=rew, done=done, priorities=priorities)

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload:
        if prioritized:
            return lambda: self.prioritized.sample(batch_size, beta=BETA)
        return lambda: self.uniform.sample(batch_size)

    def updating(self, batch_size: int) -> Workload:
        buffer = self.prioritized
        priorities = endless_priorities(np.random.default_rng(1), batch_size)

        def sample_and_update() -> None:
            batch = buffer.sample(batch_size, beta=BETA)
            buffer.update_priorities(batch["indexes"], next(priorities))

        return sample_and_update


class Ceiling(Peer):
    """What the machine allows: the same bytes by the barest NumPy call, from one array of records."""

    name = CEILING

    def __init__(self, capacity: int) -> None:
        """Make the array of records, and fill it."""
        self.capacity = capacity
        row_type = np.dtype([(field, np.float32, shape) for field, shape in FIELDS.items()])
        self.records: npt.NDArray[np.void] = np.zeros(capacity, row_type)  # records[capacity], 140 bytes each
        self.rng = np.random.default_rng(0)
        for field, values in random_rows(self.rng, capacity).items():
            self.records[field] = values

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload:
        # Of a batch one assignment per field, of one transition one for all fields.
        records = self.records
        obs, act, next_obs, rew, done = (rows[field] for field in FIELDS)
        if obs.ndim == 1:
            slots = itertools.cycle(range(self.capacity))

            def write_one() -> None:
                records[next(slots)] = (obs, act, next_obs, rew, done)

            return write_one
        count = len(obs)
        starts = itertools.cycle(range(0, self.capacity - count + 1, count))
        columns = [(records[field], rows[field]) for field in FIELDS]

        def write_batch() -> None:
            start = next(starts)
            for column, values in columns:
                column[start : start + count] = values

        return write_batch

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload:
        # Twice as many slots as rows before they repeat: a short list would be answered from the cache.
        batches = max(1, 2 * self.capacity // batch_size)
        drawn: list[npt.NDArray[np.int64]] = list(self.rng.integers(0, self.capacity, (batches, batch_size)))
        slots = itertools.cycle(drawn)
        records = self.records
        return lambda: records.take(next(slots))

    def updating(self, batch_size: int) -> Workload:
        return self.sampling(batch_size, prioritized=True)
