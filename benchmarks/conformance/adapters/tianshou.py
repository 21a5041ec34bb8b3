"""tianshou: each step is added as a `Batch`; n-step targets are those of `Algorithm.compute_nstep_return`."""

import pickle
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Library, Row, rows
from benchmarks.conformance.world import LONGEST, Step, VectorStep

data: Any = import_module("tianshou.data")
base: Any = import_module("tianshou.algorithm.algorithm_base")
torch: Any = import_module("torch")


class _Rows(Buffer):
    """A buffer of rows."""

    def __init__(self, buffer: Any, environments: int = 1, goals: bool = False) -> None:
        self.buffer, self.environments, self.goals = buffer, environments, goals

    def add(self, tick: Sequence[Step]) -> None:
        def column(name: str) -> Any:
            return np.array([getattr(step, name) for step in tick])

        ends = column("terminated"), column("truncated")
        step = self.batch(column("obs"), column("next_obs"), column("reward"), *ends)
        if self.environments > 1:
            self.buffer.add(step, buffer_ids=np.arange(self.environments))
        else:
            self.buffer.add(step[0])

    def add_vector_step(self, step: VectorStep) -> None:
        after = [final or obs for final, obs in zip(step.final_obs, step.next_obs, strict=True)]
        flags = np.array(step.terminated), np.array(step.truncated)
        batch = self.batch(np.array(step.obs), np.array(after), np.array(step.reward), *flags)
        if len(stepped := np.flatnonzero(~np.array(step.only_reset))):
            self.buffer.add(batch[stepped], buffer_ids=stepped)

    def batch(self, obs: Any, following: Any, reward: Any, terminated: Any, truncated: Any) -> Any:
        def places(ids: Any) -> Any:
            here = ids.astype(np.float32)
            if self.goals:
                return data.Batch(observation=here, achieved_goal=here, desired_goal=np.full_like(here, -1))
            return here

        return data.Batch(
            obs=places(obs),
            act=np.zeros(len(obs), np.int64),
            rew=reward,
            terminated=terminated,
            truncated=truncated,
            obs_next=places(following),
            info=np.array([{} for _ in obs]),
        )

    def sample(self, count: int) -> list[Row]:
        batch, indexes = self.buffer.sample(count)
        weight = batch.weight if "weight" in batch.get_keys() else None
        obs, following, goal = batch.obs, batch.obs_next, None
        if self.goals:
            obs, following, goal = obs.observation, following.observation, obs.desired_goal
        if obs.ndim == 3:  # stacks: [batch, frames, coordinates]
            obs, following = (part.reshape(len(part), -1) for part in (obs, following))
        discount = 1.0 - batch.terminated
        return rows(obs, following, batch.rew, discount, handle=indexes, weight=weight, goal=goal)

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        self.buffer.update_weight(np.array(handles), np.array(priorities))


class _NStepRows(_Rows):
    """Rows of n-step targets; two calls with constant values separate reward and discount."""

    def __init__(self, buffer: Any, environments: int, n: int, gamma: float) -> None:
        super().__init__(buffer, environments)
        self.n, self.gamma = n, gamma

    def sample(self, count: int) -> list[Row]:
        batch, indexes = self.buffer.sample(count)
        lasts: Any = None

        def returns(value: float) -> Any:
            def target_q(_buffer: Any, at: Any) -> Any:
                nonlocal lasts
                lasts = at
                return torch.full((len(at),), value)

            compute = base.Algorithm.compute_nstep_return
            return compute(batch, self.buffer, indexes, target_q, self.gamma, self.n).returns.numpy()

        reward, with_one = returns(0.0), returns(1.0)
        return rows(batch.obs, self.buffer[lasts].obs_next, reward, with_one - reward)


class _Tianshou(Library):
    """Tsinghua's library."""

    distributions = ("tianshou", "torch")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        if environments > 1:
            return _Rows(data.VectorReplayBuffer(capacity, environments), environments)
        return _Rows(data.ReplayBuffer(capacity))

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        return _Rows(data.ReplayBuffer(capacity, ignore_obs_next=True))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        if environments > 1:
            return _NStepRows(data.VectorReplayBuffer(capacity, environments), environments, n, gamma)
        return _NStepRows(data.ReplayBuffer(capacity), 1, n, gamma)

    def vectorized(self, capacity: int, n: int, gamma: float, environments: int, mode: str) -> Buffer:
        return self.n_step(capacity, n, gamma, environments)

    def stacked(self, capacity: int, frames: int) -> Buffer:
        return _Rows(data.ReplayBuffer(capacity, stack_num=frames, ignore_obs_next=True))

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        return _Rows(data.PrioritizedReplayBuffer(capacity, alpha=alpha, beta=1.0))

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        if strategy != "future":
            return super().hindsight(capacity, strategy)

        def reward(after: Any, goals: Any) -> Any:
            return (after == goals).all(axis=-1) - 1.0

        return _Rows(data.HERReplayBuffer(capacity, reward, horizon=LONGEST), goals=True)

    def restored(self, buffer: Any, folder: str) -> Buffer:
        return _Rows(pickle.loads(pickle.dumps(buffer.buffer)))


library = _Tianshou()
