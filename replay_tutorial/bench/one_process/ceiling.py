"""`python -m replay_tutorial bench ceiling`: how far our calls are from what the machine allows.

The bare works are what nobody can do without: take random rows, walk down the tree, set leaves, write a row. They are
called on prepared arguments, without drawing, checks or weights. Our public calls take turns with them in every
round, and a share is taken inside a round. What a call needs several of, one after the other, is one work as well:
alone, each has the caches for itself.

Left out: why a share is what it is; a profiler tells that.
"""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import replay_tutorial
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.record import add_outputs, at_least, hand_over, table
from replay_tutorial.bench.method.report import spread_text
from replay_tutorial.bench.method.timing import FloatArray, Spread, Work, measure
from replay_tutorial.bench.one_process.buffers import CHUNK, LEARNER_BATCH
from replay_tutorial.bench.peers.lineup import ALPHA, FIELDS, OURS, Ceiling, Library, random_rows
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.buffers.rows import take_rows
from replay_tutorial.buffers.sum_tree import SumTree, find_leaves, set_leaves

PROGRAM = "python -m replay_tutorial bench ceiling"
EPS = 1e-4  # the default of the buffer
SLOT_SECONDS = 0.05  # long: else the works that are called more often in a slot would find warmer caches
TAKE_NUMPY, TAKE_KERNEL = f"np.take of {LEARNER_BATCH} rows", f"take_rows of {LEARNER_BATCH} rows"
DESCENT, SETTING = f"find_leaves of {LEARNER_BATCH} queries", f"set_leaves of {LEARNER_BATCH} masses"
FIND_TAKE, FIND_TAKE_SET = "find_leaves, take_rows", "find_leaves, take_rows, set_leaves"
WRITE_ONE, WRITE_CHUNK = "write 1 record", f"write {CHUNK} rows, a slice a field"
UNIFORM, PAIR = f"sample {LEARNER_BATCH}, uniform", f"sample {LEARNER_BATCH} + update, prioritized"


@dataclass(frozen=True)
class Promise:
    """At most so many times the time of bare works; without a number, it is only told."""

    operation: str
    bare: tuple[str, ...]  # their times are added
    most: float | None = None


PROMISES = (
    Promise(UNIFORM, (TAKE_NUMPY,), 1.5),
    Promise(UNIFORM, (TAKE_KERNEL,)),
    Promise(PAIR, (FIND_TAKE,), 2.0),
    Promise(PAIR, (FIND_TAKE_SET,)),
    Promise(PAIR, (DESCENT, TAKE_KERNEL)),
    Promise("add 1, uniform", (WRITE_ONE,), 2.5),
    Promise("add 1, prioritized", (WRITE_ONE,), 2.5),
    Promise(f"add {CHUNK}, uniform", (WRITE_CHUNK,)),
    Promise(f"add {CHUNK}, prioritized", (WRITE_CHUNK,)),
)


@dataclass(frozen=True)
class Share:
    """What was measured of one promise."""

    promise: Promise
    times: Spread  # our time / the bare works', taken round by round

    @property
    def verdict(self) -> str:
        """Whether the median keeps the promise."""
        if self.promise.most is None:
            return ""
        return "yes" if self.times.median <= self.promise.most else "no"


def our_works(capacity: int) -> dict[str, Work]:
    """The public calls, on full buffers."""
    ours, rng = Library(OURS, replay_tutorial, capacity), np.random.default_rng(2)
    # With buffers of their own: else the next sample would take in the rows of a whole slot of adds.
    other = Library(OURS, replay_tutorial, capacity)
    one, chunk = random_rows(rng, None), random_rows(rng, CHUNK)
    return {
        UNIFORM: ours.sampling(LEARNER_BATCH, prioritized=False),
        PAIR: ours.updating(LEARNER_BATCH),
        "add 1, uniform": other.adding(one, prioritized=False),
        "add 1, prioritized": other.adding(one, prioritized=True),
        f"add {CHUNK}, uniform": other.adding(chunk, prioritized=False),
        f"add {CHUNK}, prioritized": other.adding(chunk, prioritized=True),
    }


def bare_works(capacity: int) -> dict[str, Work]:
    """What nobody can do without, on memory of its own."""
    ceiling, rng = Ceiling(capacity), np.random.default_rng(2)
    return {
        TAKE_NUMPY: ceiling.sampling(LEARNER_BATCH, prioritized=False),
        **kernel_works(capacity, rng),
        WRITE_ONE: ceiling.adding(random_rows(rng, None), prioritized=False),
        WRITE_CHUNK: ceiling.adding(random_rows(rng, CHUNK), prioritized=False),
    }


def kernel_works(capacity: int, rng: np.random.Generator) -> dict[str, Work]:
    """Our kernels by themselves, and those of a sample and its update one after the other."""
    rows = np.ones(capacity, Fields({name: {"shape": shape} for name, shape in FIELDS.items()}).dtype)
    words = rows.view(np.uint64).reshape(capacity, -1)  # uint64[capacity, words of a row]
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), random_masses(rng, capacity))
    # Twice as many rows as there are, or they would be answered from the cache.
    count = max(1, 2 * capacity // LEARNER_BATCH)
    drawn = itertools.cycle(list(rng.integers(0, capacity, (count, LEARNER_BATCH))))
    stratified = (np.arange(LEARNER_BATCH) + rng.random((count, LEARNER_BATCH))) / LEARNER_BATCH
    # Places in the total, which changes with the masses.
    places: Iterator[FloatArray] = itertools.cycle(list(stratified))
    masses = itertools.cycle([random_masses(rng, LEARNER_BATCH) for _ in range(256)])

    def find() -> Integers:
        slots, _ = find_leaves(tree.sums, next(places) * tree.total)
        return slots

    def take(slots: Integers) -> Integers:
        take_rows(words, slots, np.empty((LEARNER_BATCH, words.shape[1]), np.uint64))
        return slots

    def set_masses(slots: Integers) -> None:
        set_leaves(tree.sums, tree.minima, slots, next(masses))

    return {
        TAKE_KERNEL: lambda: take(next(drawn)),
        DESCENT: find,
        SETTING: lambda: set_masses(next(drawn)),
        FIND_TAKE: lambda: take(find()),
        FIND_TAKE_SET: lambda: set_masses(take(find())),
    }


def random_masses(rng: np.random.Generator, count: int) -> FloatArray:
    """Floats as |TD errors| make them."""
    return (rng.exponential(size=count) + EPS) ** ALPHA


def shares_of(seconds: dict[str, FloatArray]) -> list[Share]:
    """Compare our calls with the bare works, round by round."""
    shares: list[Share] = []
    for promise in PROMISES:
        bare = np.sum([seconds[name] for name in promise.bare], axis=0)
        shares.append(Share(promise, Spread.of(seconds[promise.operation] / bare)))
    return shares


def lines_of(times: dict[str, Spread], shares: list[Share]) -> list[str]:
    """Both tables."""
    bare = [[name, spread_text(spread)] for name, spread in times.items()]
    promised = [
        [
            share.promise.operation,
            " + ".join(share.promise.bare),
            spread_text(share.times),
            f"{share.promise.most:g}" if share.promise.most else "",
            share.verdict,
        ]
        for share in shares
    ]
    heads = ["our call", "against", "times", "at most", "kept"]
    return [*table(["work", "µs"], bare), "", *table(heads, promised, words=2), ""]


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark.

    Args:
        argv: What follows `bench ceiling` on the command line.

    Returns:
        The exit status: 0, or 1 if the table could not be written. A promise that is not kept is only told.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Measure our calls beside the bare kernels.")
    parser.add_argument("--capacity", type=at_least(1), default=2**20, help="rows (default: %(default)s)")
    parser.add_argument("--rounds", type=at_least(1), default=100, help="of each (default: %(default)s)")
    add_outputs(parser, "ceiling")
    arguments = parser.parse_args(argv)
    if arguments.capacity < CHUNK:
        parser.error(f"--capacity {arguments.capacity}: {CHUNK} rows are added at once")
    seconds = measure(
        our_works(arguments.capacity) | bare_works(arguments.capacity),
        rounds=arguments.rounds,
        slot_seconds=SLOT_SECONDS,
    )
    times = {name: Spread.of(rounds * 1e6) for name, rounds in seconds.items()}
    shares = shares_of(seconds)
    fields = " + ".join(str(shape) for shape in FIELDS.values())
    about = (
        f"Medians of {arguments.rounds} interleaved rounds, quartiles in brackets; ratios are taken inside each "
        f"round. Capacity {arguments.capacity:,}, full; rows of {fields} float32."
    )
    body: dict[str, Any] = {
        "capacity": arguments.capacity,
        "rounds": arguments.rounds,
        "microseconds": {name: asdict(spread) for name, spread in times.items()},
        "shares": [asdict(share) | {"kept": share.verdict} for share in shares],
    }
    provenance = Provenance.of(PROGRAM, argv)
    return hand_over(arguments, "ceiling", provenance, body, [*lines_of(times, shares), about])
