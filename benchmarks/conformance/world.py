"""The id world: steps whose observations say where they belong, in plain lists.

An observation is (environment, episode, step), and every step has another reward. So a sampled row shows by
itself whether it is right, and the oracle shares no code with any buffer.
"""

from itertools import pairwise
from typing import Any, NamedTuple

Id = tuple[int, ...]
LENGTHS = (5, 1, 3, 7, 2, 4)  # of consecutive episodes, in steps


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


def world(count: int, environments: int = 1, truncation: bool = True) -> list[list[Step]]:
    """Return `count` steps of a vector environment, each a list of one `Step` per environment.

    A new episode follows an ended one in the next step. Episodes terminate and are truncated in turn, or
    always terminate without `truncation`.
    """
    streams: list[list[Step]] = []
    for environment in range(environments):
        stream: list[Step] = []
        episode = 0
        while len(stream) < count:
            length = LENGTHS[(episode + environment) % len(LENGTHS)]
            cut_off = truncation and episode % 2 == 1
            for step in range(length):
                last = step == length - 1
                stream.append(Step(environment, episode, step, last and not cut_off, last and cut_off))
            episode += 1
        streams.append(stream[:count])
    return [list(tick) for tick in zip(*streams, strict=True)]


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


class Target(NamedTuple):
    """An n-step target: reward + discount · Q(next_obs)."""

    reward: float
    next_obs: Id
    discount: float
    end: str  # "terminated", "truncated", "inside" an episode, or "newest": the rest is not known yet


def target(stream: list[Step], start: int, n: int, gamma: float) -> Target:
    """Return the target of the step `stream[start]`, where `stream` is all that one environment has done."""
    reward = 0.0
    for k, step in enumerate(stream[start : start + n]):
        reward += gamma**k * step.reward
        if step.terminated:
            return Target(reward, step.next_obs, 0.0, "terminated")
        if step.truncated:
            return Target(reward, step.next_obs, gamma ** (k + 1), "truncated")
    taken = min(n, len(stream) - start)
    last = stream[start + taken - 1]
    return Target(reward, last.next_obs, gamma**taken, "inside" if taken == n else "newest")
