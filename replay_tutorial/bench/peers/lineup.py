"""The registry of peers, and those of a measurement. `make bench-peers` installs all libraries."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from replay_tutorial.bench.peers import libraries, plain_python
from replay_tutorial.bench.peers.buffer import (
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
from replay_tutorial.bench.peers.episodes import VARIANTS

FRAMES = ("next_of", "stack_compress")


@dataclass(frozen=True)
class Entry:
    """A library, and the options that its buffers support."""

    make: Callable[[Values, Kind], Buffer]  # from an example transition and options
    distributions: tuple[str, ...] = ()  # reported with their versions; empty for the standard library
    prioritized: tuple[bool, ...] = (False, True)
    once: Collection[str] = ()  # supported deduplication


PEERS: dict[str, Entry] = {
    OURS: Entry(CpprbLike, once=FRAMES),
    "cpprb": Entry(partial(CpprbLike, package="cpprb"), ("cpprb",), once=FRAMES),
    "Stable-Baselines3": Entry(
        libraries.StableBaselines3, ("stable-baselines3", "torch"), (False,), once=("next_of",)
    ),
    "tianshou": Entry(libraries.Tianshou, ("tianshou",), once=FRAMES),
    "TorchRL": Entry(libraries.TorchRL, ("torchrl", "tensordict", "torch")),
    "flashbax": Entry(libraries.Flashbax, ("flashbax", "jax")),
    "deque": Entry(plain_python.Deque, prioritized=(False,)),
    "Python sum tree": Entry(plain_python.TreeMemory, prioritized=(True,)),
    **{name: Entry(partial(libraries.Reverb, name)) for name in libraries.REVERB_WAYS},
    CEILING: Entry(Ceiling, once=FRAMES),
}
OTHERS = [name for name in PEERS if name not in (OURS, CEILING)]


@dataclass
class Peer:
    """A library in a measurement, with its buffers that several cases share."""

    name: str
    measured = False  # whether the library is installed and supports some options
    skipped: dict[str, str]  # peer → reason why it, or one of its buffers, can't be measured
    buffers: dict[Kind, Buffer | None] = field(default_factory=dict[Kind, Buffer | None])
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
            buffer = make(example, kind)
        except ImportError as error:
            if self.name not in self.skipped:
                print(f"skipped {self.name}: {error}", flush=True)
            self.skipped[self.name] = str(error)
            return None
        self.measured = True
        for values in batches:
            buffer.fill(values)
        return buffer

    def full_of_rows(self, kind: Kind) -> Buffer | None:
        """Return the buffer with these options, full of random rows; repeated calls return the same one."""
        if kind not in self.buffers:
            rng, starts = np.random.default_rng(0), range(0, kind.capacity, CHUNK)
            batches = (random_rows(rng, min(CHUNK, kind.capacity - start)) for start in starts)
            self.buffers[kind] = self.full(random_rows(rng, None), kind, batches)
        return self.buffers[kind]

    def close(self) -> None:
        """Stop the processes of the peer's buffers."""
        for buffer in self.buffers.values():
            if buffer is not None:
                buffer.close()
        self.buffers.clear()


class Lineup:
    """The peers `names`, with ours first and the ceiling last, and their common `skipped` and `faults`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.skipped: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        self.peers = [Peer(name, self.skipped, faults=self.faults) for name in (OURS, *names, CEILING)]

    @property
    def distributions(self) -> list[str]:
        """Distributions of the measured peers and of their array libraries."""
        named = [PEERS[peer.name].distributions for peer in self.peers if peer.measured]
        return list(dict.fromkeys(itertools.chain.from_iterable(named)))

    @property
    def versions_elsewhere(self) -> Mapping[str, str]:
        """Versions of the distributions in other interpreters."""
        buffers = [buffer for peer in self.peers for buffer in peer.buffers.values()]
        found = [buffer.helper.description for buffer in buffers if isinstance(buffer, libraries.Reverb)]
        return {"dm-reverb": found[0]["version"]} if found else {}

    def close(self) -> None:
        """Stop the processes of all peers."""
        for peer in self.peers:
            peer.close()
