"""`python -m replay_tutorial bench tables`: our tables beside Reverb's.

Both sides hold the same table of 20,000 items, full, and do the same with it, each in a process of its own
and in turns, so that one rests while the other is measured: write a step and an item of two steps, draw a
batch, give new priorities. Then threads write against a limiter, and other processes call the server.

Left out: what only one of them has.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory

import numpy as np

from replay_tutorial.bench.peers.helper import HelperProcess, reverb_python
from replay_tutorial.bench.peers.peer import OURS
from replay_tutorial.bench.peers.program import COLUMNS, ITEM_STEPS, LIMIT, LIMITED_BATCH, MAX_SIZE
from replay_tutorial.measuring.markdown import figure, spread_text, table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.measuring.timing import FloatArray, Spread, measure

REVERB = "Reverb"
SLOT_SECONDS = 0.02
PROCESSES = 4  # that call one server
WRITERS = (1, 2, 4)  # threads against a limiter
MOST_OFF = 0.01  # that the limiter's ratio may be off
# Of threads against a limiter: in the record, and the heads of the table.
SHOWN = {
    "items": "items/s",
    "samples": "samples/s",
    "ratio": "samples / (8 · items)",
    "least": "slowest / fastest writer",
    "writers_longest": "longest call of a writer, ms",
    "sampler_longest": "and of the sampler",
}


@dataclass(frozen=True)
class Goal:
    """The limits that a figure of ours must meet."""

    at_most: float | None = None
    times: float | None = None  # better than Reverb's, at least

    def __str__(self) -> str:
        """Return it as the table shows it."""
        most = [] if self.at_most is None else [f"≤ {self.at_most:g}"]
        return ", ".join(most if self.times is None else [*most, f"≥ {self.times:g} times"])


@dataclass(frozen=True)
class Row:
    """One figure of each side."""

    operation: str
    unit: str  # of the figures: the fewer the better, or the more if it is one of "... a second"
    figures: dict[str, Spread]
    ratio: Spread | None  # how many times better ours is, taken round by round; None without Reverb
    goal: Goal

    @classmethod
    def of(cls, operation: str, unit: str, figures: dict[str, FloatArray], goal: Goal) -> "Row":
        """Take the spreads of figures whose rounds have the same places, and print the row."""
        ratio = None
        if REVERB in figures:
            ours, theirs = figures[OURS], figures[REVERB]
            ratio = Spread.of(ours / theirs if unit.endswith("a second") else theirs / ours)
        row = cls(operation, unit, {name: Spread.of(each) for name, each in figures.items()}, ratio, goal)
        print(" · ".join(row.cells()), flush=True)
        return row

    @property
    def met(self) -> str:
        """Say whether the goal was met; "" where there is none, or no Reverb."""
        wanted: list[bool] = []
        if self.goal.at_most is not None:
            wanted.append(self.figures[OURS].median <= self.goal.at_most)
        if self.goal.times is not None and self.ratio is not None:
            wanted.append(self.ratio.median >= self.goal.times)
        return "" if not wanted else "yes" if all(wanted) else "no"

    def cells(self) -> list[str]:
        """Return a line of the table; a figure that was taken once has no quartiles."""
        spreads = (self.figures[OURS], self.figures.get(REVERB), self.ratio)
        texts = [
            figure(each.median) if each is not None and each.lower == each.upper else spread_text(each)
            for each in spreads
        ]
        return [self.operation, self.unit, *texts, f"{self.goal}", self.met]


WRITE = ("a step and an item", "write", 1, Goal(30.0, 6.0))
SAMPLE = ("sample 32", "sample", 32, Goal(60.0, 20.0))
# table → what is done with it: the operation, how it is asked for, how large, and the goal
OPERATIONS = {
    "uniform": (WRITE, SAMPLE),
    "prioritized": (WRITE, SAMPLE, ("update 256", "update", 256, Goal(40.0))),
}


def side(name: str, kind: str, *, serve: str = "", address: str = "") -> HelperProcess:
    """Start a process with a full table; with the address of a server, one that calls that.

    Args:
        name: OURS or REVERB.
        kind: Of the table: "uniform" or "prioritized".
        serve: Where ours listens for other processes; Reverb chooses that for itself.
        address: Of the server that it calls.
    """
    start = {"table": kind, "serve": serve, "address": address}
    return HelperProcess(name, start, reverb=name == REVERB)


def table_rows(kind: str, both: Sequence[HelperProcess], rounds: int) -> list[Row]:
    """Measure a table of this kind, full, on each side in turns, and what an item takes there."""
    rows: list[Row] = []
    for operation, do, size, goal in OPERATIONS[kind]:
        workloads = {each.name: each.workload(do, size) for each in both}
        seconds = measure(workloads, rounds=rounds, slot_seconds=SLOT_SECONDS)
        micros = {name: each * 1e6 for name, each in seconds.items()}
        rows.append(Row.of(f"{operation}, {kind}", "µs", micros, goal))
    taken = {each.name: np.array([each.made["bytes_per_item"]]) for each in both}
    if all(taken.values()):  # the system says how much memory a process has
        rows.append(Row.of(f"memory of an item beside its step, {kind}", "bytes", taken, Goal(100.0)))
    return rows


def client_rows(names: Sequence[str], slots: int, seconds: float) -> list[Row]:
    """Count the items of processes that call one server at once, the sides in turns."""
    rows: list[Row] = []
    with ExitStack() as stack:
        socket = f"{stack.enter_context(TemporaryDirectory())}/socket"
        clients: dict[str, list[HelperProcess]] = {}
        for name in names:
            server = stack.enter_context(closing(side(name, "uniform", serve=socket)))
            address = server.made["address"]
            clients[name] = [
                stack.enter_context(closing(side(name, "uniform", address=address))) for _ in range(PROCESSES)
            ]
        for operation, do, size in (("write", "write", 1), ("sample 32", "sample", 32)):
            rates = {name: np.empty(slots) for name in clients}
            for slot in range(slots):
                for name, callers in clients.items():
                    for caller in callers:
                        caller.order("rate", do=do, size=size, seconds=seconds)
                    rates[name][slot] = size * sum(caller.answer()["rate"] for caller in callers)
            operation = f"{operation} from {PROCESSES} processes, uniform"
            rows.append(Row.of(operation, "items a second", rates, Goal(times=3.0)))
    return rows


@dataclass(frozen=True)
class Limited:
    """What threads of one side reached against a limiter: some write as fast as they may, one samples."""

    writers: int
    side: str
    figures: dict[str, Spread]  # as in SHOWN

    @property
    def holds(self) -> bool:
        """Whether samples and items have the limiter's ratio."""
        return abs(self.figures["ratio"].median - 1.0) <= MOST_OFF

    def cells(self) -> list[str]:
        """Return a line of the table."""
        return [f"{self.writers}", self.side, *(spread_text(self.figures[name]) for name in SHOWN)]


def limited_by(both: Sequence[HelperProcess], slots: int, seconds: float) -> list[Limited]:
    """Measure each number of writers against a limiter, the sides in turns."""
    measured: list[Limited] = []
    for writers in WRITERS:
        answers = [
            [each.ask("limited", writers=writers, seconds=seconds) for each in both] for _ in range(slots)
        ]
        for each, figures in zip(both, zip(*answers, strict=True), strict=True):
            spreads = {name: Spread.of(np.array([answer[name] for answer in figures])) for name in SHOWN}
            measured.append(Limited(writers, each.name, spreads))
            print(" · ".join(measured[-1].cells()), flush=True)
    return measured


def lines_of(rows: Sequence[Row], limited: Sequence[Limited]) -> list[str]:
    """Return both tables, and whether our limiter holds its ratio."""
    heads = ["operation", "unit", OURS, REVERB, "times better", "goal", "met"]
    ours = [each for each in limited if each.side == OURS]
    wrong = [each for each in ours if not each.holds]
    numbers = ", ".join(f"{each.writers}" for each in wrong or ours)
    held = f"off by more than {MOST_OFF:.0%}" if wrong else f"within {MOST_OFF:.0%}"
    verdict = f"the ratio of ours is {held} with {numbers} writers."
    return [
        *table(heads, [row.cells() for row in rows], words=2),
        "",
        f"Threads against a limiter of {LIMIT[0]:g} samples per insert: {verdict}",
        "",
        *table(["writers", "side", *SHOWN.values()], [each.cells() for each in limited], words=2),
    ]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run here or the table was not written, else 0."""
    parser = new_parser("tables", "Measure our tables beside Reverb's.")
    add_count(parser, "--rounds", 40, "of every call")
    add_count(parser, "--slots", 3, "of what takes seconds: threads, and other processes")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of threads in a slot (default: %(default)s)"
    )
    parser.add_argument("--no-peer", action="store_true", help="measure ours alone")
    add_outputs(parser, "tables")
    arguments = parser.parse_args(argv)
    if not 0.0 < arguments.seconds < 3600.0:
        parser.error(f"--seconds {arguments.seconds}: a slot must take some time, and end")
    if sys.platform == "win32":
        print("bench tables needs a system whose pipes can be waited for: Linux or macOS.", file=sys.stderr)
        return 1
    missing = "not asked for" if arguments.no_peer else ""
    try:
        reverb_python()
    except ImportError as error:
        missing = missing or str(error)
    if missing:
        print(f"skipped {REVERB}: {missing}")
    names = (OURS,) if missing else (OURS, REVERB)
    rows: list[Row] = []
    limited: list[Limited] = []
    provenance = Provenance.of("tables", argv)
    for kind in OPERATIONS:
        with ExitStack() as stack:
            both = [stack.enter_context(closing(side(name, kind))) for name in names]
            rows += table_rows(kind, both, arguments.rounds)
            if kind == "uniform":
                limited = limited_by(both, arguments.slots, arguments.seconds)
            for theirs in both[1:]:
                provenance.versions["dm-reverb"] = theirs.made["version"]
    rows += client_rows(names, arguments.slots, arguments.seconds)
    body = {
        "rounds": arguments.rounds,
        "slots": arguments.slots,
        "skipped": {REVERB: missing} if missing else {},
        "rows": [{**asdict(row), "met": row.met} for row in rows],
        "limited": limited,
    }
    return hand_over(arguments, "tables", provenance, body, lines_of(rows, limited), how_measured(arguments))


def how_measured(arguments: argparse.Namespace) -> str:
    """Return what the figures mean, in a few sentences."""
    widths = " + ".join(map(str, COLUMNS.values()))
    return (
        f"Medians, quartiles in brackets; ratios are taken inside each round. Calls: {arguments.rounds} "
        f"interleaved rounds; all else: {arguments.slots}, of {arguments.seconds:g} s where nothing else is "
        f"said. Tables of {MAX_SIZE:,} items, full; an item is {ITEM_STEPS} steps of {widths} float32, and "
        "shares each with the next item. Memory: what the process has grown by while its table was filled "
        "twice, without a step's values and the 4 bytes for each that count who names it. Threads: one "
        f"samples batches of {LIMITED_BATCH}; the ratio is that of samples to items, 1 where it is the "
        "limiter's."
    )
