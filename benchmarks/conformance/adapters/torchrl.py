"""TorchRL: `TensorDictReplayBuffer` with its samplers and transforms, with the default keys of each."""

import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Library, NotChecked, NotOffered, Row, ids, rows
from benchmarks.conformance.world import Id, Step

data: Any = import_module("torchrl.data")
transforms: Any = import_module("torchrl.envs.transforms")
TensorDict: Any = import_module("tensordict").TensorDict
torch: Any = import_module("torch")
ROLLOUT = 8  # steps of every environment
SLICE = 4  # steps
TRAJECTORY = ("collector", "traj_ids")
logging.getLogger("torchrl").setLevel(logging.ERROR)  # it logs every new storage


class _Rows(Buffer):
    """A buffer of rows. Steps are added by `extend`; those of several environments as rollouts."""

    def __init__(self, buffer: Any, timed: bool = False, goals: bool = False, length: int = 0) -> None:
        self.buffer, self.timed, self.goals, self.length = buffer, timed, goals, length
        self.rollout: list[Any] = []

    def steps(self, tick: Sequence[Step]) -> Any:

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
        return TensorDict({**places("obs"), "next": after}, batch_size=[len(tick)])

    def add(self, tick: Sequence[Step]) -> None:
        steps = self.steps(tick)
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


class _Trajectories(_Rows):
    """Steps with the number of their trajectory, as a collector returns them, sampled as slices."""

    def steps(self, tick: Sequence[Step]) -> Any:
        numbers = torch.tensor([step.episode for step in tick])
        return super().steps(tick).set(TRAJECTORY, numbers)


class _Compact(_Trajectories):
    """Steps stored without next observations, as by a collector with `compact_obs=True`."""

    def steps(self, tick: Sequence[Step]) -> Any:
        return super().steps(tick).exclude(("next", "observation"))

    def sample(self, count: int) -> list[Row]:
        """Sample slices. A row whose next observation is unknown has NaN there, as documented."""
        batch = self.buffer.sample(-(-count // SLICE) * SLICE)
        batch = batch[~batch["next", "observation"].isnan().any(-1)]
        goes_on = (~batch["next", "terminated"]).float()
        return rows(batch["observation"], batch["next", "observation"], batch["next", "reward"], goes_on)


class _Stacks(_Trajectories):
    """Single frames, stacked when they are sampled."""

    def sample(self, count: int) -> list[Row]:
        """Sample the stacks of the last step of each slice, once an episode is as long as a stack."""
        try:
            batch = self.buffer.sample(count)
        except RuntimeError as error:
            if "sufficient length" in str(error):
                return []
            raise
        obs, following = (batch[key].reshape(len(batch), -1) for key in ("stack", ("next", "stack")))
        goes_on = (~batch["next", "terminated"]).float()
        return rows(obs, following, batch["next", "reward"], goes_on)


class _TorchRL(Library):
    """PyTorch's library."""

    distributions = ("torchrl", "tensordict", "torch")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(capacity)))

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        if truncation:
            raise NotOffered("NextStateReconstructor returns NaN at the ends of trajectories, as documented")
        sampler = data.SliceSampler(slice_len=SLICE, traj_key=TRAJECTORY, strict_length=False)
        parts = {"storage": data.LazyTensorStorage(capacity), "sampler": sampler}
        return _Compact(data.ReplayBuffer(transform=transforms.NextStateReconstructor(), **parts))

    def stacked(self, capacity: int, frames: int) -> Buffer:
        catframes = transforms.CatFrames(N=frames, dim=-2, in_keys=["stack"], reset_key="_reset")
        options: Any = {"batch_size": 1, "traj_key": TRAJECTORY, "strict_length": True}
        transform, sampler = catframes.make_rb_transform_and_sampler(**options)
        both = {"in_keys": "observation", "out_keys": "stack"}
        keys: Any = {name: [key, ("next", key)] for name, key in both.items()}
        stacking = transforms.Compose(transforms.UnsqueezeTransform(dim=-2, **keys), transform)
        parts = {"storage": data.LazyTensorStorage(capacity), "sampler": sampler, "batch_size": 1}
        return _Stacks(data.ReplayBuffer(transform=stacking, **parts))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        storage = data.LazyTensorStorage(capacity, ndim=1 if environments == 1 else 2)
        transform = transforms.MultiStepTransform(n_steps=n, gamma=gamma)
        return _Rows(data.TensorDictReplayBuffer(storage=storage, transform=transform), timed=True)

    def vectorized(self, capacity: int, n: int, gamma: float, environments: int, mode: str) -> Buffer:
        raise NotOffered("environments are reset by GymWrapper, which rejects NEXT_STEP, not by a buffer")

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        storage, make = data.LazyTensorStorage(capacity), data.TensorDictPrioritizedReplayBuffer
        return _Rows(make(alpha=alpha, beta=1.0, storage=storage))

    def protected(self, capacity: int) -> Buffer:
        raise NotOffered("counts the generations of slots on request; update_priority doesn't check them")

    def across_processes(self, capacity: int) -> Buffer:
        raise NotChecked(
            "buffers with shared=True convert nothing inside `add`, but this check kills the writer there"
        )

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
        super().seed(seed)
        torch.manual_seed(seed)


library = _TorchRL()
