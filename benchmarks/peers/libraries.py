"""The buffers of Stable-Baselines3, tianshou, TorchRL, flashbax and Reverb.

Each library is called as its own users call it. Stable-Baselines3 gets a step of a vector environment, with a
batch axis and `infos`. tianshou gets a `Batch` and TorchRL a `TensorDict`, both created in the timed call.
Calls of flashbax block until the result is ready. All buffers are in CPU memory.
"""

import importlib
import logging
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks.peers.buffer import (
    BETA,
    FIELDS,
    Buffer,
    Kind,
    NotMeasurable,
    Values,
    each,
    endless_priorities,
    has_default_fields,
)
from benchmarks.peers.helper import HelperProcess
from replay_course.timing import Workload

TIANSHOU_SINGLY = 1000  # rows
REVERB_MAX_ROWS = 2**16
# The server takes 0.8 GB with 2^16 rows of 140 bytes, and 2.0 GB with 2^18: 6 KB for each further row.
REVERB_ROW_KB = 6
REVERB_WAYS = {"Reverb client": ("insert", "sample"), "Reverb dataset": ("writer", "dataset")}


def ends_of(values: Values, count: int) -> Any:
    """Return bool[count], whether each transition ends an episode; true for 1% of random `done` values."""
    return np.reshape(np.asarray(values["done"]) > 0.99, count) if "done" in values else np.zeros(count, bool)


class StableBaselines3(Buffer):
    """`ReplayBuffer`, or `DictReplayBuffer` for dicts; it has no priorities and doesn't accept lists."""

    def __init__(self, example: Values, kind: Kind) -> None:
        """Create the buffer; `optimize_memory_usage` and timeout handling exclude each other."""
        spaces: Any = importlib.import_module("gymnasium.spaces")
        buffers: Any = importlib.import_module("stable_baselines3.common.buffers")
        self.kind = kind

        def box(values: Any) -> Any:
            return spaces.Box(0, 1, np.shape(values), np.asarray(values).dtype.type)

        space, make = each(example["obs"], box), buffers.ReplayBuffer
        if isinstance(space, dict):
            space, make = spaces.Dict(space), buffers.DictReplayBuffer
        options = {"optimize_memory_usage": True} if kind.once else {}
        options |= {} if isinstance(example["obs"], dict) else {"handle_timeout_termination": False}
        act, count = box(example["act"]), kind.environments
        self.buffer = make(kind.capacity, space, act, device="cpu", n_envs=count, **options)

    def adding(self, values: Values) -> Workload | None:
        if isinstance(values["act"], list):
            return None
        count, buffer = self.kind.environments, self.buffer

        def batched(value: Any) -> Any:
            return each(value, lambda part: part if count > 1 else np.asarray(part)[np.newaxis])

        obs, following, act = (batched(values[name]) for name in ("obs", "next_obs", "act"))
        rew, done = np.reshape(values["rew"], count), ends_of(values, count)
        infos: list[dict[str, Any]] = [{} for _ in range(count)]
        return lambda: buffer.add(obs, following, act, rew, done, infos)

    def extending(self, values: Values) -> Workload | None:
        if isinstance(values["obs"], dict):
            return None
        obs, following, act = (values[name][:, np.newaxis] for name in ("obs", "next_obs", "act"))
        rew, done, extend = np.ravel(values["rew"]), ends_of(values, len(values["rew"])), self.buffer.extend
        infos = [[{}]] * len(rew)
        return lambda: extend(obs, following, act, rew, done, infos)


class Tianshou(Buffer):
    """`ReplayBuffer` and its vector and prioritized variants; frames are stacked along the first axis."""

    def __init__(self, example: Values, kind: Kind) -> None:
        """Create the buffer; new rows get the maximum priority."""
        self.data: Any = importlib.import_module("tianshou.data")
        self.kind = kind
        options: dict[str, Any] = {"ignore_obs_next": True} if "dedupe_next" in kind.once else {}
        if "dedupe_frames" in kind.once:
            options |= {"save_only_last_obs": True, "stack_num": len(example["obs"])}
        if kind.prioritized:
            options |= {"alpha": kind.alpha, "beta": BETA}
        count = (kind.environments,) if kind.environments > 1 else ()
        name = "Prioritized" * kind.prioritized + "Vector" * bool(count) + "ReplayBuffer"
        self.buffer = getattr(self.data, name)(kind.capacity, *count, **options)

    def adding(self, values: Values) -> Workload:
        count, make, add = self.kind.environments, self.data.Batch, self.buffer.add
        done, no = ends_of(values, count), np.zeros(count, bool)
        step = {
            "obs": values["obs"],
            "act": values["act"],
            "rew": values["rew"] if count > 1 else float(np.reshape(values["rew"], ())),
            "terminated": done if count > 1 else bool(done[0]),
            "truncated": no if count > 1 else False,
            "obs_next": values["next_obs"],
            "info": {},
        }
        return lambda: add(make(step))

    def extending(self, values: Values) -> Workload:
        """Return a workload that adds rows one at a time, or loads more than `TIANSHOU_SINGLY` at once."""
        count, make, update = len(values["rew"]), self.data.ReplayBuffer.from_data, self.buffer.update
        if count <= TIANSHOU_SINGLY:
            takes = map(itemgetter, range(count))
            steps = [self.adding({name: each(v, take) for name, v in values.items()}) for take in takes]

            def add_each() -> None:
                for step in steps:
                    step()

            return add_each
        rew, done, no = np.ravel(values["rew"]), ends_of(values, count), np.zeros(count, bool)
        obs, act, following = (
            self.data.Batch(values[name]) if isinstance(values[name], dict) else values[name]
            for name in ("obs", "act", "next_obs")
        )
        return lambda: update(make(obs, act, rew, done, no, done, following))

    def updating(self, batch_size: int) -> Workload:
        priorities, buffer = endless_priorities(batch_size), self.buffer

        def sample_and_update() -> None:
            _, indexes = buffer.sample(batch_size)
            buffer.update_weight(indexes, next(priorities))

        return sample_and_update


class TorchRL(Buffer):
    """`TensorDictReplayBuffer` over a `LazyTensorStorage`, which doesn't convert dtypes.

    The sum tree is compiled for one version of PyTorch; other versions have no prioritized buffer.
    """

    def __init__(self, example: Values, kind: Kind) -> None:
        """Create the buffer; raises NotMeasurable if its sum tree doesn't support this version of PyTorch."""
        data: Any = importlib.import_module("torchrl.data")
        logging.getLogger("torchrl").setLevel(logging.WARNING)  # it logs every new storage
        self.make: Any = importlib.import_module("tensordict").TensorDict
        self.kind, storage = kind, data.LazyTensorStorage(kind.capacity)
        if not kind.prioritized:
            self.buffer = data.TensorDictReplayBuffer(storage=storage)
            return
        try:
            make = data.TensorDictPrioritizedReplayBuffer
            self.buffer = make(alpha=kind.alpha, beta=BETA, storage=storage)
        except RuntimeError as error:
            reason = str(error).partition(".")[0]
            raise NotMeasurable(f"no prioritized buffer, {reason}") from error

    def adding(self, values: Values) -> Workload:
        make, add = self.make, self.buffer.add
        if self.kind.environments > 1:
            return self.extending(values)
        return lambda: add(make(values, batch_size=[]))

    def extending(self, values: Values) -> Workload:
        make, extend, shape = self.make, self.buffer.extend, [len(values["rew"])]
        if getattr(values["obs"], "dtype", None) == np.float64:
            return lambda: extend(make(values, batch_size=shape).float())
        return lambda: extend(make(values, batch_size=shape))

    def updating(self, batch_size: int) -> Workload:
        priorities, buffer = endless_priorities(batch_size), self.buffer

        def sample_and_update() -> None:
            batch = buffer.sample(batch_size)
            batch.set("td_error", next(priorities))
            buffer.update_tensordict_priority(batch)

        return sample_and_update


class Flashbax(Buffer):
    """The item buffers of flashbax, compiled by JAX; a batch is added in one call."""

    def __init__(self, example: Values, kind: Kind) -> None:
        """Create the buffer, which supports only the fields `FIELDS`."""
        self.module: Any = importlib.import_module("flashbax")
        self.kind = kind
        self.jax: Any = importlib.import_module("jax")
        self.key: Any = self.jax.random.PRNGKey(0)
        one = {field: np.zeros(np.shape(value), np.float32) for field, value in example.items()}
        self.buffer = self.functions(1).init(one)
        # The state is donated, because otherwise each call would copy the whole buffer.
        self.add: Any = self.jax.jit(self.functions(1).add, donate_argnums=0)

    def functions(self, batch_size: int) -> Any:
        """Return flashbax's functions for a batch size; the buffer's state is the same for all sizes."""
        capacity = self.kind.capacity
        if not self.kind.prioritized:
            return self.module.make_item_buffer(capacity, 1, batch_size, add_batches=True)
        return self.module.make_prioritised_item_buffer(
            capacity, 1, batch_size, add_batches=True, priority_exponent=self.kind.alpha
        )

    def compiled_sample(self, functions: Any) -> Any:
        """Return a compiled function that splits the key and samples, as in a training step.

        It returns the next key and the batch.
        """
        split = self.jax.random.split

        def sample(state: Any, key: Any) -> Any:
            key, drawing = split(key)
            return key, functions.sample(state, drawing)

        return self.jax.jit(sample)

    def batched(self, rows: Values) -> Values:
        """Return rows, [count, length] per field, as an argument of flashbax's `add`."""
        return rows

    def adding(self, values: Values) -> Workload:
        return self.extending({name: np.reshape(value, (1, -1)) for name, value in values.items()})

    def extending(self, values: Values) -> Workload:
        count, add, wait = len(values["rew"]), self.add, self.jax.block_until_ready
        batch = self.batched({name: np.reshape(value, (count, -1)) for name, value in values.items()})

        def add_and_wait() -> None:
            self.buffer = wait(add(self.buffer, batch))

        return add_and_wait

    def sampling(self, batch_size: int) -> Workload:
        sample, wait = self.compiled_sample(self.functions(batch_size)), self.jax.block_until_ready

        def sample_and_wait() -> Any:
            self.key, batch = wait(sample(self.buffer, self.key))
            return batch

        return sample_and_wait

    def updating(self, batch_size: int) -> Workload:
        functions, priorities = self.functions(batch_size), endless_priorities(batch_size)
        sample = self.compiled_sample(functions)
        update, wait = self.jax.jit(functions.set_priorities, donate_argnums=0), self.jax.block_until_ready

        def sample_and_update() -> None:
            self.key, batch = sample(self.buffer, self.key)
            self.buffer = wait(update(self.buffer, batch.indices, next(priorities)))

        return sample_and_update


class Reverb(Buffer):
    """One of the two ways to call Reverb: `Client.insert` with `Client.sample`, or a writer with a dataset.

    Each buffer has its own server in a helper process, which starts full. Updates are not measured, because
    Reverb computes no importance weights.
    """

    def __init__(self, name: str, example: Values, kind: Kind) -> None:
        """Start the helper.

        Raises NotMeasurable if the helper can't start, and above `REVERB_MAX_ROWS` rows.
        """
        if kind.capacity > REVERB_MAX_ROWS:
            memory = kind.capacity * REVERB_ROW_KB / 2**20
            raise NotMeasurable(
                f"above {REVERB_MAX_ROWS:,} rows its server takes minutes to fill and {REVERB_ROW_KB} KB per "
                f"row, here {memory:.0f} GB"
            )
        self.adds, self.samples = REVERB_WAYS[name]
        alpha = kind.alpha if kind.prioritized else 0.0
        rows = {"capacity": kind.capacity, "alpha": alpha, "fields": FIELDS}
        self.helper = HelperProcess(name, {"rows": rows}, reverb=True)

    def adding(self, values: Values) -> Workload | None:
        return self.helper.workload(self.adds) if has_default_fields(values) else None

    def extending(self, values: Values) -> Workload | None:
        return self.helper.workload(self.adds, len(values["rew"])) if has_default_fields(values) else None

    def sampling(self, batch_size: int) -> Workload:
        return self.helper.workload(self.samples, batch_size)

    def fill(self, values: Values) -> None:
        """Do nothing, because the helper has filled its buffer."""

    def close(self) -> None:
        """Stop the helper process."""
        self.helper.close()
