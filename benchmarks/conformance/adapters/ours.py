"""Our buffers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import replay_tutorial
from benchmarks.conformance.adapters.cpprb_api import Rows, Stacks
from benchmarks.conformance.library import Buffer, Library, ids
from benchmarks.conformance.world import Id, Step, VectorStep

FLAG, NUMBER, PLACE = {"dtype": bool}, {}, {"shape": 3}
FIELDS: Any = {"obs": PLACE, "rew": NUMBER, "terminated": FLAG, "truncated": FLAG, "next_obs": PLACE}
GOALS: Any = FIELDS | {"at": PLACE, "next_at": PLACE, "goal": PLACE}


def fields(step: Step) -> dict[str, Any]:
    """Return the fields of a step."""
    ends = {"terminated": step.terminated, "truncated": step.truncated}
    return {"obs": step.obs, "rew": step.reward, **ends, "next_obs": step.next_obs}


def fields_with_goal(step: Step) -> dict[str, Any]:
    """Return the fields of a step whose goal is never achieved."""
    return fields(step) | {"at": step.obs, "next_at": step.next_obs, "goal": (-1, -1, -1)}


def discount_of(batch: Any) -> Any:
    """Return the discounts of n-step rows, or of single steps."""
    return batch["discount"] if "discount" in batch else 1.0 - batch["terminated"]


def rows_of(buffer: Any, **parts: Any) -> Rows:
    """Return the interface of a buffer."""
    return Rows(buffer, fields, discount_of, **parts)


class _ByEnvironment(Rows):
    """A buffer with an n-step window for each environment."""

    def add(self, tick: Sequence[Step]) -> None:
        columns = [fields(step) for step in tick]
        self.add_columns({name: np.array([row[name] for row in columns]) for name in FIELDS})

    def add_vector_step(self, step: VectorStep) -> None:
        """Add a step as in the recipe "Vector environments"; those that only reset are ignored."""
        ends = {"terminated": np.array(step.terminated), "truncated": np.array(step.truncated)}
        after = [final or obs for final, obs in zip(step.final_obs, step.next_obs, strict=True)]
        places = {"obs": np.array(step.obs), "next_obs": np.array(after)}
        self.add_columns({**places, "rew": np.array(step.reward), **ends})

    def add_columns(self, columns: Any) -> None:
        self.buffer.add(**columns)


class _Episodes(Rows):
    """An episode buffer, with a ring for each environment."""

    def add(self, tick: Sequence[Step]) -> None:
        for step in tick:
            self.buffer.add(step.environment, **self.fields(step))

    def windows(self, count: int) -> list[list[Id]]:
        batch = self.buffer.sample(count)
        return [ids(obs[: len(real)][real]) for obs, real in zip(batch["obs"], batch["valid"], strict=True)]


def achieved(after: Any, goals: Any, _rows: Any) -> Any:
    """Return whether each goal is achieved."""
    return (after == goals).all(axis=-1)


class _Ours(Library):
    """This package."""

    distributions = ("replay_tutorial", "numpy", "numba")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return rows_of(replay_tutorial.ReplayBuffer(capacity, FIELDS, seed=0))

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        stored = {name: spec for name, spec in FIELDS.items() if name != "next_obs"}
        return rows_of(replay_tutorial.ReplayBuffer(capacity, stored, dedupe_next="obs", seed=0))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        if environments == 1:
            n_step = replay_tutorial.NStep(n, gamma, reward="rew")
            return rows_of(replay_tutorial.ReplayBuffer(capacity, FIELDS, n_step=n_step, seed=0))
        return self.vectorized(capacity, n, gamma, environments, "DISABLED")

    def vectorized(self, capacity: int, n: int, gamma: float, environments: int, mode: str) -> Buffer:
        n_step = replay_tutorial.NStep(n, gamma, reward="rew")
        options: Any = {"n_step": n_step, "num_envs": environments, "autoreset": mode.lower()}
        buffer = replay_tutorial.ReplayBuffer(capacity, FIELDS, **options, seed=0)
        return _ByEnvironment(buffer, fields, discount_of)

    def stacked(self, capacity: int, frames: int) -> Buffer:
        stored = {**FIELDS, "obs": {"shape": (3, frames)}}
        del stored["next_obs"]
        options: Any = {"dedupe_next": "obs", "dedupe_frames": {"obs": -1}, "seed": 0}
        buffer = replay_tutorial.ReplayBuffer(capacity, stored, **options)
        return Stacks(buffer, fields, discount_of, frames=frames)

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        buffer = replay_tutorial.PrioritizedReplayBuffer(capacity, FIELDS, alpha=alpha, seed=0)
        return rows_of(buffer, beta=1.0)

    def protected(self, capacity: int) -> Buffer:
        return self.prioritized(capacity, 1.0)

    def across_processes(self, capacity: int) -> Buffer:
        return rows_of(replay_tutorial.MPReplayBuffer(capacity, FIELDS, seed=0))

    def sequences(self, capacity: int, length: int, environments: int, padded: bool) -> Buffer:
        options: Any = {"boundary": "pad" if padded else "drop", "num_envs": environments, "seed": 0}
        buffer = replay_tutorial.SequenceReplayBuffer(capacity, FIELDS, length, **options)
        return _Episodes(buffer, fields, discount_of)

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        options: Any = {
            "strategy": strategy,
            "goal": "goal",
            "achieved_goal": "at",
            "reward": "rew",
            "seed": 0,
        }

        def reward(*given: Any) -> Any:
            return achieved(*given) - 1.0

        make: Any = replay_tutorial.HindsightReplayBuffer
        return _Episodes(make(capacity, GOALS, reward, achieved, **options), fields_with_goal, discount_of)

    def restored(self, buffer: Any, folder: str) -> Buffer:
        path = Path(folder) / "buffer.zip"
        buffer.buffer.save(path)
        other: Any = self.prioritized(buffer.buffer.capacity, 1.0)
        other.buffer.load(path)
        return other


library = _Ours()
