"""The buffers of learning libraries: Stable-Baselines3, tianshou, TorchRL, flashbax.

Each is called as its own users call it, and returns its own kind of batch: tensors, a `Batch`, a
`TensorDict`, arrays of JAX. What a library can't do is None here and an empty cell in the table:
Stable-Baselines3 and tianshou add one transition per call, and Stable-Baselines3 has no priorities.

Left out: graphics processors; all of them stay on the processor, as NumPy's rows do.
"""

import importlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from replay_tutorial.bench.method.timing import Workload
from replay_tutorial.bench.peers.peer import (
    BETA,
    FIELDS,
    FILL_CHUNK,
    Peer,
    Priorities,
    Rows,
    endless_priorities,
    random_rows,
)

DONE = 0.01  # share of rows at which an episode ends


def batched(rows: Rows) -> Rows:
    """Return rows with a batch axis, also if it is only one row."""
    return {name: values.reshape(-1, FIELDS[name]) for name, values in rows.items()}


def filling(capacity: int) -> Iterator[Rows]:
    """Yield as many rows as a buffer holds, chunk by chunk."""
    rng = np.random.default_rng(0)
    for start in range(0, capacity, FILL_CHUNK):
        yield random_rows(rng, min(FILL_CHUNK, capacity - start))


class StableBaselines3(Peer):
    """`ReplayBuffer` of Stable-Baselines3: uniform only; next_obs is stored beside obs, as here."""

    def __init__(self, name: str, module: Any, capacity: int, alpha: float) -> None:
        """Make it, and fill it."""
        spaces = importlib.import_module("gymnasium.spaces")
        box = {field: spaces.Box(-1.0, 1.0, (FIELDS[field],), np.float32) for field in ("obs", "act")}
        make: Any = importlib.import_module("stable_baselines3.common.buffers").ReplayBuffer
        self.name = name
        self.buffer = make(capacity, box["obs"], box["act"], device="cpu", handle_timeout_termination=False)
        # A million calls of `add` would take minutes: the arrays are its own, and public.
        for column in ("observations", "actions", "next_observations", "rewards"):
            values = getattr(self.buffer, column)
            values[:] = np.random.default_rng(0).random(values.shape, dtype=np.float32)
        # Zeros are written, too: pages that nobody wrote to are one and the same page, always in the cache.
        self.buffer.dones[:] = np.random.default_rng(1).random(self.buffer.dones.shape) < DONE
        self.buffer.timeouts[:] = 0.0
        self.buffer.full = True

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload | None:
        obs, act, next_obs, rew, done = (batched(rows)[field] for field in FIELDS)
        # `extend` adds one after the other; each is a step of one environment, with a batch axis of 1.
        steps = tuple(values[:, np.newaxis] for values in (obs, next_obs, act))
        infos: list[list[dict[str, Any]]] = [[{}]] * len(obs)
        extend = self.buffer.extend
        return None if prioritized else lambda: extend(*steps, rew, done, infos)

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload | None:
        return None if prioritized else lambda: self.buffer.sample(batch_size)


class Tianshou(Peer):
    """`ReplayBuffer` and `PrioritizedReplayBuffer` of tianshou; a new row gets the maximum priority."""

    def __init__(self, name: str, module: Any, capacity: int, alpha: float) -> None:
        """Make both, and fill them."""
        data: Any = importlib.import_module("tianshou.data")
        self.name, self.batch = name, data.Batch
        self.uniform = data.ReplayBuffer(capacity)
        self.prioritized = data.PrioritizedReplayBuffer(capacity, alpha=alpha, beta=BETA)
        whole = random_rows(np.random.default_rng(0), capacity)
        for buffer in (self.uniform, self.prioritized):
            buffer.add(self.batch(next(self.steps(whole))))
            # A million calls of `add` would take minutes: as its own `from_data` does, set whole arrays.
            for field, column in (("obs", "obs"), ("act", "act"), ("next_obs", "obs_next")):
                getattr(buffer, column)[:] = whole[field]
            buffer.rew[:] = whole["rew"][:, 0]
            buffer.terminated[:] = buffer.done[:] = whole["done"][:, 0] < DONE
            buffer.truncated[:] = False  # zeros are written, too, as above
            buffer._size = capacity
        self.prioritized.update_weight(
            np.arange(capacity), np.random.default_rng(0).exponential(size=capacity)
        )

    def steps(self, rows: Rows) -> Iterator[dict[str, Any]]:
        """Yield what `Batch` is made of, one transition after the other."""
        for obs, act, next_obs, rew, done in zip(*(rows[field] for field in FIELDS), strict=True):
            step: dict[str, Any] = {"obs": obs, "act": act, "rew": rew[0], "obs_next": next_obs, "info": {}}
            yield {**step, "terminated": done[0] < DONE, "truncated": False}

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload | None:
        buffer, make = self.prioritized if prioritized else self.uniform, self.batch
        steps = list(self.steps(batched(rows)))

        def add() -> None:
            for step in steps:
                buffer.add(make(step))

        return add if priorities is None else None

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload | None:
        buffer = self.prioritized if prioritized else self.uniform
        return lambda: buffer.sample(batch_size)

    def updating(self, batch_size: int) -> Workload | None:
        priorities = endless_priorities(np.random.default_rng(1), batch_size)

        def sample_and_update() -> None:
            _, indexes = self.prioritized.sample(batch_size)
            self.prioritized.update_weight(indexes, next(priorities))

        return sample_and_update


class TorchRL(Peer):
    """`TensorDictReplayBuffer` of TorchRL over a `LazyTensorStorage`.

    Its sum tree is compiled for one version of PyTorch. With another one there is no prioritized buffer, and
    `shortcoming` says so.
    """

    def __init__(self, name: str, module: Any, capacity: int, alpha: float) -> None:
        """Make both, and fill them."""
        data: Any = importlib.import_module("torchrl.data")
        logging.getLogger("torchrl").setLevel(logging.WARNING)  # it logs every storage that it makes
        self.name, self.shortcoming = name, ""
        self.tensordict: Any = importlib.import_module("tensordict").TensorDict
        self.uniform = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(capacity))
        self.prioritized: Any = None
        try:
            storage = data.LazyTensorStorage(capacity)
            self.prioritized = data.TensorDictPrioritizedReplayBuffer(alpha=alpha, beta=BETA, storage=storage)
        except RuntimeError as error:
            self.shortcoming = f"no prioritized buffer, {str(error).partition('.')[0]}"
        for rows in filling(capacity):
            for buffer in (self.uniform, self.prioritized):
                if buffer is not None:
                    buffer.extend(self.tensordict(rows, batch_size=[len(rows["obs"])]))

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload | None:
        buffer = self.prioritized if prioritized else self.uniform
        rows = batched(rows)
        count, make = len(rows["obs"]), self.tensordict
        if buffer is None or priorities is not None:
            return None
        return lambda: buffer.extend(make(rows, batch_size=[count]))

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload | None:
        buffer = self.prioritized if prioritized else self.uniform
        return None if buffer is None else lambda: buffer.sample(batch_size)

    def updating(self, batch_size: int) -> Workload | None:
        buffer = self.prioritized
        priorities = endless_priorities(np.random.default_rng(1), batch_size)

        def sample_and_update() -> None:
            batch = buffer.sample(batch_size)
            batch.set("td_error", next(priorities))
            buffer.update_tensordict_priority(batch)

        return None if buffer is None else sample_and_update


class Flashbax(Peer):
    """The item buffers of flashbax, compiled by JAX; every call waits until its result is there."""

    def __init__(self, name: str, module: Any, capacity: int, alpha: float) -> None:
        """Make both, and fill them."""
        self.name, self.module, self.capacity, self.alpha = name, module, capacity, alpha
        self.jax: Any = importlib.import_module("jax")
        self.key: Any = self.jax.random.PRNGKey(0)
        one = {field: np.zeros(shape, np.float32) for field, shape in FIELDS.items()}
        self.states: dict[bool, Any] = {}
        for prioritized in (False, True):
            self.states[prioritized] = self.buffer(1, prioritized).init(one)
            add = self.jit_add(prioritized)
            for rows in filling(capacity):
                self.states[prioritized] = add(self.states[prioritized], rows)
            self.jax.block_until_ready(self.states[prioritized])

    def buffer(self, batch_size: int, prioritized: bool) -> Any:
        """Make the functions; they have a batch size built in, while the state is the same for all sizes."""
        if not prioritized:
            return self.module.make_item_buffer(self.capacity, 1, batch_size, add_batches=True)
        return self.module.make_prioritised_item_buffer(
            self.capacity, 1, batch_size, add_batches=True, priority_exponent=self.alpha
        )

    def jit_add(self, prioritized: bool) -> Callable[[Any, Rows], Any]:
        """Compile `add`; it may write into the state it gets, or it would copy the whole buffer."""
        return self.jax.jit(self.buffer(1, prioritized).add, donate_argnums=0)

    def jit_sample(self, buffer: Any) -> Callable[[Any, Any], Any]:
        """Compile `sample` with the split of its key, as a training step does; return the next key, too."""
        split = self.jax.random.split

        def sample(state: Any, key: Any) -> Any:
            key, drawing = split(key)
            return key, buffer.sample(state, drawing)

        return self.jax.jit(sample)

    def adding(self, rows: Rows, *, prioritized: bool, priorities: Priorities = None) -> Workload | None:
        rows, add, states = batched(rows), self.jit_add(prioritized), self.states

        def add_and_wait() -> None:
            states[prioritized] = self.jax.block_until_ready(add(states[prioritized], rows))

        return add_and_wait if priorities is None else None

    def sampling(self, batch_size: int, *, prioritized: bool) -> Workload | None:
        sample = self.jit_sample(self.buffer(batch_size, prioritized))

        def sample_and_wait() -> Any:
            self.key, batch = self.jax.block_until_ready(sample(self.states[prioritized], self.key))
            return batch

        return sample_and_wait

    def updating(self, batch_size: int) -> Workload | None:
        buffer = self.buffer(batch_size, True)
        sample, update = self.jit_sample(buffer), self.jax.jit(buffer.set_priorities, donate_argnums=0)
        priorities = endless_priorities(np.random.default_rng(1), batch_size)

        def sample_and_update() -> None:
            self.key, batch = sample(self.states[True], self.key)
            state = update(self.states[True], batch.indices, next(priorities))
            self.states[True] = self.jax.block_until_ready(state)

        return sample_and_update
