"""The lineup: all peers by name, those that can be measured here, and why the others can't.

Left out: installing them. `make bench-peers` does.
"""

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replay_tutorial.bench.peers import frameworks, plain_python, reverb
from replay_tutorial.bench.peers.peer import ALPHA, OURS, Ceiling, Library, Peer


@dataclass(frozen=True)
class Entry:
    """How a peer is made."""

    distributions: tuple[str, ...]  # whose versions stand below the table; none for what is part of Python
    package: str  # to import
    make: Callable[[str, Any, int, float], Peer]  # from its name, the package, capacity and alpha


PEERS: dict[str, Entry] = {
    OURS: Entry((), "replay_tutorial", Library),
    "cpprb": Entry(("cpprb",), "cpprb", Library),
    "Stable-Baselines3": Entry(
        ("stable-baselines3", "torch"), "stable_baselines3", frameworks.StableBaselines3
    ),
    "tianshou": Entry(("tianshou",), "tianshou", frameworks.Tianshou),
    "TorchRL": Entry(("torchrl", "tensordict", "torch"), "torchrl", frameworks.TorchRL),
    "flashbax": Entry(("flashbax", "jax"), "flashbax", frameworks.Flashbax),
    "deque": Entry((), "collections", plain_python.Deque),
    "Python sum tree": Entry((), "random", plain_python.TreeMemory),
    **{name: Entry((), "json", reverb.Reverb) for name in reverb.WAYS},
}


@dataclass(frozen=True)
class Lineup:
    """The peers that are measured, and those that could not come."""

    peers: list[Peer]
    skipped: dict[str, str]  # name → why

    @property
    def names(self) -> list[str]:
        """Of those that are measured."""
        return [peer.name for peer in self.peers]

    @property
    def distributions(self) -> list[str]:
        """What those that are measured were installed from, and what they compute with."""
        named = [PEERS[name].distributions for name in self.names if name in PEERS]
        return list(dict.fromkeys(itertools.chain.from_iterable(named)))

    @property
    def versions_elsewhere(self) -> dict[str, str]:
        """The versions of those in a Python of their own."""
        found = [peer.version for peer in self.peers if isinstance(peer, reverb.Reverb)]
        return {"dm-reverb": found[0]} if found else {}

    def close(self) -> None:
        """End the processes that some of them have."""
        for peer in self.peers:
            if isinstance(peer, reverb.Reverb):
                peer.close()


def gather(capacity: int, alpha: float = ALPHA, names: Sequence[str] = tuple(PEERS)) -> Lineup:
    """Make the peers of these names, and the ceiling.

    Args:
        capacity: Rows in every buffer.
        alpha: Of the prioritized ones.
        names: Who is asked for; all of them by default.

    Returns:
        Those that came, and why the others didn't; also what a peer that came can't do.
    """
    peers: list[Peer] = []
    skipped: dict[str, str] = {}
    for name in names:
        entry = PEERS[name]
        try:
            peer = entry.make(name, importlib.import_module(entry.package), capacity, alpha)
        except ImportError as error:
            skipped[name] = str(error)
            continue
        peers.append(peer)
        if shortcoming := getattr(peer, "shortcoming", ""):
            skipped[name] = shortcoming
    return Lineup([*peers, Ceiling(capacity)], skipped)
