"""`python -m benchmarks tables`: compare our tables with Reverb's.

Each library runs in a separate process with a full table of 20,000 items, and is idle while the other is
measured. The benchmark times single calls (append and create_item, sample, update priorities), threads that
write and sample under a rate limiter, and other processes that call the server.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measuring.output import add_count, add_outputs, add_seconds, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from benchmarks.peers.buffer import OURS, NotMeasurable
from benchmarks.peers.helper import HelperProcess
from benchmarks.peers.helper_program import COLUMNS, ITEM_STEPS, LIMIT, LIMITED_BATCH, MAX_SIZE
from replay_course.number_tables import spread_text, table, three_digits
from replay_course.timing import FloatArray, Spread, measure

REVERB = "Reverb"
RATE = "items/s"
SLOT_SECONDS = 0.02
PROCESSES = 4  # clients of one server
WRITERS = (1, 2, 4)  # numbers of threads that write under a limiter
TOLERANCE = 0.01  # relative deviation from the limiter's ratio
# key of the record → head of the column
LIMITER_HEADS = {
    "items": "items/s",
    "samples": "samples/s",
    "ratio": f"samples / ({LIMIT[0]:g} · items)",
    "least": "slowest / fastest writer",
    "writers_longest": "longest writer call, ms",
    "sampler_longest": "longest sampler call, ms",
}


@dataclass(frozen=True)
class Row:
    """The measurements of one operation."""

    operation: str
    unit: str  # less is better, except for RATE
    figures: dict[str, Spread]
    ratio: Spread | None  # how many times better ours is, computed within each round; None without Reverb

    @classmethod
    def of(cls, operation: str, unit: str, figures: dict[str, FloatArray]) -> "Row":
        """Return the row of an operation, and print it; `figures` are float64[rounds] for each library."""
        ratio = None
        if REVERB in figures:
            ours, theirs = figures[OURS], figures[REVERB]
            ratio = Spread.of(ours / theirs if unit == RATE else theirs / ours)
        row = cls(operation, unit, {name: Spread.of(each) for name, each in figures.items()}, ratio)
        print(" · ".join(row.cells()), flush=True)
        return row

    def cells(self) -> list[str]:
        """Return the row's cells; a figure that was measured once has no quartiles."""
        spreads = (self.figures[OURS], self.figures.get(REVERB), self.ratio)
        texts = [
            three_digits(each.median) if each is not None and each.lower == each.upper else spread_text(each)
            for each in spreads
        ]
        return [self.operation, self.unit, *texts]


WRITE = ("append + create_item", "write", 1)
SAMPLE = ("sample 32", "sample", 32)
# table → its operations: label, name in the helper's protocol, size
OPERATIONS = {"uniform": (WRITE, SAMPLE), "prioritized": (WRITE, SAMPLE, ("update 256", "update", 256))}


def helper_of(name: str, kind: str, *, serve: str = "", address: str = "") -> HelperProcess:
    """Start a process with a full table, or a client process of the server at `address`.

    `serve` is the socket path on which our server listens for other processes. Reverb chooses a port itself.
    """
    start = {"table": kind, "serve": serve, "address": address}
    return HelperProcess(name, start, reverb=name == REVERB)


def table_rows(kind: str, both: Sequence[HelperProcess], rounds: int) -> list[Row]:
    """Measure the calls on a full table of this kind, and the memory of an item."""
    rows: list[Row] = []
    for operation, do, size in OPERATIONS[kind]:
        workloads = {each.name: each.workload(do, size) for each in both}
        seconds = measure(workloads, rounds=rounds, slot_seconds=SLOT_SECONDS)
        micros = {name: each * 1e6 for name, each in seconds.items()}
        rows.append(Row.of(f"{operation}, {kind}", "µs", micros))
    memory = {each.name: np.array([each.description["bytes_per_item"]]) for each in both}
    return [*rows, Row.of(f"memory per item without its step, {kind}", "bytes", memory)]


def client_rows(names: Sequence[str], slots: int, seconds: float) -> list[Row]:
    """Measure the items per second of several client processes that call one server concurrently."""
    rows: list[Row] = []
    clients: dict[str, list[HelperProcess]] = {}
    with ExitStack() as stack:
        socket = f"{stack.enter_context(TemporaryDirectory())}/socket"

        def start(name: str, **options: str) -> HelperProcess:
            return stack.enter_context(closing(helper_of(name, "uniform", **options)))

        for name in names:
            server = start(name, serve=socket)
            clients[name] = [start(name, address=server.description["address"]) for _ in range(PROCESSES)]
        for do, size in (("write", 1), ("sample", 32)):
            rates = {name: np.empty(slots) for name in clients}
            for slot in range(slots):
                for name, callers in clients.items():
                    for caller in callers:
                        caller.send("rate", do=do, size=size, seconds=seconds)
                    rates[name][slot] = size * sum(caller.receive()["rate"] for caller in callers)
            label = do if size == 1 else f"{do} {size}"
            rows.append(Row.of(f"{label} from {PROCESSES} processes, uniform", RATE, rates))
    return rows


@dataclass(frozen=True)
class LimiterResult:
    """The rates of threads that write under a limiter, and of one thread that samples."""

    writers: int
    side: str
    figures: dict[str, Spread]  # keys of LIMITER_HEADS

    def cells(self) -> list[str]:
        """Return the cells of a row of the table."""
        return [f"{self.writers}", self.side, *(spread_text(self.figures[name]) for name in LIMITER_HEADS)]


def measure_limiter(both: Sequence[HelperProcess], slots: int, seconds: float) -> list[LimiterResult]:
    """Measure each library with each number of writers under a limiter."""
    measured: list[LimiterResult] = []
    for writers in WRITERS:
        answers = [
            [each.request("limited", writers=writers, seconds=seconds) for each in both] for _ in range(slots)
        ]
        for each, figures in zip(both, zip(*answers, strict=True), strict=True):
            spreads = {
                name: Spread.of(np.array([answer[name] for answer in figures])) for name in LIMITER_HEADS
            }
            measured.append(LimiterResult(writers, each.name, spreads))
            print(" · ".join(measured[-1].cells()), flush=True)
    return measured


def lines_of(rows: Sequence[Row], limited: Sequence[LimiterResult]) -> list[str]:
    """Return both tables, with a sentence that says whether our limiter keeps its ratio."""
    heads = ["operation", "unit", OURS, REVERB, "times better"]
    ours = [each for each in limited if each.side == OURS]
    wrong = [each for each in ours if abs(each.figures["ratio"].median - 1.0) > TOLERANCE]
    numbers = ", ".join(f"{each.writers}" for each in wrong or ours)
    held = f"off by more than {TOLERANCE:.0%}" if wrong else f"within {TOLERANCE:.0%}"
    limit = f"a limiter of {LIMIT[0]:g} samples per insert"
    return [
        *table(heads, [row.cells() for row in rows], words=2),
        "",
        f"Threads under {limit}: the ratio of ours is {held} with {numbers} writers.",
        "",
        *table(["writers", "library", *LIMITER_HEADS.values()], [each.cells() for each in limited], words=2),
    ]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run on this system or can't write the table, else 0."""
    parser = new_parser("tables", "Compare our tables with Reverb's.")
    add_count(parser, "--rounds", 40, "rounds per call")
    add_count(parser, "--slots", 3, "rounds with threads and with client processes")
    add_seconds(parser, 2.0, "length of each of these rounds")
    add_outputs(parser, "tables")
    arguments = parser.parse_args(argv)
    if sys.platform == "win32":
        print("tables can't run on Windows; run it on Linux or macOS", file=sys.stderr)
        return 1
    provenance = Provenance.of("tables", argv)
    names, skipped = [OURS], dict[str, str]()
    try:
        with closing(helper_of(REVERB, "uniform")) as theirs:
            provenance.versions["dm-reverb"] = theirs.description["version"]
        names.append(REVERB)
    except NotMeasurable as error:
        skipped[REVERB] = str(error)
        print(f"skipped {REVERB}: {error}")
    rows: list[Row] = []
    limited: list[LimiterResult] = []
    slots, seconds = arguments.slots, arguments.seconds
    for kind in OPERATIONS:
        with ExitStack() as stack:
            both = [stack.enter_context(closing(helper_of(name, kind))) for name in names]
            rows += table_rows(kind, both, arguments.rounds)
            limited += measure_limiter(both, slots, seconds) if kind == "uniform" else []
    rows += client_rows(names, slots, seconds)
    body = {"rounds": arguments.rounds, "slots": slots, "skipped": skipped, "rows": rows, "limited": limited}
    about = "".join([how_measured(arguments), *(f" {REVERB} is skipped: {why}." for why in skipped.values())])
    return write_results(arguments, "tables", provenance, body, lines_of(rows, limited), about)


def how_measured(arguments: argparse.Namespace) -> str:
    """Return the caption of the tables."""
    widths = " + ".join(map(str, COLUMNS.values()))
    return (
        f"Medians, quartiles in brackets; ratios are computed within each round. Calls: {arguments.rounds} "
        f"interleaved rounds. Threads and processes: {arguments.slots} rounds of {arguments.seconds:g} s. "
        f"Full tables of {MAX_SIZE:,} items; an item has {ITEM_STEPS} steps of {widths} float32, and "
        "consecutive items share a step. Memory: growth of the process while its table is filled twice, per "
        "item, without the values of one step and their 4-byte reference counts. Threads: one thread samples "
        f"batches of {LIMITED_BATCH}; samples / ({LIMIT[0]:g} · items) is 1 if the limiter keeps its ratio."
    )
