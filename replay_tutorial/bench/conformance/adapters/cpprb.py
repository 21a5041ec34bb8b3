"""cpprb, as in https://ymd_h.gitlab.io/cpprb/features/: `done` is whether the episode terminated."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from replay_tutorial.bench.conformance.library import Buffer, Library, NotOffered, Row, rows
from replay_tutorial.bench.conformance.world import LENGTHS, Step

cpprb: Any = import_module("cpprb")
FIELDS: dict[str, Any] = {"obs": {"shape": 3}, "rew": {}, "done": {}}


def fields(step: Step) -> dict[str, Any]:
    """Return the fields of a step."""
    return {"obs": step.obs, "rew": step.reward, "done": step.terminated, "next_obs": step.next_obs}


class _Rows(Buffer):
    """A buffer of rows; `discount` multiplies the value of the next observation."""

    def __init__(self, buffer: Any, discount: float = 1.0, **parts: float) -> None:
        self.buffer, self.discount, self.parts = buffer, discount, parts

    def add(self, tick: Sequence[Step]) -> None:
        for step in tick:
            self.buffer.add(**fields(step))
            if step.ended:
                self.buffer.on_episode_end()

    def sample(self, count: int) -> list[Row]:
        batch = self.buffer.sample(count, **self.parts)
        discount = self.discount * (1.0 - batch["done"])
        named = {"handle": batch.get("indexes"), "weight": batch.get("weights")}
        return rows(batch["obs"], batch["next_obs"], batch["rew"], discount, **named)

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        self.buffer.update_priorities(handles, priorities)


class _Stacks(_Rows):
    """Stacks of frames along the last axis."""

    def __init__(self, buffer: Any, frames: int) -> None:
        super().__init__(buffer)
        self.frames, self.stack = frames, np.zeros((3, frames))

    def add(self, tick: Sequence[Step]) -> None:
        """Add a step with the stacks before and after it."""
        (step,) = tick
        if step.step == 0:
            self.stack = np.stack([step.obs] * self.frames, axis=1)
        following = np.concatenate([self.stack[:, 1:], np.reshape(step.next_obs, (3, 1))], axis=1)
        self.buffer.add(obs=self.stack, rew=step.reward, done=step.terminated, next_obs=following)
        self.stack = following
        if step.ended:
            self.buffer.on_episode_end()

    def sample(self, count: int) -> list[Row]:
        """Sample rows with stacks."""
        batch = self.buffer.sample(count)
        stacks = [batch[name].transpose(0, 2, 1).reshape(count, -1) for name in ("obs", "next_obs")]
        return rows(stacks[0], stacks[1], batch["rew"], 1.0 - batch["done"])


class _Goals(_Rows):
    """`HindsightReplayBuffer`: rows are stored at the end of an episode, with their goals."""

    def add(self, tick: Sequence[Step]) -> None:
        """Add a step, whose goal is never achieved."""
        (step,) = tick
        self.buffer.add(obs=step.obs, act=0, next_obs=step.next_obs)
        if step.ended:
            self.buffer.on_episode_end((-1, -1, -1))

    def sample(self, count: int) -> list[Row]:
        """Sample rows with goals."""
        batch = self.buffer.sample(count)
        return rows(batch["obs"], batch["next_obs"], batch["rew"], batch["rew"], goal=batch["goal"])


class _Cpprb(Library):
    """Kozuki Yamada's C++ library."""

    name = "cpprb"
    distributions = ("cpprb",)
    both: Any = FIELDS | {"next_obs": {"shape": 3}}

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(cpprb.ReplayBuffer(capacity, self.both))

    def shared(self, capacity: int, truncation: bool) -> Buffer:
        return _Rows(cpprb.ReplayBuffer(capacity, FIELDS, next_of="obs"))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        if environments > 1:
            raise NotOffered("n-step rows of one environment only: steps must be added in their order")
        settings = {"size": n, "gamma": gamma, "rew": "rew", "next": "next_obs"}
        return _Rows(cpprb.ReplayBuffer(capacity, self.both, Nstep=settings), gamma**n)

    def stacked(self, capacity: int, frames: int) -> Buffer:
        stored = FIELDS | {"obs": {"shape": (3, frames)}}
        return _Stacks(cpprb.ReplayBuffer(capacity, stored, next_of="obs", stack_compress="obs"), frames)

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        return _Rows(cpprb.PrioritizedReplayBuffer(capacity, self.both, alpha=alpha), beta=1.0)

    def protected(self, capacity: int) -> Buffer:
        make = cpprb.PrioritizedReplayBuffer
        return _Rows(make(capacity, self.both, alpha=1.0, check_for_update=True), beta=1.0)

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        def reward(after: Any, _act: Any, goal: Any) -> Any:
            return (after == goal).all(axis=-1, keepdims=True) - 1.0

        stored = {"obs": {"shape": 3}, "act": {}, "next_obs": {"shape": 3}}
        options: Any = {"strategy": strategy, "prioritized": False}
        return _Goals(cpprb.HindsightReplayBuffer(capacity, stored, max(LENGTHS), reward, **options))

    def restored(self, buffer: Buffer, folder: str) -> Buffer:
        raise NotOffered("saves transitions only, not the whole buffer")

    def seed(self, seed: int) -> None:
        np.random.seed(seed)


library = _Cpprb()
