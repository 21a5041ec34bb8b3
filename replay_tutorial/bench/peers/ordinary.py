"""Learning libraries with ordinary inputs: Stable-Baselines3, tianshou, TorchRL.

Each gets what its own users have, by the call that they write: Stable-Baselines3 a step of its vector
environment, so with a batch axis and `infos`; tianshou a `Batch` and TorchRL a `TensorDict`, both made in the
call. What a library doesn't have, its class says. No step ends an episode.

Left out: rows that all libraries take; `frameworks` has them.
"""

import importlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np

from replay_tutorial.bench.method.timing import Workload
from replay_tutorial.bench.peers.lineup import PEERS
from replay_tutorial.bench.peers.peer import ALPHA, BETA

Values = Mapping[str, Any]  # obs, act, rew, next_obs: arrays, lists, numbers, or dicts of them


class Ordinary(Protocol):
    """A buffer of a library, full, and the calls of its users."""

    once: Collection[str]  # what the library can store once, by our names
    lists: bool = True  # whether it takes them
    buffer: Any

    def __init__(
        self, example: Values, capacity: int, environments: int, prioritized: bool, once: Collection[str]
    ) -> None:
        """Make it for steps like the example, arrays of the dtypes to be stored, and fill it.

        Args:
            example: A transition; with several environments one of each, on a batch axis.
            capacity: Transitions.
            environments: That step together.
            prioritized: Whether its prioritized buffer is meant, where the library has one.
            once: What is stored once: "next_of", or also "stack_compress".
        """
        ...

    def adding(self, values: Values) -> Workload:
        """Return an `add` of a transition, or of one of each environment."""
        ...

    def extending(self, values: Values) -> Workload:
        """Return what adds a batch of transitions of one environment."""
        ...

    def sampling(self, batch_size: int) -> Workload:
        """Return a `sample`."""
        return lambda: self.buffer.sample(batch_size)


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change a value, or each value of a dict."""
    return {name: change(part) for name, part in value.items()} if isinstance(value, dict) else change(value)


def repeated(example: Values, times: int, environments: int) -> Values:
    """Return a batch of transitions, all of them the example's."""

    def repeat(part: Any) -> Any:
        return np.repeat(part if environments > 1 else np.asarray(part)[np.newaxis], times, axis=0)

    return {name: each(value, repeat) for name, value in example.items()}


class StableBaselines3(Ordinary):
    """`ReplayBuffer`, for dicts `DictReplayBuffer`; there are no priorities."""

    once = ("next_of",)
    lists = False  # it reshapes the action

    def __init__(
        self, example: Values, capacity: int, environments: int, prioritized: bool, once: Collection[str]
    ) -> None:
        spaces: Any = importlib.import_module("gymnasium.spaces")
        buffers: Any = importlib.import_module("stable_baselines3.common.buffers")
        self.environments = environments

        def box(values: Any) -> Any:
            one = np.asarray(values[0] if environments > 1 else values)
            return spaces.Box(0, 1, one.shape, one.dtype.type)

        space, make = each(example["obs"], box), buffers.ReplayBuffer
        if isinstance(space, dict):
            space, make = spaces.Dict(space), buffers.DictReplayBuffer
        # The two exclude each other.
        options = {"optimize_memory_usage": True, "handle_timeout_termination": False} if once else {}
        self.buffer = make(capacity, space, box(example["act"]), device="cpu", n_envs=environments, **options)
        add = self.adding(example)
        for _ in range(capacity // environments):
            add()

    def adding(self, values: Values) -> Workload:
        count, buffer = self.environments, self.buffer

        def batched(value: Any) -> Any:
            return each(value, lambda part: part if count > 1 else np.asarray(part)[np.newaxis])

        obs, following, act = (batched(values[name]) for name in ("obs", "next_obs", "act"))
        rew, done, infos = np.reshape(values["rew"], count), np.zeros(count, bool), [{} for _ in range(count)]
        return lambda: buffer.add(obs, following, act, rew, done, infos)

    def extending(self, values: Values) -> Workload:
        obs, following, act = (values[name][:, np.newaxis] for name in ("obs", "next_obs", "act"))
        rew, extend = values["rew"], self.buffer.extend
        done, infos = np.zeros(len(rew), bool), [[{}]] * len(rew)
        return lambda: extend(obs, following, act, rew, done, infos)


class Tianshou(Ordinary):
    """`ReplayBuffer` and its vector and prioritized forms; stacks have their frames in the first axis."""

    once = ("next_of", "stack_compress")

    def __init__(
        self, example: Values, capacity: int, environments: int, prioritized: bool, once: Collection[str]
    ) -> None:
        self.data: Any = importlib.import_module("tianshou.data")
        self.environments = environments
        options: dict[str, Any] = {"ignore_obs_next": True} if "next_of" in once else {}
        if "stack_compress" in once:
            options |= {"save_only_last_obs": True, "stack_num": len(example["obs"])}
        if prioritized:
            options |= {"alpha": ALPHA, "beta": BETA}
        name = ("Prioritized" if prioritized else "") + ("Vector" if environments > 1 else "")
        make = getattr(self.data, f"{name}ReplayBuffer")
        self.buffer = make(capacity, *([environments] if environments > 1 else []), **options)
        if once or environments > 1:  # `update` takes rows as they are stored, and of one environment only
            add = self.adding(example)
            for _ in range(capacity // environments):
                add()
        else:
            self.extending(repeated(example, capacity, 1))()

    def adding(self, values: Values) -> Workload:
        rew, count, make, add = values["rew"], self.environments, self.data.Batch, self.buffer.add
        step = {
            "obs": values["obs"],
            "act": values["act"],
            "rew": rew if count > 1 else float(np.reshape(rew, ())),
            "terminated": np.zeros(count, bool) if count > 1 else False,
            "truncated": np.zeros(count, bool) if count > 1 else False,
            "obs_next": values["next_obs"],
            "info": {},
        }
        return lambda: add(make(step))

    def extending(self, values: Values) -> Workload:
        rew, make, update = np.ravel(values["rew"]), self.data.ReplayBuffer.from_data, self.buffer.update
        no = np.zeros(len(rew), bool)
        obs, act, following = (
            self.data.Batch(values[name]) if isinstance(values[name], dict) else values[name]
            for name in ("obs", "act", "next_obs")
        )
        return lambda: update(make(obs, act, rew, no, no, no, following))


class TorchRL(Ordinary):
    """`TensorDictReplayBuffer` over a `LazyTensorStorage`, uniform: its sum tree isn't for every PyTorch."""

    once = ()

    def __init__(
        self, example: Values, capacity: int, environments: int, prioritized: bool, once: Collection[str]
    ) -> None:
        data: Any = importlib.import_module("torchrl.data")
        logging.getLogger("torchrl").setLevel(logging.WARNING)  # it logs every storage that it makes
        self.make: Any = importlib.import_module("tensordict").TensorDict
        self.environments = environments
        self.buffer = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(capacity))
        self.extending(repeated(example, capacity // environments, environments))()

    def adding(self, values: Values) -> Workload:
        make, add = self.make, self.buffer.add
        return self.extending(values) if self.environments > 1 else lambda: add(make(values, batch_size=[]))

    def extending(self, values: Values) -> Workload:
        make, extend, shape = self.make, self.buffer.extend, [len(values["rew"])]
        if getattr(values["obs"], "dtype", None) == np.float64:  # a batch has to have the storage's dtype
            return lambda: extend(make(values, batch_size=shape).float())
        return lambda: extend(make(values, batch_size=shape))


LIBRARIES: dict[str, type[Ordinary]] = {
    "Stable-Baselines3": StableBaselines3,
    "tianshou": Tianshou,
    "TorchRL": TorchRL,
}


def installed() -> tuple[dict[str, type[Ordinary]], dict[str, str]]:
    """Return the libraries that can be measured here, and why the others can't."""
    found, skipped = dict(LIBRARIES), dict[str, str]()
    for name in LIBRARIES:
        try:
            importlib.import_module(PEERS[name].package)
        except ImportError as error:
            del found[name]
            skipped[name] = str(error)
    return found, skipped
