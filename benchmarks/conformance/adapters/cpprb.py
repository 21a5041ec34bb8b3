"""cpprb, as in https://ymd_h.gitlab.io/cpprb/features/: `done` is whether the episode terminated."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.conformance.adapters.cpprb_api import Rows, Stacks
from benchmarks.conformance.library import Buffer, Library, NotOffered
from benchmarks.conformance.world import LONGEST, Step

cpprb: Any = import_module("cpprb")
FIELDS: dict[str, Any] = {"obs": {"shape": 3}, "rew": {}, "done": {}}


def fields(step: Step) -> dict[str, Any]:
    """Return the fields of a step."""
    return {"obs": step.obs, "rew": step.reward, "done": step.terminated, "next_obs": step.next_obs}


def rows_of(buffer: Any, scale: float = 1.0, **parts: float) -> Rows:
    """Return the interface of a buffer whose rows are discounted by `scale`."""
    return Rows(buffer, fields, lambda batch: scale * (1.0 - batch["done"]), **parts)


class _Goals(Rows):
    """`HindsightReplayBuffer`: rows are stored at the end of an episode, with their goals."""

    def add(self, tick: Sequence[Step]) -> None:
        (step,) = tick
        self.buffer.add(obs=step.obs, act=0, next_obs=step.next_obs)
        if step.ended:
            self.buffer.on_episode_end((-1, -1, -1))  # never achieved


class _Cpprb(Library):
    """Hiroyuki Yamada's C++ library."""

    distributions = ("cpprb",)
    both: Any = FIELDS | {"next_obs": {"shape": 3}}

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return rows_of(cpprb.ReplayBuffer(capacity, self.both))

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        return rows_of(cpprb.ReplayBuffer(capacity, FIELDS, next_of="obs"))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        if environments > 1:
            raise NotOffered("n-step rows of one environment only: steps must be added in their order")
        settings = {"size": n, "gamma": gamma, "rew": "rew", "next": "next_obs"}
        return rows_of(cpprb.ReplayBuffer(capacity, self.both, Nstep=settings), gamma**n)

    def stacked(self, capacity: int, frames: int) -> Buffer:
        stored = FIELDS | {"obs": {"shape": (3, frames)}}
        buffer = cpprb.ReplayBuffer(capacity, stored, next_of="obs", stack_compress="obs")
        return Stacks(buffer, fields, lambda batch: 1.0 - batch["done"], frames=frames)

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        return rows_of(cpprb.PrioritizedReplayBuffer(capacity, self.both, alpha=alpha), beta=1.0)

    def protected(self, capacity: int) -> Buffer:
        make = cpprb.PrioritizedReplayBuffer
        return rows_of(make(capacity, self.both, alpha=1.0, check_for_update=True), beta=1.0)

    def across_processes(self, capacity: int) -> Buffer:
        return rows_of(cpprb.MPReplayBuffer(capacity, self.both))

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        def reward(after: Any, _act: Any, goal: Any) -> Any:
            return (after == goal).all(axis=-1, keepdims=True) - 1.0

        stored = {"obs": {"shape": 3}, "act": {}, "next_obs": {"shape": 3}}
        options: Any = {"strategy": strategy, "prioritized": False}
        buffer = cpprb.HindsightReplayBuffer(capacity, stored, LONGEST, reward, **options)
        # A discount of 0 means a reached goal, whose reward is 0; other values are not checked.
        return _Goals(buffer, fields, lambda batch: batch["rew"])

    def restored(self, buffer: Buffer, folder: str) -> Buffer:
        raise NotOffered("saves transitions only, not the whole buffer")


library = _Cpprb()
