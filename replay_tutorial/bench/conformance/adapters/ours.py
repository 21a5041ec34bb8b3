"""Our buffers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import replay_tutorial
from replay_tutorial.bench.conformance.library import Buffer, Library, Row, ids, rows
from replay_tutorial.bench.conformance.world import Id, Step

FLAG, NUMBER, PLACE = {"shape": (), "dtype": bool}, {"shape": ()}, {"shape": 3}
FIELDS = {"obs": PLACE, "rew": NUMBER, "terminated": FLAG, "truncated": FLAG, "next_obs": PLACE}
ENV_DICT: Any = FIELDS
GOALS: Any = FIELDS | {"at": PLACE, "next_at": PLACE, "goal": PLACE}
NO_GOAL = (-1, -1, -1)


def fields(step: Step) -> dict[str, Any]:
    """Return the fields of a step."""
    ends = {"terminated": step.terminated, "truncated": step.truncated}
    return {"obs": step.obs, "rew": step.reward, **ends, "next_obs": step.next_obs}


class _Rows(Buffer):
    """A buffer with one row per step; `parts` are `sample`'s further arguments."""

    def __init__(self, buffer: Any, **parts: Any) -> None:
        self.buffer, self.parts = buffer, parts

    def add(self, tick: Sequence[Step]) -> None:
        for step in tick:
            self.buffer.add(**fields(step))
            if step.ended:
                self.buffer.on_episode_end()

    def sample(self, count: int) -> list[Row]:
        batch = self.buffer.sample(count, **self.parts)
        discount = batch["discount"] if "discount" in batch else 1.0 - batch["terminated"]
        named = {"handle": batch.get("indexes"), "weight": batch.get("weights"), "goal": batch.get("goal")}
        return rows(batch["obs"], batch["next_obs"], batch["rew"], discount, **named)

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        self.buffer.update_priorities(handles, priorities)


class _ByEnvironment(_Rows):
    """An n-step window for each environment, and a buffer of their rows."""

    def __init__(self, windows: Any, buffer: Any) -> None:
        super().__init__(buffer)
        self.n_step = windows

    def add(self, tick: Sequence[Step]) -> None:
        """Add the rows that the step completes."""
        columns = [fields(step) for step in tick]
        batch = self.n_step.add_step(**{name: np.array([row[name] for row in columns]) for name in FIELDS})
        if batch is not None:
            self.buffer.add(**batch)


class _Stacks(_Rows):
    """Stacks of frames along the last axis; the first frame of an episode fills its first stack."""

    def __init__(self, buffer: Any, frames: int) -> None:
        super().__init__(buffer)
        self.frames, self.stack = frames, np.zeros((3, frames))

    def add(self, tick: Sequence[Step]) -> None:
        """Add a step with the stacks before and after it."""
        (step,) = tick
        if step.step == 0:
            self.stack = np.stack([step.obs] * self.frames, axis=1)
        following = np.concatenate([self.stack[:, 1:], np.reshape(step.next_obs, (3, 1))], axis=1)
        self.buffer.add(**fields(step) | {"obs": self.stack, "next_obs": following})
        self.stack = following
        if step.ended:
            self.buffer.on_episode_end()

    def sample(self, count: int) -> list[Row]:
        """Sample rows with stacks."""
        batch = self.buffer.sample(count)
        stacks = [batch[name].transpose(0, 2, 1).reshape(count, -1) for name in ("obs", "next_obs")]
        return rows(stacks[0], stacks[1], batch["rew"], 1.0 - batch["terminated"])


class _Episodes(_Rows):
    """An episode buffer, with a ring for each environment."""

    def add(self, tick: Sequence[Step]) -> None:
        """Add a step to the episode of each environment."""
        for step in tick:
            given = {"at": step.obs, "next_at": step.next_obs, "goal": NO_GOAL} if self.parts else {}
            self.buffer.add(step.environment, **fields(step), **given)

    def sample(self, count: int) -> list[Row]:
        """Sample rows with goals."""
        batch = self.buffer.sample(count)
        return rows(
            batch["obs"], batch["next_obs"], batch["rew"], 1.0 - batch["terminated"], goal=batch["goal"]
        )

    def windows(self, count: int) -> list[list[Id]]:
        """Sample windows without their padding."""
        batch = self.buffer.sample(count)
        return [ids(obs[: len(real)][real]) for obs, real in zip(batch["obs"], batch["valid"], strict=True)]


def achieved(after: Any, goals: Any, _rows: Any) -> Any:
    """Return whether each goal is achieved."""
    return (after == goals).all(axis=-1)


class _Ours(Library):
    """This package."""

    name = "replay_tutorial"
    distributions = ("replay_tutorial", "numpy", "numba")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(replay_tutorial.ReplayBuffer(capacity, ENV_DICT, seed=0))

    def shared(self, capacity: int, truncation: bool) -> Buffer:
        stored = {name: spec for name, spec in FIELDS.items() if name != "next_obs"}
        return _Rows(replay_tutorial.ReplayBuffer(capacity, stored, next_of="obs", seed=0))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        settings = {"size": n, "gamma": gamma, "rew": "rew", "next": "next_obs"}
        if environments == 1:
            return _Rows(replay_tutorial.ReplayBuffer(capacity, ENV_DICT, Nstep=settings, seed=0))
        windows = replay_tutorial.NStep(ENV_DICT, settings, environments=environments)
        return _ByEnvironment(windows, replay_tutorial.ReplayBuffer(capacity, windows.env_dict, seed=0))

    def stacked(self, capacity: int, frames: int) -> Buffer:
        stored: Any = {**FIELDS, "obs": {"shape": (3, frames)}}
        del stored["next_obs"]
        options: Any = {"next_of": "obs", "stack_compress": {"obs": -1}, "seed": 0}
        return _Stacks(replay_tutorial.ReplayBuffer(capacity, stored, **options), frames)

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        buffer = replay_tutorial.PrioritizedReplayBuffer(capacity, ENV_DICT, alpha=alpha, seed=0)
        return _Rows(buffer, beta=1.0)

    def protected(self, capacity: int) -> Buffer:
        return self.prioritized(capacity, 1.0)

    def sequences(self, capacity: int, length: int, environments: int, padded: bool) -> Buffer:
        options: Any = {"boundary": "pad" if padded else "drop", "environments": environments, "seed": 0}
        return _Episodes(replay_tutorial.SequenceReplayBuffer(capacity, ENV_DICT, length, **options))

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        options: Any = {"strategy": strategy, "goal": "goal", "achieved_goal": "at", "seed": 0}

        def reward(*given: Any) -> Any:
            return achieved(*given) - 1.0

        make: Any = replay_tutorial.HindsightReplayBuffer
        return _Episodes(make(capacity, GOALS, reward, achieved, **options), goals=True)

    def restored(self, buffer: Any, folder: str) -> Buffer:
        path = Path(folder) / "buffer.zip"
        buffer.buffer.save(path)
        other: Any = self.prioritized(buffer.buffer.get_buffer_size(), 1.0)
        other.buffer.load(path)
        return other


library = _Ours()
