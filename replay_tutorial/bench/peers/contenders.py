"""Everyone who can be measured, each by name; who is not installed is skipped, with the reason.

Left out: installing them. `make bench-peers` does.
"""

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replay_tutorial.bench.peers import frameworks, plain_python, reverb
from replay_tutorial.bench.peers.lineup import ALPHA, OURS, Ceiling, Company, Library, Peer

MakePeer = Callable[[str, Any, int, float], Peer]


@dataclass(frozen=True)
class Contender:
    """How a peer comes to be measured."""

    distributions: tuple[str, ...]  # whose versions stand below the table; none for what is part of Python
    package: str  # to import
    make: MakePeer  # from its name, the package, capacity and alpha


CONTENDERS: dict[str, Contender] = {
    OURS: Contender((), "replay_tutorial", Library),
    "cpprb": Contender(("cpprb",), "cpprb", Library),
    "Stable-Baselines3": Contender(
        ("stable-baselines3", "torch"), "stable_baselines3", frameworks.StableBaselines3
    ),
    "tianshou": Contender(("tianshou",), "tianshou", frameworks.Tianshou),
    "TorchRL": Contender(("torchrl", "tensordict", "torch"), "torchrl", frameworks.TorchRL),
    "flashbax": Contender(("flashbax", "jax"), "flashbax", frameworks.Flashbax),
    "deque": Contender((), "collections", plain_python.Deque),
    "Python sum tree": Contender((), "random", plain_python.TreeMemory),
    **{name: Contender((), "json", reverb.Reverb) for name in reverb.WAYS},
}


def gather(capacity: int, alpha: float = ALPHA, names: Sequence[str] = tuple(CONTENDERS)) -> Company:
    """Make the peers of these names, and the ceiling.

    Args:
        capacity: Rows in every buffer.
        alpha: Of the prioritized ones.
        names: Who is asked for; all of them by default.

    Returns:
        Those that came, and why the others didn't. What a peer that came can't do is told there, too.
    """
    peers: list[Peer] = []
    skipped: dict[str, str] = {}
    for name in names:
        contender = CONTENDERS[name]
        try:
            peer = contender.make(name, importlib.import_module(contender.package), capacity, alpha)
        except ImportError as error:
            skipped[name] = str(error)
            continue
        peers.append(peer)
        if shortcoming := getattr(peer, "shortcoming", ""):
            skipped[name] = shortcoming
    return Company([*peers, Ceiling(capacity)], skipped)


def versions_of(peers: Sequence[Peer]) -> list[str]:
    """Name the distributions of those that came, and what they compute with."""
    named = [CONTENDERS[peer.name].distributions for peer in peers if peer.name in CONTENDERS]
    return list(dict.fromkeys(itertools.chain.from_iterable(named)))


def versions_elsewhere(peers: Sequence[Peer]) -> dict[str, str]:
    """Tell the versions of those in a Python of their own."""
    found = [peer.version for peer in peers if isinstance(peer, reverb.Reverb)]
    return {"dm-reverb": found[0]} if found else {}


def close(peers: Sequence[Peer]) -> None:
    """End what processes some of them have."""
    for peer in peers:
        if isinstance(peer, reverb.Reverb):
            peer.close()
