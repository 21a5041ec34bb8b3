"""`python -m replay_tutorial bench ceiling`: how far our calls are from what the machine allows.

The bare workloads are what nobody can do without: take random rows, walk down the tree, set leaves, write a
row. They are called on prepared arguments, without drawing, checks or weights. Our public calls take turns
with them in every round, and a ratio is taken inside a round. What a call needs several of, one after the
other, is one workload as well: alone, each has the caches for itself.

Left out: why a ratio is what it is; ask a profiler.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

import replay_tutorial
from replay_tutorial.bench.method.markdown import spread_text, table
from replay_tutorial.bench.method.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.timing import FloatArray, Spread, Workload, measure
from replay_tutorial.bench.one_process.operations import CHUNK, LEARNER_BATCH
from replay_tutorial.bench.peers.peer import ALPHA, FIELDS, OURS, Ceiling, Library, random_rows
from replay_tutorial.buffers.fields import Fields, as_bytes
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.buffers.rows import take_rows
from replay_tutorial.buffers.sum_tree import SumTree, find_leaves, set_leaves

EPS = 1e-4  # the default of the buffer
# Long, or the workloads that are called more often in a slot would find warmer caches.
SLOT_SECONDS = 0.05
TAKE_NUMPY, TAKE_KERNEL = f"np.take of {LEARNER_BATCH} rows", f"take_rows of {LEARNER_BATCH} rows"
DESCENT, SETTING = f"find_leaves of {LEARNER_BATCH} queries", f"set_leaves of {LEARNER_BATCH} masses"
FIND_TAKE, FIND_TAKE_SET = "find_leaves, take_rows", "find_leaves, take_rows, set_leaves"
WRITE_ONE, WRITE_CHUNK = "write 1 record", f"write {CHUNK} rows, a slice per field"
UNIFORM, PAIR = f"sample {LEARNER_BATCH}, uniform", f"sample {LEARNER_BATCH} + update, prioritized"


@dataclass(frozen=True)
class Target:
    """At most this many times the time of bare workloads; without a number, the ratio is only reported."""

    operation: str
    bare: tuple[str, ...]  # their times are added
    at_most: float | None = None


TARGETS = (
    Target(UNIFORM, (TAKE_NUMPY,), 1.5),
    Target(UNIFORM, (TAKE_KERNEL,)),
    Target(PAIR, (FIND_TAKE,), 2.0),
    Target(PAIR, (FIND_TAKE_SET,)),
    Target(PAIR, (DESCENT, TAKE_KERNEL)),
    Target("add 1, uniform", (WRITE_ONE,), 2.5),
    Target("add 1, prioritized", (WRITE_ONE,), 2.5),
    Target(f"add {CHUNK}, uniform", (WRITE_CHUNK,)),
    Target(f"add {CHUNK}, prioritized", (WRITE_CHUNK,)),
)


@dataclass(frozen=True)
class Share:
    """What was measured of one target."""

    target: Target
    times: Spread  # our time / the bare workloads', taken round by round

    @property
    def met(self) -> str:
        """Whether the median meets the target."""
        if self.target.at_most is None:
            return ""
        return "yes" if self.times.median <= self.target.at_most else "no"


def our_workloads(capacity: int) -> dict[str, Workload]:
    """Return the public calls, on full buffers."""
    ours, rng = Library(OURS, replay_tutorial, capacity), np.random.default_rng(2)
    # With buffers of its own, or the next sample would put the rows of a whole slot of adds into the tree.
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


def bare_workloads(capacity: int) -> dict[str, Workload]:
    """Return what nobody can do without, on memory of its own."""
    ceiling, rng = Ceiling(capacity), np.random.default_rng(2)
    return {
        TAKE_NUMPY: ceiling.sampling(LEARNER_BATCH, prioritized=False),
        **kernel_workloads(capacity, rng),
        WRITE_ONE: ceiling.adding(random_rows(rng, None), prioritized=False),
        WRITE_CHUNK: ceiling.adding(random_rows(rng, CHUNK), prioritized=False),
    }


def kernel_workloads(capacity: int, rng: np.random.Generator) -> dict[str, Workload]:
    """Return our kernels by themselves, and those of a sample and its update one after the other."""
    rows = np.ones(capacity, Fields({name: {"shape": shape} for name, shape in FIELDS.items()}).dtype)
    stored = as_bytes(rows)
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
        copies = np.empty((LEARNER_BATCH, stored.shape[1]), np.uint8)
        take_rows(stored, slots, copies)
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
    """Draw masses as |TD errors| make them."""
    return (rng.exponential(size=count) + EPS) ** ALPHA


def shares_of(seconds: dict[str, FloatArray]) -> list[Share]:
    """Compare our calls with the bare workloads, round by round."""
    shares: list[Share] = []
    for target in TARGETS:
        bare = np.sum([seconds[name] for name in target.bare], axis=0)
        shares.append(Share(target, Spread.of(seconds[target.operation] / bare)))
    return shares


def lines_of(times: dict[str, Spread], shares: list[Share]) -> list[str]:
    """Return both tables."""
    rows = [
        [
            share.target.operation,
            " + ".join(share.target.bare),
            spread_text(share.times),
            f"{share.target.at_most:g}" if share.target.at_most else "",
            share.met,
        ]
        for share in shares
    ]
    workloads = table(["workload", "µs"], [[name, spread_text(spread)] for name, spread in times.items()])
    return [*workloads, "", *table(["our call", "against", "times", "at most", "met"], rows, words=2)]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0. A missed target is only reported."""
    parser = new_parser("ceiling", "Measure our calls beside the bare kernels.")
    add_count(parser, "--capacity", 2**20, "rows", minimum=CHUNK)
    add_count(parser, "--rounds", 100, "of each")
    add_outputs(parser, "ceiling")
    arguments = parser.parse_args(argv)
    workloads = our_workloads(arguments.capacity) | bare_workloads(arguments.capacity)
    seconds = measure(workloads, rounds=arguments.rounds, slot_seconds=SLOT_SECONDS)
    times = {name: Spread.of(rounds * 1e6) for name, rounds in seconds.items()}
    shares = shares_of(seconds)
    fields = " + ".join(map(str, FIELDS.values()))
    about = (
        f"Medians of {arguments.rounds} interleaved rounds, quartiles in brackets; ratios are taken inside "
        f"each round. Capacity {arguments.capacity:,}, full; rows of {fields} float32."
    )
    body = {
        "capacity": arguments.capacity,
        "rounds": arguments.rounds,
        "microseconds": times,
        "shares": [{**asdict(share), "met": share.met} for share in shares],
    }
    provenance = Provenance.of("ceiling", argv)
    return hand_over(arguments, "ceiling", provenance, body, lines_of(times, shares), about)
