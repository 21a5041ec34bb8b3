"""Hand-written buffers: a deque of tuples, and a sum tree in plain Python.

The deque is the replay memory of PyTorch's DQN tutorial. The tree is that of rlcode's "per", which recurses
over the nodes of a NumPy array for every query. Both follow their sources.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.buffer import BETA, FIELDS, Buffer, Float32Array, Kind, Values
from replay_course.timing import Workload

Transition = tuple[Any, ...]


def split_batch(values: Values) -> list[Transition]:
    """Split a batch into transitions."""
    return list(zip(*values.values(), strict=True))


def stack_fields(transitions: Sequence[Transition]) -> list[Float32Array]:
    """Return one array per field of the transitions."""
    return [np.stack(column) for column in zip(*transitions, strict=True)]


def copied(transition: Transition) -> Transition:
    """Return a transition with copied arrays; views would be contiguous in memory, unlike in a real run."""
    return tuple(np.array(value) for value in transition)


class Deque(Buffer):
    """`collections.deque(maxlen=capacity)` and `random.sample`, uniform only."""

    def __init__(self, example: Values, kind: Kind) -> None:
        self.buffer = deque[Transition](maxlen=kind.capacity)

    def adding(self, values: Values) -> Workload:
        fields, append = list(values.values()), self.buffer.append
        return lambda: append(tuple(fields))  # creating the tuple is timed, too

    def extending(self, values: Values) -> Workload:
        rows, append = [list(row) for row in split_batch(values)], self.buffer.append

        def add() -> None:
            for row in rows:
                append(tuple(row))

        return add

    def sampling(self, batch_size: int) -> Workload:
        return lambda: stack_fields(random.sample(self.buffer, batch_size))

    def fill(self, values: Values) -> None:
        self.buffer.extend(map(copied, split_batch(values)))


class TreeMemory(Buffer):
    """rlcode's `Memory`: prioritized sampling from strata, with weights divided by their maximum.

    The parent of node i is (i - 1) // 2; an update adds the change to every ancestor. New rows have no
    default priority, so `add` requires an error.
    """

    takes_priorities = True

    def __init__(self, example: Values, kind: Kind) -> None:
        self.capacity, self.alpha, self.write = kind.capacity, kind.alpha, 0
        self.tree = np.zeros(2 * kind.capacity - 1)
        self.data = np.empty(kind.capacity, dtype=object)

    def _propagate(self, node: int, change: float) -> None:
        parent = (node - 1) // 2
        self.tree[parent] += change
        if parent != 0:
            self._propagate(parent, change)

    def find(self, node: int, query: float) -> int:
        """Return the leaf that contains a query, searching from `node`."""
        left = 2 * node + 1
        if left >= len(self.tree):
            return node
        if query <= self.tree[left]:
            return self.find(left, query)
        return self.find(left + 1, query - self.tree[left])

    def update(self, node: int, error: float) -> None:
        """Set a leaf's mass from an error."""
        mass = (abs(error) + 0.01) ** self.alpha
        change = mass - self.tree[node]
        self.tree[node] = mass
        self._propagate(node, change)

    def add(self, error: float, transition: Transition) -> None:
        """Replace the oldest transition."""
        self.data[self.write] = transition
        self.update(self.write + self.capacity - 1, error)
        self.write = (self.write + 1) % self.capacity

    def sample(self, batch_size: int) -> tuple[list[Float32Array], list[int], npt.NDArray[np.float64]]:
        """Draw one transition from each of `batch_size` equal strata of the total mass."""
        tree = self.tree
        stretch = tree[0] / batch_size
        nodes = [self.find(0, random.uniform(stretch * i, stretch * (i + 1))) for i in range(batch_size)]
        masses, transitions = zip(
            *((tree[node], self.data[node - self.capacity + 1]) for node in nodes), strict=True
        )
        weights = (self.capacity * np.array(masses) / tree[0]) ** -BETA
        return stack_fields(transitions), nodes, weights / weights.max()

    def adding(self, values: Values) -> Workload:
        fields, error = [values[name] for name in FIELDS], float(values.get("priorities", [1.0])[0])
        return lambda: self.add(error, tuple(fields))

    def extending(self, values: Values) -> Workload:
        rows = [list(row) for row in split_batch({name: values[name] for name in FIELDS})]
        errors = np.asarray(values.get("priorities", np.ones(len(rows)))).tolist()

        def add() -> None:
            for error, row in zip(errors, rows, strict=True):
                self.add(error, tuple(row))

        return add

    def sampling(self, batch_size: int) -> Workload:
        return lambda: self.sample(batch_size)

    def updating(self, batch_size: int) -> Workload:
        errors = np.random.default_rng(1).exponential(size=batch_size).tolist()

        def sample_and_update() -> None:
            _, nodes, _ = self.sample(batch_size)
            for node, error in zip(nodes, errors, strict=True):
                self.update(node, error)

        return sample_and_update

    def fill(self, values: Values) -> None:
        """Set the leaves, and compute the sums once at the end; a million calls of `add` take minutes."""
        rows = split_batch(values)
        masses = (np.random.default_rng(self.write).exponential(size=len(rows)) + 0.01) ** self.alpha
        for row, mass in zip(rows, masses, strict=True):
            self.data[self.write], self.tree[self.write + self.capacity - 1] = copied(row), mass
            self.write = (self.write + 1) % self.capacity
        if self.write == 0:
            for node in range(self.capacity - 2, -1, -1):
                self.tree[node] = self.tree[2 * node + 1] + self.tree[2 * node + 2]
