"""CleanRL's `cleanrl_utils/buffers.py`, as its scripts call it: `done` is whether the episode terminated.

The cleanrl of PyPI doesn't have this file: it is imported from a checkout, whose commit is reported.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Library, NotOffered, Row, rows
from benchmarks.conformance.world import Step
from benchmarks.measuring.provenance import git

if find_spec("cleanrl_utils") is None:
    raise ImportError("clone https://github.com/vwxyzjn/cleanrl, and add the folder to PYTHONPATH")
buffers: Any = import_module("cleanrl_utils.buffers")
spaces: Any = import_module("gymnasium.spaces")
PARTS: Any = (spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(2), "cpu")


class _Rows(Buffer):
    """A buffer of rows of several environments."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def add(self, tick: Sequence[Step]) -> None:
        self.buffer.add(
            np.array([step.obs for step in tick]),
            np.array([step.next_obs for step in tick]),
            np.zeros(len(tick), np.int64),
            np.array([step.reward for step in tick]),
            np.array([step.terminated for step in tick]),
            {},
        )

    def sample(self, count: int) -> list[Row]:
        batch = self.buffer.sample(count)
        return rows(batch.observations, batch.next_observations, batch.rewards, 1.0 - batch.dones)


class _CleanRL(Library):
    """Single-file implementations, with one module of buffers."""

    distributions = ("torch",)

    def versions(self) -> dict[str, str]:
        """Return the commit of the checkout, and the versions of distributions."""
        commit = git(Path(buffers.__file__).parent, "log", "-1", "--format=%h")
        return {"cleanrl": commit, **super().versions()}

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        options = {"n_envs": environments, "handle_timeout_termination": False}
        return _Rows(buffers.ReplayBuffer(capacity, *PARTS, **options))

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
        return _Rows(buffers.ReplayBuffer(capacity, *PARTS, **options))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        raise NotOffered("n-step rows only inside the script rainbow_atari.py")

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        raise NotOffered("priorities only inside the script rainbow_atari.py")


library = _CleanRL()
