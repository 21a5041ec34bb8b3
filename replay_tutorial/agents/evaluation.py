"""Evaluation: how good is a policy, on episodes that it has never seen?

A policy is chosen because its evaluation came out well, so that evaluation flatters it. Hence two rules: the number that
is reported comes from episodes whose seeds played no part in choosing, and it is given with its spread. All episodes are
stepped together, one forward pass for all of them, because a pass costs the same for one observation as for a hundred.

Left out: random no-op starts, videos, several policies at once.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.environments import make_environment, playable

# observations [episodes, ...] → actions [episodes, ...]
Acting = Callable[[NDArray[Any]], NDArray[Any]]


class Evaluation(NamedTuple):
    """The returns of some episodes, undiscounted."""

    returns: NDArray[np.float64]  # float64[episodes], in the order of the seeds
    cut: int = 0  # episodes that were cut at the step limit, with what they had brought until then

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; infinite for a single episode, which tells nothing about the spread."""
        if len(self.returns) < 2:
            return float("inf")
        return float(self.returns.std(ddof=1) / np.sqrt(len(self.returns)))

    @property
    def lower_bound(self) -> float:
        """The mean less three standard errors: what is left when luck is taken off."""
        return self.mean - 3.0 * self.standard_error

    def __str__(self) -> str:
        """Return one line: `mean 498.2 ± 0.9 (standard error; lowest 431.0, highest 500.0, 100 episodes)`."""
        low, high = self.returns.min(), self.returns.max()
        cut = f", {self.cut} cut at the step limit" if self.cut else ""
        return (
            f"mean {self.mean:.1f} ± {self.standard_error:.1f} "
            f"(standard error; lowest {low:.1f}, highest {high:.1f}, {len(self.returns)} episodes{cut})"
        )


def evaluate(
    act: Acting, environment: str, seeds: Sequence[int], step_limit: int | None = None
) -> Evaluation:
    """Play one episode for each seed and return what each brought.

    The same policy and seeds bring the same returns.

    Args:
        act: Chooses actions for a batch of observations, as `Policy.act_greedily` does.
        environment: The environment's name.
        seeds: One for each episode, at least one.
        step_limit: Episodes are cut after so many steps, because a greedy policy can get stuck in an environment
            without a time limit of its own; None never cuts.

    Raises:
        ValueError: If there are no seeds.
    """
    if len(seeds) == 0:
        raise ValueError("evaluate needs at least 1 seed: one episode is played for each.")
    environments = [make_environment(environment) for _ in seeds]
    returns = np.zeros(len(seeds))  # float64[episodes]
    observations = [env.reset(seed=int(seed))[0] for env, seed in zip(environments, seeds, strict=True)]
    running = list(range(len(seeds)))
    steps = count(1) if step_limit is None else range(1, step_limit + 1)
    for _ in steps:
        if not running:
            break
        actions = act(np.stack([observations[episode] for episode in running]))
        still_running: list[int] = []
        for episode, action in zip(running, playable(actions), strict=True):
            observations[episode], reward, terminated, truncated, _ = environments[episode].step(action)
            returns[episode] += float(reward)
            if not (terminated or truncated):
                still_running.append(episode)
        running = still_running
    for env in environments:
        env.close()
    return Evaluation(returns, cut=len(running))


def draw_seeds(seed: np.random.SeedSequence, count: int) -> list[int]:
    """Draw `count` different seeds, so that parts of the list share no episode."""
    generator = np.random.default_rng(seed)
    return generator.choice(2**31, size=count, replace=False).tolist()
