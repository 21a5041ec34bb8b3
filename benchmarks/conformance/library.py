"""The interface between the properties and a library: buffers of each kind, and rows of plain numbers."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from benchmarks.conformance.world import Id, Step, VectorStep


class NotOffered(Exception):
    """The library's documentation doesn't offer this; the message says what."""


class NotChecked(Exception):
    """The library offers this, but its adapter doesn't use it; the message says what."""


class Row(NamedTuple):
    """A sampled row. The target is reward + discount · Q(next_obs)."""

    obs: Id
    next_obs: Id
    reward: float
    discount: float
    handle: int = 0  # the argument of `update`
    weight: float = 1.0
    goal: Id = ()


class Buffer:
    """A buffer of a library."""

    def add(self, tick: Sequence[Step]) -> None:
        """Add a step of every environment."""
        raise NotImplementedError

    def add_vector_step(self, step: VectorStep) -> None:
        """Add a step of a vector environment, except for the environments that it only reset."""
        raise NotImplementedError

    def sample(self, count: int) -> list[Row]:
        """Sample about `count` rows, in one call if possible; none if nothing can be sampled yet."""
        raise NotImplementedError

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        """Update priorities in one call."""
        raise NotImplementedError

    def windows(self, count: int) -> list[list[Id]]:
        """Sample windows; returns the observations of their steps, without padding."""
        raise NotImplementedError


class Library:
    """A library: a factory of buffers.

    Each factory except `initialized` raises `NotOffered` unless an adapter overrides it.
    """

    distributions: tuple[str, ...] = ()  # reported with their versions
    # Property that the library doesn't offer, although it has a buffer for it → the reason
    without: Mapping[str, str] = {}

    def versions(self) -> dict[str, str]:
        """Return the versions that the library is checked with, its own first."""
        return {name: version(name) for name in self.distributions}

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        """Return a buffer of whole rows, sampled uniformly."""
        raise NotOffered("no uniform buffer")

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        """Return a buffer that stores each observation once, not again as `next_obs`.

        Without `truncation`, every episode terminates.
        """
        raise NotOffered("stores next observations separately")

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        """Return a buffer of n-step rows."""
        raise NotOffered("no n-step rows")

    def vectorized(self, capacity: int, n: int, gamma: float, environments: int, mode: str) -> Buffer:
        """Return a buffer of n-step rows that takes steps of gymnasium's vector environments."""
        raise NotOffered("takes no steps of gymnasium's vector environments")

    def stacked(self, capacity: int, frames: int) -> Buffer:
        """Return a buffer that stores frames once and returns stacks; ids are stacks, oldest frame first."""
        raise NotOffered("no storage of single frames")

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        """Return a prioritized buffer whose weights have β = 1."""
        raise NotOffered("no priorities")

    def initialized(self, capacity: int) -> Buffer:
        """Return a prioritized buffer with α = 1 that chooses the priorities of new rows itself."""
        return self.prioritized(capacity, 1.0)

    def protected(self, capacity: int) -> Buffer:
        """Return a prioritized buffer that promises to ignore priorities of replaced rows."""
        raise NotOffered("doesn't promise to detect replaced rows")

    def across_processes(self, capacity: int) -> Buffer:
        """Return a buffer to which forked processes can add, and from which they can sample."""
        raise NotOffered("a buffer of one process")

    def sequences(self, capacity: int, length: int, environments: int, padded: bool) -> Buffer:
        """Return a buffer of windows; with `padded`, shorter ones at the ends of episodes are padded."""
        raise NotOffered("no windows of steps that end with the episode")

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        """Return a buffer that relabels goals: "future", "final" or "episode"."""
        raise NotOffered("no hindsight goals")

    def restored(self, buffer: Buffer, folder: str) -> Buffer:
        """Save a buffer, prioritized if the library has priorities, and load it into a new one."""
        raise NotOffered("no exact save")

    def seed(self, seed: int) -> None:
        """Seed NumPy's global random state; an adapter also seeds others that its library draws from."""
        np.random.seed(seed)


def ids(values: Any) -> list[Id]:
    """Return observations, one per row of an array, as tuples of integers."""
    return [tuple(int(number) for number in row) for row in values]


def numbers(values: Any) -> list[float]:
    """Return a column as floats."""
    return [float(number) for number in values.reshape(-1)]


def rows(
    obs: Any,
    next_obs: Any,
    reward: Any,
    discount: Any,
    handle: Any = None,
    weight: Any = None,
    goal: Any = None,
) -> list[Row]:
    """Return rows from arrays of observations and columns of numbers."""
    count = len(obs)
    return list(
        map(
            Row,
            *(ids(obs), ids(next_obs), numbers(reward), numbers(discount)),
            [0] * count if handle is None else [int(number) for number in handle.reshape(-1)],
            [1.0] * count if weight is None else numbers(weight),
            [()] * count if goal is None else ids(goal),
        )
    )
