"""Replay buffers for reinforcement learning: uniform, prioritized and shared between processes.

The core, which the chapters build, and which you should read first:
    buffers/          uniform and prioritized replay in one process; its folders contain options
    shared/           the same buffers for several processes of one machine
Agents and training runs:
    agents/           environments, networks, DQN and DPG; adapters for Stable-Baselines3 and CleanRL
    apex/             Ape-X; local/ runs it as processes of one machine, cluster/ on several hosts
Tables of trajectories, with Reverb's semantics:
    tables/
The course:
    steps/, teaching/ earlier versions of the core, and the exercises
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers recognize the name; importing `typing` would slow down the import
if TYPE_CHECKING:
    from typing import Any

    from replay_tutorial.buffers import (
        EpisodeReplayBuffer,
        HindsightReplayBuffer,
        Mixture,
        NStep,
        PrioritizedReplayBuffer,
        ReplayBuffer,
        SequenceReplayBuffer,
        fields_from_spaces,
        laber,
        sequence_priorities,
    )
    from replay_tutorial.shared import Mailbox, MPPrioritizedReplayBuffer, MPReplayBuffer, SamplesPerInsert

__version__ = "1.0.0"
__all__ = [
    "EpisodeReplayBuffer",
    "HindsightReplayBuffer",
    "MPPrioritizedReplayBuffer",
    "MPReplayBuffer",
    "Mailbox",
    "Mixture",
    "NStep",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "SamplesPerInsert",
    "SequenceReplayBuffer",
    "fields_from_spaces",
    "laber",
    "sequence_priorities",
]


def __getattr__(name: str) -> "Any":
    """Import a public name on first access, so that `--help` doesn't load Numba."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    buffers = import_module(f"{__name__}.buffers")
    home = buffers if name in buffers.__all__ else import_module(f"{__name__}.shared")
    return getattr(home, name)


def __dir__() -> list[str]:
    """Return all public names, including those not imported yet."""
    return sorted({*globals(), *__all__})
