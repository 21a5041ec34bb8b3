"""Stable-Baselines3: steps of a `VecEnv`, with the terminal observation as the last `next_obs`."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Library, NotOffered, Row, rows
from benchmarks.conformance.world import Step

buffers: Any = import_module("stable_baselines3.common.buffers")
save_util: Any = import_module("stable_baselines3.common.save_util")
her: Any = import_module("stable_baselines3.her.her_replay_buffer")
spaces: Any = import_module("gymnasium.spaces")
PLACE = spaces.Box(-np.inf, np.inf, (3,), np.float32)
GOALS = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), PLACE))
ACTION = spaces.Discrete(2)


class _Rows(Buffer):
    """A buffer of rows of several environments."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def observation(self, places: Any) -> Any:
        return np.array(places, np.float32)

    def add(self, tick: Sequence[Step]) -> None:
        self.buffer.add(
            self.observation([step.obs for step in tick]),
            self.observation([step.next_obs for step in tick]),
            np.zeros((len(tick), 1), np.int64),
            np.array([step.reward for step in tick]),
            np.array([step.ended for step in tick]),
            [{"TimeLimit.truncated": step.truncated} for step in tick],
        )

    def sample(self, count: int) -> list[Row]:
        batch = self.buffer.sample(count)
        goes_on = 1.0 - batch.dones
        discount = goes_on if batch.discounts is None else goes_on * batch.discounts
        return rows(batch.observations, batch.next_observations, batch.rewards, discount)


class _Goals(_Rows):
    """Dict observations with goals."""

    def observation(self, places: Any) -> Any:
        here = np.array(places, np.float32)
        return {"observation": here, "achieved_goal": here, "desired_goal": np.full_like(here, -1)}

    def sample(self, count: int) -> list[Row]:
        batch = self.buffer.sample(count)
        places = [batch.observations["observation"], batch.next_observations["observation"]]
        return rows(
            places[0], places[1], batch.rewards, 1.0 - batch.dones, goal=batch.observations["desired_goal"]
        )


class _StableBaselines3(Library):
    """SB3's replay buffers; it has no priorities."""

    distributions = ("stable-baselines3", "torch")
    parts: Any = (PLACE, ACTION, "cpu")

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(buffers.ReplayBuffer(capacity, *self.parts, n_envs=environments))

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        if truncation:
            raise NotOffered("optimize_memory_usage excludes handle_timeout_termination")
        options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
        return _Rows(buffers.ReplayBuffer(capacity, *self.parts, **options))

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        options: Any = {"n_envs": environments, "n_steps": n, "gamma": gamma}
        return _Rows(buffers.NStepReplayBuffer(capacity, *self.parts, **options))

    def hindsight(self, capacity: int, strategy: str) -> Buffer:
        def env_method(_name: str, after: Any, goals: Any, _infos: Any, **_: Any) -> list[Any]:
            return [(after == goals).all(axis=-1) - 1.0]

        options: Any = {"env": SimpleNamespace(env_method=env_method), "goal_selection_strategy": strategy}
        return _Goals(her.HerReplayBuffer(capacity, GOALS, ACTION, device="cpu", **options))

    def restored(self, buffer: Any, folder: str) -> Buffer:
        path = str(Path(folder) / "buffer.pkl")
        save_util.save_to_pkl(path, buffer.buffer)
        return _Rows(save_util.load_from_pkl(path))


library = _StableBaselines3()
