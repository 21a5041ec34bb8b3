"""Evaluation: the mean return of a greedy policy, with its standard error.

An evaluation that is used to select a policy is biased upwards. The reported mean therefore comes from
episodes whose seeds were not used for the selection, and it is reported with its standard error. Several
environments are stepped together, because a forward pass costs about the same for a few observations as for
one. Their number is limited, because an environment may be a simulator or a browser.

Left out: random no-op starts, and evaluating several policies at once.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.environments import Environment, make_environment, to_step_actions

NUM_ENVS = 8  # environments; actors use as many by default
# Maps the observations [B, ...] of the B running episodes to actions [B, ...].
ActFunction = Callable[[NDArray[Any]], NDArray[Any]]


class EvaluationStopped(Exception):
    """Raised to stop an evaluation early."""


def stop_when(is_stopped: Callable[[], bool], act: ActFunction) -> ActFunction:
    """Return `action`, wrapped so that it raises `EvaluationStopped` once `is_stopped` returns True."""

    def act_or_stop(observations: NDArray[Any]) -> NDArray[Any]:
        if is_stopped():
            raise EvaluationStopped
        return act(observations)

    return act_or_stop


class Evaluation(NamedTuple):
    """The undiscounted returns of a number of episodes."""

    returns: NDArray[np.float64]  # float64[episodes], in the order of the seeds
    num_truncated: int = 0  # number of episodes stopped at the step limit; their returns are partial

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; infinite for a single episode."""
        if len(self.returns) < 2:
            return float("inf")
        return float(self.returns.std(ddof=1) / np.sqrt(len(self.returns)))

    @property
    def lower_bound(self) -> float:
        """Mean minus three standard errors."""
        return self.mean - 3.0 * self.standard_error

    def __str__(self) -> str:
        """Return one line: `mean 498.2 ± 0.9 (standard error; min 431.0, max 500.0, 100 episodes)`.

        For a single episode, the line contains only the return.
        """
        low, high = self.returns.min(), self.returns.max()
        cut = f", {self.num_truncated} cut at the step limit" if self.num_truncated else ""
        if len(self.returns) == 1:
            return f"return {self.mean:.1f} (1 episode{cut})"
        return (
            f"mean {self.mean:.1f} ± {self.standard_error:.1f} "
            f"(standard error; min {low:.1f}, max {high:.1f}, {len(self.returns)} episodes{cut})"
        )


def evaluate(
    act: ActFunction,
    environment: str,
    seeds: Sequence[int],
    step_limit: int | None = None,
    num_envs: int = NUM_ENVS,
) -> Evaluation:
    """Run one episode per seed and collect the returns.

    The same policy and seeds always produce the same returns.

    Args:
        act: Maps a batch of observations to actions, as `Policy.act_greedily` does.
        environment: Name of the environment.
        seeds: One seed per episode; at least one.
        step_limit: Stop each episode after this many steps, because a greedy policy can get stuck in an
            environment without a time limit. None sets no limit.
        num_envs: Maximum number of environments at a time; each runs one episode after another.

    Raises:
        ValueError: If `seeds` is empty or `num_envs` is below 1.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, not {num_envs}.")
    if len(seeds) == 0:
        raise ValueError(
            "seeds is empty; pass at least one seed, because evaluate runs one episode per seed."
        )
    returns, steps = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)  # [episodes]
    waiting, cut = iter(range(len(seeds))), 0
    playing: list[tuple[int, Environment, Any]] = []  # episode, environment, observation
    with ExitStack() as closing:

        def begin_episode(env: Environment, started: list[tuple[int, Environment, Any]]) -> None:
            if (episode := next(waiting, None)) is not None:
                started.append((episode, env, env.reset(seed=int(seeds[episode]))[0]))

        for _ in range(min(num_envs, len(seeds))):
            env = make_environment(environment)
            closing.callback(env.close)
            begin_episode(env, playing)
        while playing:
            actions = to_step_actions(act(np.stack([observation for _, _, observation in playing])))
            still_playing: list[tuple[int, Environment, Any]] = []
            for (episode, env, _), action in zip(playing, actions, strict=True):
                observation, reward, terminated, truncated, _ = env.step(action)
                returns[episode] += float(reward)
                steps[episode] += 1
                is_over, is_cut = terminated or truncated, steps[episode] == step_limit
                if is_over or is_cut:
                    cut += not is_over
                    begin_episode(env, still_playing)
                else:
                    still_playing.append((episode, env, observation))
            playing = still_playing
    return Evaluation(returns, cut)


def draw_seeds(seed: np.random.SeedSequence, count: int) -> list[int]:
    """Draw `count` distinct seeds, so that no two parts of the list share an episode."""
    generator = np.random.default_rng(seed)
    return generator.choice(2**31, size=count, replace=False).tolist()
