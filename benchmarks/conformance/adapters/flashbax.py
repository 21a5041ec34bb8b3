"""flashbax: item buffers, and the flat buffer, which stores each step once.

A batch can't be larger than the buffer, so larger samples take several calls.
"""

import pickle
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Library, NotOffered, Row, rows
from benchmarks.conformance.world import Step, world

flashbax: Any = import_module("flashbax")
jax: Any = import_module("jax")


class _Rows(Buffer):
    """A buffer of rows. Weights are 1 / probability, as β is 1 and the library returns probabilities."""

    def __init__(self, functions: Any, capacity: int) -> None:
        self.functions, self.capacity, self.key = functions, capacity, jax.random.PRNGKey(0)
        self.draw, self.insert = jax.jit(functions.sample), jax.jit(functions.add)
        first = self.fields(world(1)[0][0])
        self.state = functions.init({name: np.zeros_like(value) for name, value in first.items()})

    def fields(self, step: Step) -> dict[str, Any]:
        places = {"obs": step.obs, "next_obs": step.next_obs}
        numbers = {"rew": step.reward, "terminated": step.terminated}
        return {name: np.array(value, np.float32) for name, value in (places | numbers).items()}

    def add(self, tick: Sequence[Step]) -> None:
        steps = [self.fields(step) for step in tick]
        columns = {name: np.stack([fields[name] for fields in steps]) for name in steps[0]}
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


class _Pairs(_Rows):
    """A flat buffer of steps, whose samples are pairs of consecutive ones."""

    def fields(self, step: Step) -> dict[str, Any]:
        fields = super().fields(step)
        del fields["next_obs"]
        return fields

    def sample(self, count: int) -> list[Row]:
        found: list[Row] = []
        while len(found) < count and self.functions.can_sample(self.state):
            self.key, key = jax.random.split(self.key)
            first, second = jax.device_get(self.draw(self.state, key)).experience
            found += rows(first["obs"], second["obs"], first["rew"], 1.0 - first["terminated"])
        return found


class _Flashbax(Library):
    """InstaDeep's library for JAX."""

    distributions = ("flashbax", "jax")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(flashbax.make_item_buffer(capacity, 1, capacity, add_batches=True), capacity)

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        if truncation:
            raise NotOffered("the README leaves the ends of episodes to the user")
        functions = flashbax.make_flat_buffer(capacity, 1, capacity, add_batch_size=1)
        return _Pairs(functions, capacity)

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
