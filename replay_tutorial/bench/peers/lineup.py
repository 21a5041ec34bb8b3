"""The registry of peers, and the selection of those that are installed. `make bench-peers` installs all."""

import importlib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from replay_tutorial.bench.peers import libraries, plain_python
from replay_tutorial.bench.peers.episodes import VARIANTS
from replay_tutorial.bench.peers.peer import (
    CEILING,
    CHUNK,
    OURS,
    Buffer,
    Ceiling,
    CpprbLike,
    Kind,
    Values,
    random_rows,
)

FRAMES = ("next_of", "stack_compress")


@dataclass(frozen=True)
class Entry:
    """A library, and the options that its buffers support."""

    distributions: tuple[str, ...]  # reported with their versions; empty for the standard library
    package: str  # name of the package to import
    make: Callable[[Any, Values, Kind], Buffer]  # package, example, options → buffer
    prioritized: tuple[bool, ...] = (False, True)
    once: Collection[str] = ()  # supported deduplication


PEERS: dict[str, Entry] = {
    OURS: Entry((), "replay_tutorial", CpprbLike, once=FRAMES),
    "cpprb": Entry(("cpprb",), "cpprb", CpprbLike, once=FRAMES),
    "Stable-Baselines3": Entry(
        ("stable-baselines3", "torch"),
        "stable_baselines3",
        libraries.StableBaselines3,
        (False,),
        once=("next_of",),
    ),
    "tianshou": Entry(("tianshou",), "tianshou", libraries.Tianshou, once=FRAMES),
    "TorchRL": Entry(("torchrl", "tensordict", "torch"), "torchrl", libraries.TorchRL),
    "flashbax": Entry(("flashbax", "jax"), "flashbax", libraries.Flashbax),
    "deque": Entry((), "collections", plain_python.Deque, (False,)),
    "Python sum tree": Entry((), "random", plain_python.TreeMemory, (True,)),
    **{name: Entry((), "json", partial(libraries.Reverb, name)) for name in libraries.REVERB_WAYS},
    CEILING: Entry((), "numpy", Ceiling, once=FRAMES),
}


@dataclass
class Side:
    """A peer in a measurement, with its buffers that several cases share."""

    name: str
    skipped: dict[str, str]  # peer → reason why it, or one of its buffers, can't be measured
    rows: dict[Kind, Buffer | None] = field(default_factory=dict[Kind, Buffer | None])
    faults: dict[str, str] = field(default_factory=dict[str, str])  # peer → what is wrong with its samples

    def full(self, example: Values, kind: Kind, batches: Iterable[Values]) -> Buffer | None:
        """Return a buffer filled with batches, or None if the library doesn't support its options."""
        entry = PEERS[self.name]
        if kind.prioritized not in entry.prioritized or not set(kind.once) <= set(entry.once):
            return None
        make = VARIANTS.get((self.name, kind.variant)) if kind.variant else entry.make
        if make is None:
            return None
        try:
            buffer = make(importlib.import_module(entry.package), example, kind)
        except ImportError as error:
            self.skipped[self.name] = str(error)
            return None
        for values in batches:
            buffer.fill(values)
        return buffer

    def full_of_rows(self, kind: Kind) -> Buffer | None:
        """Return the buffer with these options, full of random rows; repeated calls return the same one."""
        if kind not in self.rows:
            rng, starts = np.random.default_rng(0), range(0, kind.capacity, CHUNK)
            batches = (random_rows(rng, min(CHUNK, kind.capacity - start)) for start in starts)
            self.rows[kind] = self.full(random_rows(rng, None), kind, batches)
        return self.rows[kind]

    def close(self) -> None:
        """Stop the processes of the peer's buffers."""
        for buffer in self.rows.values():
            if buffer is not None:
                buffer.close()
        self.rows.clear()


class Lineup:
    """The importable peers among `names`, always with ours first and the ceiling last.

    Attributes:
        sides: The peers to measure.
        skipped: Peer → reason why it, or one of its buffers, can't be measured.
        faults: Peer → what is wrong with its samples.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.sides: list[Side] = []
        self.skipped: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        for name in [OURS, *(name for name in names if name not in (OURS, CEILING)), CEILING]:
            try:
                importlib.import_module(PEERS[name].package)
            except ImportError as error:
                self.skipped[name] = str(error)
            else:
                self.sides.append(Side(name, self.skipped, faults=self.faults))

    @property
    def names(self) -> list[str]:
        """Names of the measured peers."""
        return [side.name for side in self.sides]

    @property
    def distributions(self) -> list[str]:
        """Distributions of the measured peers and of their array libraries."""
        named = [PEERS[name].distributions for name in self.names]
        return list(dict.fromkeys(itertools.chain.from_iterable(named)))

    @property
    def versions_elsewhere(self) -> Mapping[str, str]:
        """Versions of the distributions in other interpreters."""
        buffers = [buffer for side in self.sides for buffer in side.rows.values()]
        found = [buffer.helper.description for buffer in buffers if isinstance(buffer, libraries.Reverb)]
        return {"dm-reverb": found[0]["version"]} if found else {}

    def close(self) -> None:
        """Stop the processes of all peers."""
        for side in self.sides:
            side.close()
