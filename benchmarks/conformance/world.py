"""The id world: the steps of `cases.json`, whose observations say where they belong.

An observation is (environment, episode, step), and every step has another reward. So a sampled row shows by
itself whether it is right.
"""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

Id = tuple[int, ...]
CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))


class Step(NamedTuple):
    """A step of an environment, as gymnasium returns it."""

    environment: int
    episode: int
    step: int
    terminated: bool
    truncated: bool

    @property
    def obs(self) -> Id:
        """The observation before the action."""
        return self.environment, self.episode, self.step

    @property
    def next_obs(self) -> Id:
        """The observation after the action; the final one at the end of an episode, not that of the reset."""
        return self.environment, self.episode, self.step + 1

    @property
    def reward(self) -> float:
        """A reward that no other step has."""
        return 10_000.0 * self.environment + 100.0 * self.episode + self.step + 1

    @property
    def ended(self) -> bool:
        """Whether the episode ends here."""
        return self.terminated or self.truncated


class Target(NamedTuple):
    """An n-step target: reward + discount · Q(next_obs)."""

    reward: float
    next_obs: Id
    discount: float
    end: str  # "terminated", "truncated", "inside" an episode, or "newest": the rest is not known yet


def step_of(place: tuple[int, int, int], terminated: bool, truncated: bool) -> Step:
    """Return the step with this observation."""
    environment, episode, step = place
    return Step(environment, episode, step, terminated, truncated)


STREAMS = [  # by environment
    [step_of(step["obs"], step["terminated"], step["truncated"]) for step in stream]
    for stream in CASES["steps"]
]
TARGETS = {tuple(step["obs"]): step["targets"] for stream in CASES["steps"] for step in stream}
# (environment, episode) → number of steps
LENGTHS = Counter((step.environment, step.episode) for stream in STREAMS for step in stream)
LONGEST = max(LENGTHS.values())


def world(count: int, environments: int = 1, truncation: bool = True) -> list[list[Step]]:
    """Return `count` steps of a vector environment, each a list of one `Step` per environment.

    Without `truncation`, truncated episodes terminate instead.
    """
    ticks = [list(tick) for tick in zip(*STREAMS[:environments], strict=True)][:count]
    if truncation:
        return ticks
    return [[step._replace(terminated=step.ended, truncated=False) for step in tick] for tick in ticks]


def target(stream: list[Step], start: int, n: int) -> Target:
    """Return the target of the step `stream[start]`, where `stream` is all that one environment has done."""
    window = stream[start : start + n]
    reward, discount, next_obs = TARGETS[stream[start].obs][len(window) - 1]
    last = next((step for step in window if step.ended), window[-1])
    ends = {"terminated": last.terminated, "truncated": last.truncated, "inside": len(window) == n}
    end = next((end for end, reached in ends.items() if reached), "newest")
    return Target(reward, tuple(next_obs), discount, end)


MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")  # gymnasium.vector.AutoresetMode


class VectorStep(NamedTuple):
    """A step of gymnasium's `VectorEnv`: the observations before it and what it returned, by environment."""

    obs: list[Id]
    next_obs: list[Id]
    reward: list[float]
    terminated: list[bool]
    truncated: list[bool]
    final_obs: list[Id | None]  # infos["final_obs"], with SAME_STEP
    only_reset: list[bool]  # with NEXT_STEP, whether the episode had ended before this step


def vector_steps(streams: list[list[Step]], mode: str) -> list[VectorStep]:
    """Return what a vector environment in this autoreset mode returns for these steps of each environment.

    It ends with the first environment that has no further step.
    """
    columns: list[list[tuple[Any, ...]]] = []
    for stream in streams:
        column: list[tuple[Any, ...]] = []
        for step, following in pairwise(stream):
            reset = step.ended and mode == "SAME_STEP"
            after, final = (following.obs, step.next_obs) if reset else (step.next_obs, None)
            column.append((step.obs, after, step.reward, step.terminated, step.truncated, final, False))
            if step.ended and mode == "NEXT_STEP":
                column.append((step.next_obs, following.obs, 0.0, False, False, None, True))
        columns.append(column)
    return [VectorStep(*map(list, zip(*entries, strict=True))) for entries in zip(*columns, strict=False)]
