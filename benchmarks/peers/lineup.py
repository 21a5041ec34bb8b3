"""The registry of peers, and the peers of a measurement, which are timed in interleaved rounds.

`make lab TARGET=peers` installs all libraries.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.peers import episodes, libraries, plain_python
from benchmarks.peers.buffer import (
    CEILING,
    CHUNK,
    OURS,
    Buffer,
    Ceiling,
    CpprbLike,
    Kind,
    NotMeasurable,
    Values,
    has_default_fields,
    random_rows,
)
from benchmarks.peers.episodes import GOALS, LENGTH, REVERSE, WINDOWS
from benchmarks.peers.helper import HelperLost
from replay_course.number_tables import three_digits
from replay_course.timing import FloatArray, Spread, Workload, measure

FRAMES = ("dedupe_next", "dedupe_frames")
SLOT_SECONDS = 0.005


Make = Callable[[Values, Kind], Buffer]
"""Creates a buffer from an example transition and options."""


@dataclass(frozen=True)
class Entry:
    """A library, and the options that its buffers support."""

    make: Make
    distributions: tuple[str, ...] = ()  # with versions; empty if none; Reverb's helper reports its own
    prioritized: tuple[bool, ...] = (False, True)
    once: Collection[str] = ()  # supported deduplication
    only_rows: bool = False  # whether `make` supports only rows of `FIELDS`, of one environment
    variants: Mapping[str, Make] = field(default_factory=dict[str, Make])  # other ways to sample


PEERS: dict[str, Entry] = {
    OURS: Entry(
        CpprbLike,
        once=FRAMES,
        variants={
            WINDOWS: partial(CpprbLike, class_name="SequenceReplayBuffer", length=LENGTH, boundary="drop"),
            GOALS: partial(
                CpprbLike,
                class_name="HindsightReplayBuffer",
                compute_reward=episodes.reward_of,
                compute_terminated=episodes.is_achieved,
                reward="rew",
            ),
        },
    ),
    "cpprb": Entry(
        partial(CpprbLike, package="cpprb"),
        ("cpprb",),
        once=FRAMES,
        variants={
            GOALS: episodes.CpprbGoals,
            REVERSE: partial(CpprbLike, package="cpprb", class_name="ReverseReplayBuffer"),
        },
    ),
    "Stable-Baselines3": Entry(
        libraries.StableBaselines3,
        ("stable-baselines3", "torch"),
        (False,),
        once=("dedupe_next",),
        variants={GOALS: episodes.StableBaselines3Goals},
    ),
    "tianshou": Entry(libraries.Tianshou, ("tianshou",), once=FRAMES),
    "TorchRL": Entry(
        libraries.TorchRL,
        ("torchrl", "tensordict", "torch"),
        variants={WINDOWS: episodes.TorchRLSteps, GOALS: episodes.TorchRLSteps},
    ),
    "flashbax": Entry(
        libraries.Flashbax, ("flashbax", "jax"), only_rows=True, variants={WINDOWS: episodes.FlashbaxWindows}
    ),
    "deque": Entry(plain_python.Deque, prioritized=(False,), only_rows=True),
    "Python sum tree": Entry(plain_python.TreeMemory, prioritized=(True,), only_rows=True),
    **{name: Entry(partial(libraries.Reverb, name), only_rows=True) for name in libraries.REVERB_WAYS},
    CEILING: Entry(Ceiling, once=FRAMES, variants={WINDOWS: episodes.CeilingWindows, GOALS: Ceiling}),
}
OTHERS = [name for name in PEERS if name not in (OURS, CEILING)]


@dataclass
class Peer:
    """A library in a measurement, with its buffers that several cases share."""

    name: str
    skipped: str = ""  # why the peer, or one of its buffers, can't be measured
    fault: str = ""  # what is wrong with its samples
    measured: bool = False  # whether the library is installed and supports some options
    lost: bool = False  # whether its process has ended; its earlier figures are kept
    versions: dict[str, str] = field(default_factory=dict[str, str])  # of its helper process
    buffers: dict[Kind, Buffer | None] = field(default_factory=dict[Kind, Buffer | None])

    def full(self, example: Values, kind: Kind, batches: Iterable[Values]) -> Buffer | None:
        """Return a buffer filled with batches, or None if the library doesn't support its options."""
        entry = PEERS[self.name]
        if kind.prioritized not in entry.prioritized or not set(kind.once) <= set(entry.once):
            return None
        make = entry.variants.get(kind.variant) if kind.variant else entry.make
        if make is None:
            return None
        other = kind.environments > 1 or not has_default_fields(example)
        if entry.only_rows and not kind.variant and other:
            return self.skip("it is measured with only rows of float32 vectors, of one environment")
        try:
            buffer = make(example, kind)
        except (ImportError, NotMeasurable) as error:
            return self.skip(str(error))
        self.measured = True
        if isinstance(buffer, libraries.Reverb):
            self.versions["dm-reverb"] = buffer.helper.description["version"]
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

    def skip(self, reason: str) -> None:
        """Note, and print once, why the peer or one of its buffers can't be measured."""
        if not self.skipped:
            print(f"skipped {self.name}: {reason}", flush=True)
        self.skipped = reason

    def close(self) -> None:
        """Stop the processes of the peer's buffers."""
        for buffer in self.buffers.values():
            if buffer is not None:
                buffer.close()
        self.buffers.clear()


MakeWorkload = Callable[[Peer], Workload | None]
"""Builds a peer's workload; returns None if the library doesn't support the operation."""


class Lineup:
    """The peers `names`, with ours first and the ceiling last."""

    def __init__(self, names: Sequence[str]) -> None:
        self.peers = [Peer(name) for name in (OURS, *names, CEILING)]

    @property
    def skipped(self) -> dict[str, str]:
        """Peer → why it, or one of its buffers, can't be measured."""
        return {peer.name: peer.skipped for peer in self.peers if peer.skipped}

    @property
    def faults(self) -> dict[str, str]:
        """Peer → what is wrong with its samples."""
        return {peer.name: peer.fault for peer in self.peers if peer.fault}

    @property
    def distributions(self) -> list[str]:
        """Distributions of the measured peers and of their array libraries."""
        named = [PEERS[peer.name].distributions for peer in self.peers if peer.measured]
        return list(dict.fromkeys(itertools.chain.from_iterable(named)))

    @property
    def versions_elsewhere(self) -> dict[str, str]:
        """Versions of the distributions in other interpreters."""
        return dict(itertools.chain.from_iterable(peer.versions.items() for peer in self.peers))

    def seconds_of(
        self, prepare: MakeWorkload, rounds: int, slot_seconds: float, where: str
    ) -> dict[str, FloatArray]:
        """Return the seconds per call of each peer; one that is lost isn't measured from `where` on."""
        while True:
            made = {peer.name: prepare(peer) for peer in self.peers if not peer.lost}
            workloads = {name: work for name, work in made.items() if work is not None}
            try:
                return measure(workloads, rounds=rounds, slot_seconds=slot_seconds)
            except HelperLost as lost:
                gone = next(peer for peer in self.peers if peer.name == lost.name)
                gone.close()
                gone.lost, gone.skipped = True, f"from {where} on, because {lost}"
                print(f"{lost.name}: {lost}", flush=True)

    def close(self) -> None:
        """Stop the processes of all peers."""
        for peer in self.peers:
            peer.close()


@dataclass(frozen=True)
class Row:
    """The measurements of one operation."""

    operation: str
    microseconds: dict[str, Spread]  # peer → time of one call
    ratios: dict[str, Spread]  # peer → its time / our time, computed within each round

    def __str__(self) -> str:
        """Return the medians on one line."""
        medians = ", ".join(f"{name} {three_digits(each.median)}" for name, each in self.microseconds.items())
        return f"{self.operation}: {medians} µs"


def row_of(operation: str, seconds: dict[str, FloatArray]) -> Row:
    """Return the spreads of the times and of the ratios; `seconds` are float64[rounds] for each peer."""
    times = {name: Spread.of(rounds * 1e6) for name, rounds in seconds.items()}
    ratios = {name: Spread.of(rounds / seconds[OURS]) for name, rounds in seconds.items() if name != OURS}
    return Row(operation, times, ratios)
