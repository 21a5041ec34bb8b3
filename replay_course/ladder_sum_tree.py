"""The ladder of prioritized sampling, from a linear scan to the package's sum tree.

`find` finds the slots of a batch of random queries, and `set` sets the masses of a batch of random slots. The
batches differ and the versions are interleaved, so that repeated queries don't keep nodes in the cache. The
linear scan is timed with one query, and its time is multiplied. The ceiling reads, or writes, the same number
of random masses with one NumPy call.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from replay_course.ladder import ROUNDS, Ladder, Rung, measure_ladder
from replay_course.steps.prioritized import (
    CompiledSumTree,
    CumulativeSum,
    LevelByLevel,
    LinearScan,
    PlainSumTree,
)
from replay_course.steps.prioritized.overlapping_reads import (
    random_circle,
    read_one_after_the_other,
    read_together,
)
from replay_course.timing import FloatArray, SelfTimed, Workload, measure, seconds_for
from replay_tutorial.buffers.sum_tree import SumTree

RUNGS = (
    Rung(LinearScan, "–"),
    Rung(CumulativeSum, "finds a slot by binary search"),
    Rung(PlainSumTree, "an update changes only one path"),
    Rung(CompiledSumTree, "compiled code"),
    Rung(LevelByLevel, "memory accesses overlap"),
    Rung(SumTree, "three levels per cache line; keeps the smallest mass"),
)
BATCHES = 64  # different batches in turn, so that their nodes are not already in the processor's cache


def filled_masses(kind: Any, capacity: int) -> Any:
    """Return a tree of a class, with random masses."""
    tree, masses = kind(capacity), np.random.default_rng(0).random(capacity)
    if kind is LinearScan:
        tree.masses = masses.tolist()
    elif kind is PlainSumTree:  # bottom-up, because a million updates take seconds
        tree.nodes[tree.leaf_count : tree.leaf_count + capacity] = masses.tolist()
        for node in range(tree.leaf_count - 1, 0, -1):
            tree.nodes[node] = tree.nodes[2 * node] + tree.nodes[2 * node + 1]
    else:
        tree.set(np.arange(capacity), masses)
    return tree


def find_random(tree: Any, batch: int) -> Workload:
    """Return a call that finds the slots of `batch` random points."""
    queries = itertools.cycle(list(np.random.default_rng(0).random((BATCHES, batch)) * tree.total))
    return lambda: tree.find(next(queries))


def set_random(tree: Any, capacity: int, batch: int) -> Workload:
    """Return a call that sets the masses of `batch` random slots."""
    rng = np.random.default_rng(0)
    slots = itertools.cycle(list(rng.integers(capacity, size=(BATCHES, batch))))
    masses = rng.random(batch)
    return lambda: tree.set(next(slots), masses)


def bare_calls(capacity: int, batch: int) -> tuple[Workload, Workload]:
    """Return the ceilings: calls that read and write `batch` random masses."""
    rng = np.random.default_rng(0)
    masses: FloatArray = rng.random(capacity)
    new: FloatArray = rng.random(batch)
    slots = itertools.cycle(list(rng.integers(capacity, size=(BATCHES, batch))))

    def read() -> FloatArray:
        return masses.take(next(slots))

    return read, lambda: masses.put(next(slots), new)


def slow_ladder(capacity: int = 100_000, batch: int = 32) -> Ladder:
    """Measure the two versions without a tree, at a capacity small enough for the linear scan."""

    def workloads_of(kind: Any) -> Mapping[str, Workload]:
        tree = filled_masses(kind, capacity)
        return {f"find {batch}": find_random(tree, batch), f"set {batch}": set_random(tree, capacity, batch)}

    return measure_ladder(RUNGS[:2], workloads_of, {}, rounds=5)


def sum_tree_ladder(
    capacity: int = 2**20, batch: int = 512, rounds: int = ROUNDS, rungs: Sequence[Rung] = RUNGS
) -> Ladder:
    """Measure all versions. The linear scan is timed with one query; its time is multiplied by `batch`."""
    find, put = f"find {batch}", f"set {batch}"

    def workloads_of(kind: Any) -> Mapping[str, Workload]:
        tree = filled_masses(kind, capacity)
        one = find_random(tree, 1)
        scan = SelfTimed(lambda calls: batch * seconds_for(one, calls))
        finds = scan if kind is LinearScan else find_random(tree, batch)
        return {find: finds, put: set_random(tree, capacity, batch)}

    read, write = bare_calls(capacity, batch)
    return measure_ladder(rungs, workloads_of, {find: read, put: write}, rounds)


def nanoseconds_per_read(length: int) -> tuple[float, float]:
    """Return ns per read of an array in random order: dependent reads and independent reads."""
    next_place, places = random_circle(length)
    ways = [lambda: read_one_after_the_other(next_place), lambda: read_together(next_place, places)]
    waiting, together = (min(seconds_for(way, 1) for _ in range(4)) for way in ways)
    return waiting / length * 1e9, together / length * 1e9


def microseconds_at(
    capacities: list[int], kinds: list[Callable[[int], Any]], batch: int
) -> dict[str, list[float]]:
    """Measure `find` at several capacities: class name → µs per batch."""
    found: dict[str, list[float]] = {kind.__name__: [] for kind in kinds}
    for capacity in capacities:
        calls = {kind.__name__: find_random(filled_masses(kind, capacity), batch) for kind in kinds}
        for name, seconds in measure(calls, rounds=ROUNDS).items():
            found[name].append(float(np.median(seconds)) * 1e6)  # as in the ladder
    return found
