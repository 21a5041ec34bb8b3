"""How long does a call take? The shortest of several slots: what is longer was somebody else's work.

Left out: comparisons. Two things are compared in turns (`ladder`, and the benchmarks).
"""

from replay_tutorial.measuring.timing import Workload, calls_that_fill, seconds_for

SLOTS, SLOT_SECONDS = 5, 0.01


def microseconds(call: Workload) -> float:
    """Return the microseconds of one call, made as often as it fits into five slots of 10 ms."""
    calls = calls_that_fill(call, SLOT_SECONDS)
    return min(seconds_for(call, calls) for _ in range(SLOTS)) / calls * 1e6
