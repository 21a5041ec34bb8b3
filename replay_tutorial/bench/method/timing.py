"""Takes times that can be compared: several works, in turns, over many rounds.

A machine is never equally fast for a whole minute: clocks change and neighbours wake up. So every contender
has a short slot in every round, the order is drawn anew for each round, and a ratio is taken inside a round,
where both sides met the same machine. What is reported is the median over the rounds and the two quartiles,
which one slow round can't move.

Left out: the machine's own noise is not removed, only shown; pin the clock and empty the machine for that.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Self

import numpy as np
import numpy.typing as npt

Work = Callable[[], object]
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
        """Takes the quartiles of `figures`, float64[rounds]."""
        lower, median, upper = np.quantile(figures, (0.25, 0.5, 0.75))
        return cls(float(lower), float(median), float(upper))


class ElsewhereWork:
    """A work of another process, with the clock there: the way to it is no part of the operation."""

    def __init__(self, timed: Callable[[int], float]) -> None:
        """Take what does the work so many times, and returns the seconds."""
        self.timed = timed

    def __call__(self) -> float:
        return self.timed(1)


def seconds_for(work: Work, calls: int) -> float:
    """Calls `work` that many times in a row and returns the seconds of all of them together."""
    if isinstance(work, ElsewhereWork):
        return work.timed(calls)
    repetitions = range(calls)
    start = perf_counter()
    for _ in repetitions:
        work()
    return perf_counter() - start


def calls_that_fill(work: Work, slot_seconds: float) -> int:
    """Warms `work` up and finds how many calls fill a slot (at least one).

    Compilation, first touches of memory and cold caches happen here, apart from what is measured.
    """
    seconds_for(work, 3)
    calls = 1
    # The least of three: a neighbour who wakes up just then must not make a slot of one cold call.
    while (elapsed := min(seconds_for(work, calls) for _ in range(3))) < slot_seconds / 2:
        calls *= 2
    return max(1, round(calls * slot_seconds / elapsed))


def measure(works: Mapping[str, Work], *, rounds: int, slot_seconds: float = 0.005) -> dict[str, FloatArray]:
    """Times all works in turns.

    Args:
        works: name → operation.
        rounds: how many slots each work gets; each round has an order of its own, the same in every run.
        slot_seconds: the length of a slot; a work is called as often as it fits, and at least once.

    Returns:
        name → float64[rounds], seconds a call; figures of the same round stand at the same place.

    Raises:
        ValueError: rounds is below 1.
    """
    if rounds < 1:
        raise ValueError(f"measure() needs at least 1 round, got {rounds}")
    names = list(works)
    calls = {name: calls_that_fill(works[name], slot_seconds) for name in names}
    seconds = {name: np.empty(rounds) for name in names}
    collecting = gc.isenabled()
    gc.disable()  # as timeit does: a collection would land on whoever is at work just then
    rng = np.random.default_rng(0)
    try:
        for round_number in range(rounds):
            # Drawn, not rotated: in a rotation everybody always finds the caches as the same neighbour left them.
            for name in rng.permutation(names).tolist():
                seconds[name][round_number] = seconds_for(works[name], calls[name]) / calls[name]
    finally:
        if collecting:
            gc.enable()
    return seconds
