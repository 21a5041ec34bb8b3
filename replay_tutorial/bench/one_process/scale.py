"""`python -m replay_tutorial bench scale`: what a call costs against capacity, and against the batch.

All capacities take turns in every round. A bigger buffer misses the processor's caches more often, which no
algorithm can help; how much that costs is measured too, by bare random reads from as many bytes as the
buffer takes. A call grows worse than logarithmically if, over the upper half of the capacities, the
exponent p of its time ~ capacity ** p is beyond that of log2(capacity) and that of the bare reads together,
by more than TOLERANCE. (A large linear part moves p towards 1, one of the square root towards 0.5.) Against
the batch, a time may grow linearly.

Left out: large rows; they only add the same bytes to every capacity.
"""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.bench.method.markdown import figure, spread_text, table
from replay_tutorial.bench.method.output import add_count, add_outputs, chart_file, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.system_memory import free_memory
from replay_tutorial.bench.method.timing import FloatArray, Spread, Workload, measure
from replay_tutorial.buffers.jit import Integers

BATCH = 64
BATCH_SIZES = tuple(2**power for power in range(3, 13))
BATCH_CAPACITY = 2**20
MIN_POWER, MAX_POWER = 10, 24  # of two
# A row of 8 bytes twice, the trees over 8-byte masses, and a row of two frame numbers with its frame. The
# bare reads take as many bytes again, and the smaller capacities, all there at once, as many as the largest.
BYTES_PER_ROW = 8 + 8 + 20 + 24
TOLERANCE = 0.1
FILL_CHUNK = 2**16
READS = f"{BATCH} bare random reads"
ADD = f"add 1 + sample {BATCH}, prioritized"
FRAMES = "add 1, next_of"
UNIFORM = f"sample {BATCH}, uniform"
PAIR = f"sample {BATCH} + update {BATCH}, prioritized"


class Buffers:
    """A uniform and a prioritized buffer of one capacity, and one that keeps observations once, all full."""

    def __init__(self, capacity: int) -> None:
        """Make them and fill them."""
        self.capacity = capacity
        env_dict = {"obs": {"shape": 2}}
        self.frames = ReplayBuffer(capacity, env_dict, next_of="obs", seed=0)
        self.uniform = ReplayBuffer(capacity, env_dict, seed=0)
        self.prioritized = PrioritizedReplayBuffer(capacity, env_dict, seed=0)
        rng = np.random.default_rng(0)
        for first in range(0, capacity, FILL_CHUNK):
            rows = rng.random((min(FILL_CHUNK, capacity - first), 2), dtype=np.float32)
            self.frames.add(obs=rows, next_obs=np.roll(rows, -1, axis=0))
            self.uniform.add(obs=rows)
            self.prioritized.add(obs=rows, priorities=rng.exponential(size=len(rows)))
            # or the tree would take all of them in at once, with much memory
            self.prioritized.sample(1)

    def workloads(self, batch_size: int) -> dict[str, Workload]:
        """Return the calls to time."""
        rng = np.random.default_rng(1)
        frames, uniform, prioritized = self.frames, self.uniform, self.prioritized
        row = np.ones(2, np.float32)
        many = rng.random((4096, 2), dtype=np.float32)
        steps = itertools.cycle(list(zip(many, np.roll(many, -1, axis=0), strict=True)))
        priorities = itertools.cycle(list(rng.exponential(size=(256, batch_size)).astype(np.float32)))

        def sample_and_update() -> None:
            batch = prioritized.sample(batch_size)
            prioritized.update_priorities(batch["indexes"], next(priorities))

        def add_with_frames() -> None:
            obs, next_obs = next(steps)
            frames.add(obs=obs, next_obs=next_obs)

        def add_and_sample() -> None:
            # the tree takes the row in when it is next drawn from
            prioritized.add(obs=row)
            prioritized.sample(batch_size)

        return {
            ADD: add_and_sample,
            FRAMES: add_with_frames,
            UNIFORM: lambda: uniform.sample(batch_size),
            PAIR: sample_and_update,
        }


def bare_reads(memory: FloatArray, capacity: int) -> Workload:
    """Return random reads from as many bytes as the buffers of a capacity take."""
    count = capacity * BYTES_PER_ROW // memory.itemsize
    # More places than one slot reads, so that none is in the cache because it was read just before.
    drawn: list[Integers] = list(np.random.default_rng(0).integers(0, count, (4096, BATCH)))
    part, places = memory[:count], itertools.cycle(drawn)
    return lambda: part.take(next(places))


@dataclass(frozen=True)
class Growth:
    """How one call grows with the capacity."""

    operation: str
    microseconds: dict[int, Spread]  # capacity → time of one call
    per_doubling: float  # µs, fitted: time ~ a + b · log2(capacity)
    exponent: float  # fitted over the upper half: time ~ capacity ** p
    allowed: float | None  # the largest p that is at most logarithmic; None of the bare reads themselves

    @property
    def verdict(self) -> str:
        """Whether it grows at most logarithmically."""
        if self.allowed is None:
            return ""
        return "yes" if self.exponent <= self.allowed else "no"


def exponent_of(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Fit p of time ~ size ** p; 0 if there is only one size.

    Example:
        >>> round(exponent_of([1, 10, 100], [2.0, 20.0, 200.0]), 3)
        1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0]) if len(sizes) > 1 else 0.0


def growths_of(times: dict[str, dict[int, Spread]]) -> list[Growth]:
    """Fit how each call grows: operation → capacity → time, the bare reads among them."""
    capacities = list(times[READS])
    upper = capacities[len(capacities) // 2 :]

    def exponent(name: str) -> float:
        return exponent_of(upper, [times[name][capacity].median for capacity in upper])

    logarithm = exponent_of(upper, [float(np.log2(capacity)) for capacity in upper])
    allowed = logarithm + max(0.0, exponent(READS)) + TOLERANCE
    growths: list[Growth] = []
    for name, of_capacity in times.items():
        medians = [spread.median for spread in of_capacity.values()]
        slope = float(np.polyfit(np.log2(capacities), medians, 1)[0]) if len(capacities) > 1 else 0.0
        growths.append(Growth(name, of_capacity, slope, exponent(name), None if name == READS else allowed))
    return growths


def against_capacity(capacities: Sequence[int], rounds: int) -> list[Growth]:
    """Time every call at every capacity, all in every round."""
    # Ones, because what was never written lies in no memory.
    memory = np.ones(capacities[-1] * BYTES_PER_ROW // 8)
    workloads: dict[str, Workload] = {}
    for capacity in capacities:
        workloads |= {f"{name}@{capacity}": work for name, work in Buffers(capacity).workloads(BATCH).items()}
        workloads[f"{READS}@{capacity}"] = bare_reads(memory, capacity)
    seconds = measure(workloads, rounds=rounds)
    return growths_of(
        {
            name: {capacity: Spread.of(seconds[f"{name}@{capacity}"] * 1e6) for capacity in capacities}
            for name in (ADD, FRAMES, UNIFORM, PAIR, READS)
        }
    )


def against_batch(capacity: int, rounds: int) -> dict[str, dict[int, Spread]]:
    """Time both samples at every batch size: operation → batch size → µs."""
    buffers = Buffers(capacity)
    names = {UNIFORM: "sample, uniform", PAIR: "sample + update, prioritized"}
    workloads = {(names[name], size): buffers.workloads(size)[name] for name in names for size in BATCH_SIZES}
    seconds = measure({f"{name}@{size}": work for (name, size), work in workloads.items()}, rounds=rounds)
    return {
        name: {size: Spread.of(seconds[f"{name}@{size}"] * 1e6) for size in BATCH_SIZES}
        for name in names.values()
    }


def capacities_that_fit(max_power: int) -> list[int]:
    """Return the powers of two up to 2 ** max_power whose buffers fit into the free memory, all at once."""
    capacities, free = [2**power for power in range(MIN_POWER, max_power + 1)], free_memory()
    while free is not None and len(capacities) > 1 and memory_needed(capacities[-1]) > 0.8 * free:
        print(
            f"left out: capacity {capacities[-1]:,} needs {memory_needed(capacities[-1]) / 2**20:,.0f} MiB, "
            f"{free / 2**20:,.0f} MiB are free",
            file=sys.stderr,
        )
        capacities.pop()
    return capacities


def memory_needed(largest: int) -> int:
    """Return the bytes of the buffers of all capacities up to the largest, and of the memory that is read."""
    return 3 * largest * BYTES_PER_ROW


def lines_of(growths: list[Growth], batches: dict[str, dict[int, Spread]]) -> list[str]:
    """Return both tables: against the capacity, and against the batch."""
    capacities = list(growths[0].microseconds)
    heads = ["capacity", *(f"{growth.operation}, µs" for growth in growths)]
    rows = [
        [f"2^{capacity.bit_length() - 1}", *(spread_text(g.microseconds[capacity]) for g in growths)]
        for capacity in capacities
    ]
    rows += [
        ["µs per doubling", *(f"{growth.per_doubling:.2f}" for growth in growths)],
        ["exponent, upper half", *(f"{growth.exponent:.2f}" for growth in growths)],
        ["at most", *("" if g.allowed is None else f"{g.allowed:.2f}" for g in growths)],
        ["at most logarithmic", *(growth.verdict for growth in growths)],
    ]
    batch_rows = [
        [f"{size:,}", *(spread_text(times[size]) for times in batches.values())] for size in BATCH_SIZES
    ]
    exponents = [
        exponent_of(list(times), [spread.median for spread in times.values()]) for times in batches.values()
    ]
    batch_rows.append(["exponent", *(figure(exponent) for exponent in exponents)])
    batch_heads = ["batch", *(f"{name}, µs" for name in batches)]
    return [*table(heads, rows), "", *table(batch_heads, batch_rows)]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if a call grows too fast or the table was not written, else 0."""
    parser = new_parser("scale", "Measure calls against capacity and batch.")
    parser.add_argument(
        "--most", type=int, choices=range(MIN_POWER, 31), default=MAX_POWER, metavar="N",
        help="the largest capacity is 2 ** N (default: %(default)s)",
    )  # fmt: skip
    add_count(parser, "--rounds", 40, "of each")
    parser.add_argument(
        "--chart", type=chart_file, metavar="FILE", help="draw an SVG chart (needs matplotlib)"
    )
    add_outputs(parser, "scale")
    arguments = parser.parse_args(argv)
    capacities = capacities_that_fit(arguments.most)
    growths = against_capacity(capacities, arguments.rounds)
    batch_capacity = min(BATCH_CAPACITY, capacities[-1])
    batches = against_batch(batch_capacity, arguments.rounds)
    good = all(growth.verdict != "no" for growth in growths)
    megabytes = memory_needed(capacities[-1]) / 2**20
    about = (
        f"Medians of {arguments.rounds} interleaved rounds, quartiles in brackets; full buffers with rows "
        f"of 2 float32, all capacities at once in {megabytes:,.0f} MiB; batches at capacity "
        f"{batch_capacity:,}. {'Nothing' if good else 'SOMETHING'} grows worse than logarithmically in the "
        "capacity: exponents may be those of log2(capacity) and of the bare reads together, and "
        f"{TOLERANCE:g} more."
    )
    body = {"capacity": growths, "batch": batches}
    status = hand_over(
        arguments, "scale", Provenance.of("scale", argv), body, lines_of(growths, batches), about
    )
    if arguments.chart is not None:
        from replay_tutorial.bench.one_process.scale_chart import draw

        draw({growth.operation: growth.microseconds for growth in growths}, batches, arguments.chart)
    return status if good else 1
