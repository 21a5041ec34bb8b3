"""The buffers that people write themselves: a deque of tuples, and the sum tree that the tutorials share.

The deque is the replay memory of PyTorch's DQN tutorial; the tree is that of rlcode's "per", with its
recursion over nodes of a NumPy array, one query at a time. Both are kept as they are known, since that is
who they stand for.

Left out: any improvement.
"""

import functools
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.bench.method.timing import Workload
from replay_tutorial.bench.peers.peer import BETA, Float32Array, Peer, Priorities, Rows, random_rows

Transition = tuple[Float32Array, ...]


@functools.lru_cache(maxsize=1)
def transitions_of(capacity: int) -> list[Transition]:
    """Make as many transitions as a buffer holds; both kinds of buffer hold the same."""
    rows = random_rows(np.random.default_rng(0), capacity)
    # copies: views would lie side by side in one array, which those of a real run never do
    return [tuple(value.copy() for value in values) for values in zip(*rows.values(), strict=True)]


def apart(rows: Rows) -> list[Transition]:
    """Take rows apart, as an agent meets them: one transition after the other."""
    columns = list(rows.values())
    return [tuple(columns)] if columns[0].ndim == 1 else list(zip(*columns, strict=True))


def together(transitions: Sequence[Transition]) -> list[Float32Array]:
    """Make one array of each field of a batch."""
    return [np.stack(column) for column in zip(*transitions, strict=True)]


class Deque(Peer):
    """`collections.deque(maxlen=capacity)` and `random.sample`: uniform only."""

    def __init__(self, name: str, module: Any, capacity: int, alpha: float) -> None:
        """Make it, and fill it."""
        self.name = name
        self.memory = deque(transitions_of(capacity), maxlen=capacity)

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload | None:
        transitions, append = apart(rows), self.memory.append

        def add() -> None:
            for obs, act, next_obs, rew, done in transitions:
                append((obs, act, next_obs, rew, done))  # making the tuple is part of it

        return None if prioritized else add

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload | None:
        return None if prioritized else lambda: together(random.sample(self.memory, batch_size))


class PythonSumTree:
    """rlcode's tree: the parent of node i is (i - 1) // 2, and a change is added to each node above."""

    def __init__(self, transitions: Sequence[Transition], masses: npt.NDArray[np.float64]) -> None:
        """Begin with a full tree, summed up at once: a million calls of `add` would take minutes."""
        self.capacity, self.write = len(transitions), 0
        self.tree = np.concatenate([np.zeros(self.capacity - 1), masses])
        for node in range(self.capacity - 2, -1, -1):
            self.tree[node] = self.tree[2 * node + 1] + self.tree[2 * node + 2]
        self.data = np.empty(self.capacity, dtype=object)
        self.data[:] = transitions

    def _propagate(self, node: int, change: float) -> None:
        parent = (node - 1) // 2
        self.tree[parent] += change
        if parent != 0:
            self._propagate(parent, change)

    def _retrieve(self, node: int, query: float) -> int:
        left = 2 * node + 1
        if left >= len(self.tree):
            return node
        if query <= self.tree[left]:
            return self._retrieve(left, query)
        return self._retrieve(left + 1, query - self.tree[left])

    def add(self, mass: float, transition: Transition) -> None:
        """Put a transition where the oldest one is."""
        self.data[self.write] = transition
        self.update(self.write + self.capacity - 1, mass)
        self.write = (self.write + 1) % self.capacity

    def update(self, node: int, mass: float) -> None:
        """Set the mass of a leaf."""
        change = mass - self.tree[node]
        self.tree[node] = mass
        self._propagate(node, change)

    def get(self, query: float) -> tuple[int, float, Transition]:
        """Find the leaf that a query falls on: its node, its mass, its transition."""
        node = self._retrieve(0, query)
        return node, self.tree[node], self.data[node - self.capacity + 1]


class TreeMemory(Peer):
    """rlcode's `Memory` around its tree, prioritized only: stratified draws, weights over their maximum."""

    def __init__(self, name: str, module: Any, capacity: int, alpha: float) -> None:
        """Make it, and fill it."""
        self.name, self.alpha = name, alpha
        masses = (np.random.default_rng(0).exponential(size=capacity) + 0.01) ** alpha
        self.tree = PythonSumTree(transitions_of(capacity), masses)

    def add(self, error: float, transition: Transition) -> None:
        """Add one transition; there is no maximum priority to begin with, so an error must be given."""
        self.tree.add((abs(error) + 0.01) ** self.alpha, transition)

    def sample(self, batch_size: int) -> tuple[list[Float32Array], list[int], npt.NDArray[np.float64]]:
        """Draw one transition of each stretch of the total."""
        tree = self.tree
        stretch = tree.tree[0] / batch_size
        drawn = [tree.get(random.uniform(stretch * i, stretch * (i + 1))) for i in range(batch_size)]
        nodes, masses, transitions = zip(*drawn, strict=True)
        weights = (tree.capacity * np.array(masses) / tree.tree[0]) ** -BETA
        return together(transitions), list(nodes), weights / weights.max()

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload | None:
        transitions = apart(rows)
        errors = [1.0] * len(transitions) if priorities is None else priorities.tolist()

        def add() -> None:
            for error, (obs, act, next_obs, rew, done) in zip(errors, transitions, strict=True):
                self.add(error, (obs, act, next_obs, rew, done))

        return add if prioritized else None

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload | None:
        return (lambda: self.sample(batch_size)) if prioritized else None

    def updating(self, batch_size: int) -> Workload | None:
        errors = np.random.default_rng(1).exponential(size=batch_size).tolist()

        def sample_and_update() -> None:
            _, nodes, _ = self.sample(batch_size)
            for node, error in zip(nodes, errors, strict=True):
                self.tree.update(node, (error + 0.01) ** self.alpha)

        return sample_and_update
