"""Peers that store episodes and sample windows of consecutive steps, or goals in hindsight (HER).

The steps contain their own numbers: the episode first, then the step. So a sample shows whether its windows
are consecutive, and whether its goals were achieved later in the same episode. Each library is called as its
documentation shows, with its default names and options.
"""

import importlib
from collections.abc import Callable
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers import libraries
from benchmarks.peers.buffer import OURS, Buffer, Ceiling, Kind, Values, each
from replay_course.timing import Workload

WINDOWS, GOALS, REVERSE = "windows", "goals", "reverse"  # variants of a buffer
LENGTH, EPISODE = 80, 200  # steps of a window and of an episode
NOT_ACHIEVED = EPISODE + 1  # in the goal of every episode


def episode_of(number: int, goals: bool) -> dict[str, Any]:
    """Return the steps of an episode; with `goals`, an observation is a dict with a goal never achieved."""

    def numbers(width: int, steps: Any) -> npt.NDArray[np.float32]:
        columns = np.zeros((EPISODE, width), np.float32)
        columns += np.reshape(steps, (-1, 1))
        columns[:, 0] = number
        return columns

    def observation(steps: Any) -> Any:
        if not goals:
            return numbers(30, steps)
        achieved, desired = numbers(3, steps), numbers(3, NOT_ACHIEVED)
        return {"observation": numbers(15, steps), "achieved_goal": achieved, "desired_goal": desired}

    steps = np.arange(EPISODE, dtype=np.float32)
    rew = np.full_like(steps, -1) if goals else steps
    fields = {"obs": observation(steps), "act": numbers(3, steps), "next_obs": observation(steps + 1)}
    return {**fields, "rew": rew[:, None], "done": (steps[:, None] == EPISODE - 1).astype("f4")}


def share_of_broken(act: Any, rew: Any, obs: Any, goal: Any = None) -> float:
    """Return the share of sampled windows, or of rows with goals, that contradict the steps' numbers.

    This checks that a buffer was timed with the right options; `conformance` checks the libraries.
    """
    obs, act, rew = np.asarray(obs), np.asarray(act), np.asarray(rew)[..., 0]
    episode, step = obs[..., 0], obs[..., 1]
    right = (obs[..., 2:] == step[..., None]).all(-1) & (act == obs[..., :3]).all(-1)
    if goal is None:
        windows = [part.reshape(-1, LENGTH) for part in (right & (rew == step), episode, step)]
        follows = (np.diff(windows[1]) == 0) & (np.diff(windows[2]) == 1)
        return float(1 - (windows[0].all(axis=1) & follows.all(axis=1)).mean())
    goal = np.asarray(goal)
    achieved = goal[:, 1]
    later = (achieved > step) & (achieved <= EPISODE) | (achieved == NOT_ACHIEVED)
    right &= (goal[:, 0] == episode) & later & (goal[:, 2] == achieved)
    return float(1 - (right & (rew == np.where(achieved == step + 1, 0, -1))).mean())


def is_achieved(achieved: Any, goal: Any, *_: Any) -> Any:
    """Return whether each goal is achieved."""
    return (achieved == goal).all(axis=-1)


def reward_of(achieved: Any, goal: Any, *_: Any) -> Any:
    """Return the rewards: 0 for an achieved goal, otherwise -1."""
    return is_achieved(achieved, goal).astype(np.float32) - 1


class CpprbGoals(Buffer):
    """cpprb's `HindsightReplayBuffer`: at its end, an episode is stored five times, four with other goals."""

    def __init__(self, example: Values, kind: Kind) -> None:
        """Create the buffer; an observation contains the achieved goal."""
        obs, self.kind, goal_of = {"shape": 18}, kind, itemgetter((..., slice(15, None)))

        def reward(after: Any, _act: Any, goal: Any) -> Any:
            return reward_of(goal_of(after), goal)[:, None]

        make: Any = importlib.import_module("cpprb")
        self.buffer = make.HindsightReplayBuffer(
            kind.capacity,
            {"obs": obs, "next_obs": obs, "act": {"shape": 3}, "done": {}},
            max_episode_len=EPISODE,
            reward_func=reward,
            goal_func=goal_of,
            goal_shape=3,
            prioritized=False,
        )

    def adding(self, values: Values) -> Workload:
        fields = {"act": values["act"], "done": values["done"]}
        for name in ("obs", "next_obs"):
            fields[name] = np.concatenate([values[name]["observation"], values[name]["achieved_goal"]], -1)
        add, end, goal = self.buffer.add, self.buffer.on_episode_end, values["obs"]["desired_goal"]
        return (lambda: (add(**fields), end(goal))) if values["done"][-1] else (lambda: add(**fields))


class TorchRLSteps(libraries.TorchRL):
    """`SliceSampler`, which finds the ends of episodes by a flag and caches them; or `HERReplayBuffer`."""

    def __init__(self, example: Values, kind: Kind) -> None:
        super().__init__(example, kind)
        data: Any = importlib.import_module("torchrl.data")
        storage = data.LazyTensorStorage(kind.capacity)
        if kind.variant == WINDOWS:
            sampler = data.SliceSampler(slice_len=LENGTH, end_key=("next", "done"), cache_values=True)
            self.buffer = data.TensorDictReplayBuffer(storage=storage, sampler=sampler)
        else:
            self.buffer = data.HERReplayBuffer(self.reward, storage=storage)

    @staticmethod
    def reward(rows: Any) -> Any:
        """Return the rewards of relabelled rows."""
        return -(rows["next", "achieved_goal"] != rows["desired_goal"]).any(-1, keepdim=True).float()

    def adding(self, values: Values) -> Workload:
        """Return a workload that creates a `TensorDict` and adds it."""
        shape, make = values["rew"].shape[:-1], self.make
        add = self.buffer.extend if shape else self.buffer.add
        goals, end = self.kind.variant == GOALS, {"reward": values["rew"], "done": values["done"] > 0.5}
        start = values["obs"] if goals else {"obs": values["obs"]}
        fields = {**start, "act": values["act"], "next": {**values["next_obs"], **end} if goals else end}
        return lambda: add(make(fields, batch_size=shape))

    def extending(self, values: Values) -> Workload:
        """Return a workload that adds steps."""
        return self.adding(values)

    def fill(self, values: Values) -> None:
        """Add the last step alone: after `extend`, `sample`, `add`, HER's next `sample` would raise."""
        for add, rows in ((self.extending, slice(-1)), (self.adding, -1)):
            add({name: each(value, itemgetter(rows)) for name, value in values.items()})()

    def sampling(self, batch_size: int) -> Workload:
        """Return a workload that samples windows or rows."""
        sample, size = self.buffer.sample, batch_size * (LENGTH if self.kind.variant == WINDOWS else 1)
        return lambda: sample(size)


class StableBaselines3Goals(libraries.StableBaselines3):
    """`HerReplayBuffer`, with an environment that only computes rewards."""

    def __init__(self, example: Values, kind: Kind) -> None:
        super().__init__(example, Kind(1))
        her: Any = importlib.import_module("stable_baselines3.her.her_replay_buffer")
        spaces = self.buffer.observation_space, self.buffer.action_space

        def call(_name: str, *given: Any, **_: Any) -> list[Any]:
            return [reward_of(*given)]

        world, self.kind = SimpleNamespace(env_method=call), kind
        self.buffer = her.HerReplayBuffer(kind.capacity, *spaces, world, device="cpu")


class FlashbaxWindows(libraries.Flashbax):
    """The trajectory buffer, whose windows start at any step."""

    def functions(self, batch_size: int) -> Any:
        """Return flashbax's functions for a batch size."""
        capacity, make = self.kind.capacity, self.module.make_trajectory_buffer
        return make(1, batch_size, LENGTH, 1, LENGTH, max_length_time_axis=capacity)

    def batched(self, rows: Values) -> Values:
        """Return the steps as a batch of one sequence."""
        return {name: value[np.newaxis] for name, value in rows.items()}


class CeilingWindows(Ceiling):
    """One `take` of the records of random windows, into reused memory."""

    def sampling(self, batch_size: int) -> Workload:
        """Return a workload that copies random windows."""
        batches = max(1, 2 * self.kind.capacity // (batch_size * LENGTH))
        starts = np.random.default_rng(0).integers(0, self.kind.capacity - LENGTH, (batches, batch_size, 1))
        return self.taking((starts + np.arange(LENGTH)).reshape(batches, -1))


OBSERVED = itemgetter("observation", "desired_goal")
# Actions, rewards, observations and goals of a sample.
COLUMNS: dict[tuple[str, str], Callable[[Any], tuple[Any, ...]]] = {
    (OURS, WINDOWS): lambda batch: (batch["act"], batch["rew"], batch["obs"][:, :LENGTH]),
    ("TorchRL", WINDOWS): itemgetter("act", ("next", "reward"), "obs"),
    ("flashbax", WINDOWS): lambda batch: itemgetter("act", "rew", "obs")(batch.experience),
    (OURS, GOALS): itemgetter("act", "rew", "obs/observation", "obs/desired_goal"),
    ("cpprb", GOALS): lambda batch: (batch["act"], batch["rew"], batch["obs"][:, :15], batch["goal"]),
    ("Stable-Baselines3", GOALS): lambda batch: (
        *(batch.actions, batch.rewards, *OBSERVED(batch.observations)),
    ),
    ("TorchRL", GOALS): lambda batch: (batch["act"], batch["next", "reward"], *OBSERVED(batch)),
}
