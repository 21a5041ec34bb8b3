"""Comparable timings of several workloads in interleaved rounds.

The speed of a machine changes with its clock rate and with other processes. So every workload runs for a
short slot in every round, in random order, and ratios are computed within a round. The median and the
quartiles over the rounds are robust to single slow rounds.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Self

import numpy as np
import numpy.typing as npt

Workload = Callable[[], object]
"""An operation to time: called without arguments; its result is ignored."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles of a sample.

    Example:
        >>> Spread.of(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
        Spread(lower=2.0, median=3.0, upper=4.0)
    """

    lower: float
    median: float
    upper: float

    @classmethod
    def of(cls, figures: FloatArray) -> Self:
        """Return the median and the quartiles of `figures`, float64[rounds]."""
        lower, median, upper = np.quantile(figures, (0.25, 0.5, 0.75))
        return cls(float(lower), float(median), float(upper))


class SelfTimed:
    """A workload in another process, timed there so that communication isn't measured."""

    def __init__(self, timed: Callable[[int], float]) -> None:
        """Create a workload from a function that makes `n` calls and returns their total seconds."""
        self.timed = timed

    def __call__(self) -> float:
        return self.timed(1)


def seconds_for(workload: Workload, calls: int) -> float:
    """Return the total seconds of `calls` consecutive calls of a workload."""
    if isinstance(workload, SelfTimed):
        return workload.timed(calls)
    repetitions = range(calls)
    start = perf_counter()
    for _ in repetitions:
        workload()
    return perf_counter() - start


def calls_that_fill(workload: Workload, slot_seconds: float) -> int:
    """Return the number of calls that fill a slot, at least 1.

    This also warms up the workload: compilation, page faults and cache misses happen here.
    """
    seconds_for(workload, 3)
    calls = 1
    # The minimum of three, because another process may slow a single attempt down.
    while (elapsed := min(seconds_for(workload, calls) for _ in range(3))) < slot_seconds / 2:
        calls *= 2
    return max(1, round(calls * slot_seconds / elapsed))


def measure(
    workloads: Mapping[str, Workload], *, rounds: int, slot_seconds: float = 0.005
) -> dict[str, FloatArray]:
    """Time all workloads in interleaved rounds.

    Args:
        workloads: Name → operation.
        rounds: Number of rounds. The order within each round is random, with a fixed seed.
        slot_seconds: Duration of a workload's slot in a round; a slot has at least one call.

    Returns:
        Name → float64[rounds], seconds per call.

    Raises:
        ValueError: If `rounds` is less than 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    names = list(workloads)
    calls = {name: calls_that_fill(workloads[name], slot_seconds) for name in names}
    seconds = {name: np.empty(rounds) for name in names}
    collecting = gc.isenabled()
    # As in timeit: a collection would slow down an arbitrary workload.
    gc.disable()
    rng = np.random.default_rng(0)
    try:
        for round_number in range(rounds):
            # Random, because in a rotation every workload would always follow the same one in the caches.
            for name in rng.permutation(names).tolist():
                seconds[name][round_number] = seconds_for(workloads[name], calls[name]) / calls[name]
    finally:
        if collecting:
            gc.enable()
    return seconds
