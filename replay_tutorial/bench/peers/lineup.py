"""The lineup: all peers by name, those that can be measured here, and why the others can't.

`make bench-peers` installs them.
"""

import importlib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from replay_tutorial.bench.peers import libraries, plain_python, reverb
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
    """A library, and the kinds of buffers that it has."""

    distributions: tuple[str, ...]  # whose versions stand below the table; none for what is part of Python
    package: str  # to import
    make: Callable[[Any, Values, Kind], Buffer]  # from the package, an example and the kind
    prioritized: tuple[bool, ...] = (False, True)
    once: Collection[str] = ()  # what it can store once


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
    **{name: Entry((), "json", partial(reverb.Reverb, name)) for name in reverb.WAYS},
    CEILING: Entry((), "numpy", Ceiling, once=FRAMES),
}


@dataclass
class Side:
    """One peer in a measurement, with the buffers that several cases share."""

    name: str
    skipped: dict[str, str]  # name → why it, or a kind of its buffers, can't be measured
    rows: dict[Kind, Buffer | None] = field(default_factory=dict[Kind, Buffer | None])

    def full(self, example: Values, kind: Kind, batches: Iterable[Values]) -> Buffer | None:
        """Make a buffer and fill it with batches; None if the library has none of that kind."""
        entry = PEERS[self.name]
        if kind.prioritized not in entry.prioritized or not set(kind.once) <= set(entry.once):
            return None
        try:
            buffer = entry.make(importlib.import_module(entry.package), example, kind)
        except ImportError as error:
            self.skipped[self.name] = str(error)
            return None
        for values in batches:
            buffer.fill(values)
        return buffer

    def full_of_rows(self, kind: Kind) -> Buffer | None:
        """Return the buffer of this kind that is full of random rows; it is made once."""
        if kind not in self.rows:
            rng, starts = np.random.default_rng(0), range(0, kind.capacity, CHUNK)
            batches = (random_rows(rng, min(CHUNK, kind.capacity - start)) for start in starts)
            self.rows[kind] = self.full(random_rows(rng, None), kind, batches)
        return self.rows[kind]

    def close(self) -> None:
        """End the processes of its buffers."""
        for buffer in self.rows.values():
            if buffer is not None:
                buffer.close()
        self.rows.clear()


@dataclass(frozen=True)
class Lineup:
    """The sides that are measured, and why others are not."""

    sides: list[Side]
    skipped: dict[str, str]

    @property
    def names(self) -> list[str]:
        """Of those that are measured."""
        return [side.name for side in self.sides]

    @property
    def distributions(self) -> list[str]:
        """What those that are measured were installed from, and what they compute with."""
        named = [PEERS[name].distributions for name in self.names]
        return list(dict.fromkeys(itertools.chain.from_iterable(named)))

    @property
    def versions_elsewhere(self) -> Mapping[str, str]:
        """The versions of those in a Python of their own."""
        buffers = [buffer for side in self.sides for buffer in side.rows.values()]
        found = [buffer.helper.made for buffer in buffers if isinstance(buffer, reverb.Reverb)]
        return {"dm-reverb": found[0]["version"]} if found else {}

    def close(self) -> None:
        """End the processes that some of them have."""
        for side in self.sides:
            side.close()


def gather(names: Sequence[str] = tuple(PEERS)) -> Lineup:
    """Find the peers of these names, ours and the ceiling always among them, that can be imported."""
    skipped: dict[str, str] = {}
    sides: list[Side] = []
    for name in dict.fromkeys([OURS, *names, CEILING]):
        try:
            importlib.import_module(PEERS[name].package)
        except ImportError as error:
            skipped[name] = str(error)
        else:
            sides.append(Side(name, skipped))
    sides.sort(key=lambda side: side.name == CEILING)
    return Lineup(sides, skipped)
