"""TorchRL: `TensorDictReplayBuffer` with its samplers and transforms, with the default keys of each."""

import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.bench.conformance.library import Buffer, Library, NotChecked, NotOffered, Row, ids, rows
from replay_tutorial.bench.conformance.world import Id, Step

data: Any = import_module("torchrl.data")
transforms: Any = import_module("torchrl.envs.transforms")
TensorDict: Any = import_module("tensordict").TensorDict
torch: Any = import_module("torch")
ROLLOUT = 8  # steps of every environment
logging.getLogger("torchrl").setLevel(logging.ERROR)  # it logs every new storage


class _Rows(Buffer):
    """A buffer of rows. Steps are added by `extend`; those of several environments as rollouts."""

    def __init__(self, buffer: Any, timed: bool = False, goals: bool = False, length: int = 0) -> None:
        self.buffer, self.timed, self.goals, self.length = buffer, timed, goals, length
        self.rollout: list[Any] = []

    def add(self, tick: Sequence[Step]) -> None:
        def flags(name: str) -> Any:
            return torch.tensor([[bool(getattr(step, name))] for step in tick])

        def places(name: str) -> dict[str, Any]:
            here = torch.tensor([getattr(step, name) for step in tick], dtype=torch.float32)
            goals = {"achieved_goal": here, "desired_goal": torch.full_like(here, -1)} if self.goals else {}
            return {"observation": here, **goals}

        after = places("next_obs") | {
            "reward": torch.tensor([[step.reward] for step in tick]),
            "done": flags("ended"),
            "terminated": flags("terminated"),
            "truncated": flags("truncated"),
        }
        steps = TensorDict({**places("obs"), "next": after}, batch_size=[len(tick)])
        if self.buffer._storage.ndim == 1:
            self.buffer.extend(steps)
            return
        self.rollout.append(steps)
        if len(self.rollout) == ROLLOUT:
            self.buffer.extend(torch.stack(self.rollout, 1))
            self.rollout.clear()

    def sample(self, count: int) -> list[Row]:
        batch = self.buffer.sample(count)
        goes_on = (~batch["next", "terminated"]).float()
        gamma = batch["gamma"].reshape(-1, 1) if self.timed else 1.0  # γ to the power of steps_to_next_obs
        named = {
            "handle": batch.get("index") if not self.timed else None,
            "weight": batch.get("priority_weight", None),
            "goal": batch.get("desired_goal", None),
        }
        places = batch["observation"], batch["next", "observation"]
        return rows(places[0], places[1], batch["next", "reward"], goes_on * gamma, **named)

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        self.buffer.update_priority(torch.tensor(handles), torch.tensor(priorities))

    def windows(self, count: int) -> list[list[Id]]:
        batch = self.buffer.sample(count * self.length)
        places = np.array(ids(batch["observation"])).reshape(-1, self.length, 3)
        mask = batch.get(("collector", "mask"), None)
        real = np.ones(places.shape[:2], bool) if mask is None else mask.numpy().reshape(-1, self.length)
        return [ids(window[valid]) for window, valid in zip(places, real, strict=True)]


class _TorchRL(Library):
    """PyTorch's library."""

    name = "TorchRL"
    distributions = ("torchrl", "tensordict", "torch")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(capacity)))

    def shared(self, capacity: int, truncation: bool) -> Buffer:
        raise NotChecked("NextStateReconstructor restores next observations")

    def stacked(self, capacity: int, frames: int) -> Buffer:
        raise NotChecked("CatFrames.make_rb_transform_and_sampler stacks frames as they are sampled")

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        storage = data.LazyTensorStorage(capacity, ndim=1 if environments == 1 else 2)
        transform = transforms.MultiStepTransform(n_steps=n, gamma=gamma)
        return _Rows(data.TensorDictReplayBuffer(storage=storage, transform=transform), timed=True)

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        storage, make = data.LazyTensorStorage(capacity), data.TensorDictPrioritizedReplayBuffer
        return _Rows(make(alpha=alpha, beta=1.0, storage=storage))

    def protected(self, capacity: int) -> Buffer:
        raise NotOffered("counts the generations of slots on request; update_priority doesn't check them")

    def sequences(self, capacity: int, length: int, environments: int, padded: bool) -> Buffer:
        storage = data.LazyTensorStorage(capacity, ndim=1 if environments == 1 else 2)
        options: Any = {"strict_length": False, "pad_output": True} if padded else {}
        sampler = data.SliceSampler(slice_len=length, end_key=("next", "done"), **options)
        return _Rows(data.TensorDictReplayBuffer(storage=storage, sampler=sampler), length=length)

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        def reward(batch: Any) -> Any:
            reached = batch["next", "achieved_goal"] == batch["desired_goal"]
            return reached.all(-1, keepdim=True).float() - 1.0

        storage = data.LazyTensorStorage(capacity)
        return _Rows(data.HERReplayBuffer(reward, storage=storage, strategy=strategy), goals=True)

    def restored(self, buffer: Any, folder: str) -> Buffer:
        path = Path(folder) / "torchrl"
        buffer.buffer.dumps(path)
        other: Any = self.prioritized(buffer.buffer._storage.max_size, 1.0)
        other.buffer.loads(path)
        return other

    def seed(self, seed: int) -> None:
        np.random.seed(seed)
        torch.manual_seed(seed)


library = _TorchRL()
