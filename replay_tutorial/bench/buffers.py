"""`python -m replay_tutorial bench buffers`: add, sample and update beside other libraries, in one run.

All peers take turns in every round, and beside them the machine's ceiling. `--cases` chooses what is
measured (`cases`). Whatever a library can't do is an empty cell.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from replay_tutorial.bench import cases
from replay_tutorial.bench.cases import Case, Prepare
from replay_tutorial.bench.peers.helper import HelperLost
from replay_tutorial.bench.peers.lineup import PEERS, Lineup, gather
from replay_tutorial.bench.peers.peer import CEILING, FIELDS, OURS
from replay_tutorial.measuring.markdown import figure, spread_text, table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.measuring.timing import FloatArray, Spread, measure

LEARNING = ("Stable-Baselines3", "tianshou", "TorchRL")
SLOT_SECONDS = 0.005


@dataclass(frozen=True)
class CaseSet:
    """Which cases are measured, and beside whom unless others are named."""

    cases: Callable[[int], list[Case]]  # from the capacity
    capacity: int
    rounds: int
    peers: tuple[str, ...]
    about: str
    mark: str  # of the table in a page
    slot_seconds: float = SLOT_SECONDS


FLOATS = f"{' + '.join(map(str, FIELDS.values()))} float32 ({'/'.join(FIELDS)})"
ROWS = (
    f"Rows of {FLOATS}. The ceiling moves the same bytes by the barest NumPy call: no drawing, no tree, no "
    "checks. Our `sample` shows the fields in place in rows, cpprb's copies each to an array of its own; one "
    "row has ours copied, too."
)
INPUTS = (
    "Prioritized buffers where the library has them. cpprb gets nested values by their joined names, as it "
    "has no others. The ceiling assigns the fields of a record and checks nothing."
)
PICTURES = (
    "Uniform buffers of two stacks of 4 × 84 × 84 uint8. `out=` and threads are ours alone: beside them are "
    "the others' plain samples. The ceiling copies as many bytes with NumPy into memory that is used again. "
    "The learning libraries have their stacks channel-first."
)
KERNELS = f"Rows of {FLOATS}. The ceiling is the kernels behind the stroke, called on prepared arguments."
SETS = {
    "rows": CaseSet(cases.rows, 2**20, 100, ("cpprb",), ROWS, "bench"),
    "inputs": CaseSet(cases.inputs, 2**17, 40, ("cpprb", *LEARNING), INPUTS, "inputs"),
    "pictures": CaseSet(cases.pictures, 2000, 40, ("cpprb", *LEARNING), PICTURES, "pictures"),
    # Long slots, or the workloads that are called more often in one would find warmer caches.
    "kernels": CaseSet(cases.kernels, 2**20, 100, (), KERNELS, "ceiling", slot_seconds=0.05),
}


@dataclass(frozen=True)
class Row:
    """What was measured of one operation."""

    operation: str
    microseconds: dict[str, Spread]  # peer → time of one call
    ratios: dict[str, Spread]  # peer → its time / our time, taken round by round

    def __str__(self) -> str:
        """Return the medians in one line."""
        medians = ", ".join(f"{name} {figure(each.median)}" for name, each in self.microseconds.items())
        return f"{self.operation}: {medians} µs"


def seconds_of(
    prepare: Prepare, lineup: Lineup, rounds: int, slot_seconds: float, where: str
) -> dict[str, FloatArray]:
    """Measure an operation; a peer whose process is lost leaves the lineup, and the others stay in it."""
    while True:
        made = {side.name: prepare(side) for side in lineup.sides}
        workloads = {name: work for name, work in made.items() if work is not None}
        try:
            return measure(workloads, rounds=rounds, slot_seconds=slot_seconds)
        except HelperLost as lost:
            gone = next(side for side in lineup.sides if side.name == lost.name)
            gone.close()
            lineup.sides.remove(gone)
            lineup.skipped[lost.name] = f"from {where} on, as {lost}"
            print(f"{lost.name}: {lost}", flush=True)


def row_of(operation: str, seconds: dict[str, FloatArray]) -> Row:
    """Sum up the rounds: medians, quartiles, and ratios that were taken inside each round."""
    times = {name: Spread.of(rounds * 1e6) for name, rounds in seconds.items()}
    ratios = {name: Spread.of(rounds / seconds[OURS]) for name, rounds in seconds.items() if name != OURS}
    return Row(operation, times, ratios)


def lines_of(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return the table of times and of the ratios to cpprb, and below it that of the learning libraries."""
    timed = [name for name in names if name not in LEARNING]
    others = [name for name in timed if name not in (OURS, CEILING)]
    heads = ["operation", *(f"{name}, µs" for name in timed)]
    heads += [*(f"times faster than {name}" for name in others), "of the ceiling"]

    def cells(row: Row) -> list[str]:
        times = [spread_text(row.microseconds.get(name)) for name in timed]
        ratios = [spread_text(row.ratios.get(name)) for name in others]
        return [row.operation, *times, *ratios, f"{row.ratios[CEILING].median:.0%}"]

    def bold_where_slower(row: Row, name: str) -> str:
        text = spread_text(row.ratios.get(name))
        return f"**{text}**" if text and row.ratios[name].median < 1 else text

    lines = table(heads, [cells(row) for row in rows])
    if beside := [name for name in names if name in LEARNING]:
        rest = [[row.operation, *(bold_where_slower(row, name) for name in beside)] for row in rows]
        lines += ["", *table(["operation", *(f"times faster than {name}" for name in beside)], rest)]
    return lines


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    parser = new_parser("buffers", "Measure the buffers beside other libraries and the machine's ceiling.")
    parser.add_argument("--cases", choices=SETS, default="rows", help="what is measured (default: rows)")
    add_count(
        parser, "--capacity", None, "rows in every buffer (default: that of the cases)", minimum=cases.MANY
    )
    add_count(parser, "--rounds", None, "of every operation (default: that of the cases)")
    names = [name for name in PEERS if name not in (OURS, CEILING)]
    whom = "measured beside ours (default: cpprb, and for inputs and pictures learning libraries)"
    parser.add_argument("--peers", nargs="+", choices=names, help=whom)
    add_outputs(parser, "bench, inputs, pictures or ceiling")
    arguments = parser.parse_args(argv)
    chosen = SETS[arguments.cases]
    capacity, rounds = arguments.capacity or chosen.capacity, arguments.rounds or chosen.rounds
    rows: list[Row] = []
    with closing(gather(arguments.peers or chosen.peers)) as lineup:
        for name, reason in lineup.skipped.items():
            print(f"skipped {name}: {reason}")
        for case in chosen.cases(capacity):
            where = f"'{case.operation}'"
            seconds = seconds_of(case.prepare, lineup, rounds, chosen.slot_seconds, where)
            rows.append(row_of(case.operation, seconds))
            print(rows[-1], flush=True)
        names, distributions = lineup.names, lineup.distributions
        skipped = "".join(f" Skipped: {name} ({why})." for name, why in lineup.skipped.items())
    about = (
        f"Medians of {rounds} interleaved rounds, quartiles in brackets; ratios are taken inside each round. "
        f"Capacity {capacity:,}, full. {chosen.about}{skipped}"
    )
    body = {
        "capacity": capacity,
        "rounds": rounds,
        "row": f"rows of {FLOATS}",
        "skipped": lineup.skipped,
        "rows": rows,
    }
    provenance = Provenance.of("buffers", argv, distributions)
    return hand_over(arguments, "buffers", provenance, body, lines_of(rows, names), about, mark=chosen.mark)
