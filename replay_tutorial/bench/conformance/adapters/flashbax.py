"""flashbax: item buffers. A batch can't be larger than the buffer, so larger samples take several calls."""

import pickle
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from replay_tutorial.bench.conformance.library import Buffer, Library, NotChecked, NotOffered, Row, rows
from replay_tutorial.bench.conformance.world import Step

flashbax: Any = import_module("flashbax")
jax: Any = import_module("jax")


class _Rows(Buffer):
    """A buffer of rows. Weights are 1 / probability, as β is 1 and the library returns probabilities."""

    def __init__(self, functions: Any, capacity: int) -> None:
        self.functions, self.capacity, self.key = functions, capacity, jax.random.PRNGKey(0)
        self.draw, self.insert = jax.jit(functions.sample), jax.jit(functions.add)
        place, number = np.zeros(3, np.float32), np.zeros((), np.float32)
        self.state = functions.init({"obs": place, "next_obs": place, "rew": number, "terminated": number})

    def add(self, tick: Sequence[Step]) -> None:
        columns = {
            "obs": np.array([step.obs for step in tick], np.float32),
            "next_obs": np.array([step.next_obs for step in tick], np.float32),
            "rew": np.array([step.reward for step in tick], np.float32),
            "terminated": np.array([step.terminated for step in tick], np.float32),
        }
        self.state = self.insert(self.state, columns)

    def sample(self, count: int) -> list[Row]:
        found: list[Row] = []
        while len(found) < count:
            self.key, key = jax.random.split(self.key)
            batch = jax.device_get(self.draw(self.state, key))
            row, weighted = batch.experience, hasattr(batch, "indices")
            weight, index = (1 / batch.probabilities, batch.indices) if weighted else (None, None)
            parts = (row["obs"], row["next_obs"], row["rew"], 1.0 - row["terminated"])
            found += rows(*parts, handle=index, weight=weight)
        return found

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        given = np.array(handles), np.array(priorities, np.float32)
        self.state = self.functions.set_priorities(self.state, *given)


class _Flashbax(Library):
    """InstaDeep's library for JAX."""

    name = "flashbax"
    distributions = ("flashbax", "jax")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(flashbax.make_item_buffer(capacity, 1, capacity, add_batches=True), capacity)

    def shared(self, capacity: int, truncation: bool) -> Buffer:
        raise NotChecked("the flat buffer stores each step once and samples pairs")

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        options: Any = {"add_batches": True, "priority_exponent": alpha}
        return _Rows(flashbax.make_prioritised_item_buffer(capacity, 1, capacity, **options), capacity)

    def sequences(self, capacity: int, length: int, environments: int, padded: bool) -> Buffer:
        raise NotOffered("the README leaves the ends of episodes to the user")

    def restored(self, buffer: Any, folder: str) -> Buffer:
        other = _Rows(buffer.functions, buffer.capacity)
        other.state, other.key = pickle.loads(pickle.dumps((buffer.state, buffer.key)))
        return other


library = _Flashbax()
