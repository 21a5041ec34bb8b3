"""Scores of training runs: the score of one seed, and statistics over several seeds.

Returns vary widely between seeds and are not normally distributed. The interquartile mean drops the lowest
and the highest quarter, so it is robust to outliers and still uses more of the scores than the median does.
Its confidence interval is estimated by the bootstrap: resampling the seeds with replacement.

Paper: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", section 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True)
class Score:
    """The result of one run of one agent."""

    seed: int
    mean: float  # return of 100 greedy episodes
    seconds: float  # learning time, including the evaluations that select the policy
    seconds_to_target: float | None  # until the first evaluation at the target; None if none reached it
    steps: int
    end: str


@dataclass(frozen=True)
class Summary:
    """Statistics over the scores of one agent."""

    interquartile_mean: float
    interval: tuple[float, float]  # 95%
    median_seconds: float
    median_seconds_to_target: float | None  # None if half of the seeds never reached the target
    reached: int  # number of seeds with a score at or above the target
    scores: list[Score] = field(default_factory=list[Score])


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest quarter of the values, each rounded down.

    Example:
        >>> interquartile_mean([0.0, 10.0, 12.0, 1000.0])
        11.0
    """
    ordered = sorted(values)
    left_out = len(ordered) // 4
    return float(np.mean(ordered[left_out : len(ordered) - left_out]))


def interval_of(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the interquartile mean, from 10,000 resamples."""
    generator = np.random.default_rng(seed)
    drawn = generator.choice(np.asarray(values), size=(RESAMPLES, len(values)))
    left_out = len(values) // 4
    means = np.sort(drawn, axis=1)[:, left_out : len(values) - left_out].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def summary_of(scores: list[Score], target: float) -> Summary:
    """Return the statistics over the scores of one agent."""
    means = [score.mean for score in scores]
    to_target = [np.inf if score.seconds_to_target is None else score.seconds_to_target for score in scores]
    median_to_target = float(np.median(to_target))
    return Summary(
        interquartile_mean=interquartile_mean(means),
        interval=interval_of(means),
        median_seconds=float(np.median([score.seconds for score in scores])),
        median_seconds_to_target=median_to_target if np.isfinite(median_to_target) else None,
        reached=sum(mean >= target for mean in means),
        scores=scores,
    )
