"""Times that can be compared: several workloads, in turns, over many rounds.

A machine is never equally fast for a whole minute: clocks change and neighbours wake up. So every workload
has a short slot in every round, the order is drawn anew for each round, and a ratio is taken inside a
round, where both sides met the same machine. What is reported is the median over the rounds and the two
quartiles, which one slow round can't move.

Left out: the machine's own noise is not removed, only shown; pin the clock and empty the machine for that.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Self

import numpy as np
import numpy.typing as npt

Workload = Callable[[], object]
"""One operation to be timed: called without arguments, its result is thrown away."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """The middle of many figures: half of them lie between `lower` and `upper`.

    Example:
        >>> Spread.of(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
        Spread(lower=2.0, median=3.0, upper=4.0)
    """

    lower: float
    median: float
    upper: float

    @classmethod
    def of(cls, figures: FloatArray) -> Self:
        """Take the quartiles of `figures`, float64[rounds]."""
        lower, median, upper = np.quantile(figures, (0.25, 0.5, 0.75))
        return cls(float(lower), float(median), float(upper))


class RemoteWorkload:
    """A workload in another process, with the clock there: the way to it is no part of the operation."""

    def __init__(self, timed: Callable[[int], float]) -> None:
        """Take what makes this many calls there and returns their seconds."""
        self.timed = timed

    def __call__(self) -> float:
        return self.timed(1)


def seconds_for(workload: Workload, calls: int) -> float:
    """Call a workload this many times in a row, and return the seconds of all calls together."""
    if isinstance(workload, RemoteWorkload):
        return workload.timed(calls)
    repetitions = range(calls)
    start = perf_counter()
    for _ in repetitions:
        workload()
    return perf_counter() - start


def calls_that_fill(workload: Workload, slot_seconds: float) -> int:
    """Warm a workload up, and find how many calls fill a slot (at least one).

    Compilation, first touches of memory and cold caches happen here, apart from what is measured.
    """
    seconds_for(workload, 3)
    calls = 1
    # The minimum of three: a neighbour who wakes up just then must not make a slot of one cold call.
    while (elapsed := min(seconds_for(workload, calls) for _ in range(3))) < slot_seconds / 2:
        calls *= 2
    return max(1, round(calls * slot_seconds / elapsed))


def measure(
    workloads: Mapping[str, Workload], *, rounds: int, slot_seconds: float = 0.005
) -> dict[str, FloatArray]:
    """Time all workloads in turns.

    Args:
        workloads: Name → operation.
        rounds: How many slots each workload gets; each round has an order of its own, the same in every run.
        slot_seconds: The length of a slot; a workload is called as often as it fits, and at least once.

    Returns:
        Name → float64[rounds], seconds per call; figures of the same round stand at the same place.

    Raises:
        ValueError: If rounds is below 1.
    """
    if rounds < 1:
        raise ValueError(f"measure() needs at least 1 round, got {rounds}")
    names = list(workloads)
    calls = {name: calls_that_fill(workloads[name], slot_seconds) for name in names}
    seconds = {name: np.empty(rounds) for name in names}
    collecting = gc.isenabled()
    # As timeit does: a collection would land on whichever workload runs just then.
    gc.disable()
    rng = np.random.default_rng(0)
    try:
        for round_number in range(rounds):
            # Drawn, not rotated: in a rotation each finds the caches as the same neighbour left them.
            for name in rng.permutation(names).tolist():
                seconds[name][round_number] = seconds_for(workloads[name], calls[name]) / calls[name]
    finally:
        if collecting:
            gc.enable()
    return seconds
