"""`python -m benchmarks buffers`: compare add, sample and update with other libraries.

Each round times our buffer, every other library and the ceiling, the simplest NumPy call that moves the same
bytes. `--cases` selects the set of operations; see `cases`. A cell is empty if a library doesn't support the
operation.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from benchmarks import cases
from benchmarks.cases import Cases
from benchmarks.measuring.output import add_count, add_outputs, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from benchmarks.peers.buffer import CEILING, FIELDS, OURS
from benchmarks.peers.lineup import OTHERS, PEERS, SLOT_SECONDS, Lineup, Row, row_of
from replay_course.number_tables import spread_text, table

LEARNING_LIBRARIES = ("Stable-Baselines3", "tianshou", "TorchRL")
WITH_GOALS = ("cpprb", "Stable-Baselines3", "TorchRL")


@dataclass(frozen=True)
class CaseSet:
    """A set of cases, with the defaults of its options."""

    cases: Callable[[int], Cases]  # capacity → cases
    capacity: int
    rounds: int
    peers: tuple[str, ...]
    about: str  # the end of the table's caption
    slot_seconds: float = SLOT_SECONDS


FLOATS = f"{' + '.join(map(str, FIELDS.values()))} float32 (obs/action/next_obs/reward/done)"
ROWS = (
    f"Rows of {FLOATS}. The ceiling is the simplest NumPy call that moves the same bytes, without random "
    "numbers, a tree or checks. Our `sample` returns the fields as views of one array of records; cpprb "
    "copies each field to a separate array. In the row `each field copied`, our buffer also copies each "
    "field."
)
INPUTS = (
    "Prioritized buffers where the library has them. cpprb has no nested fields, so it stores nested values "
    "under joined names. The ceiling assigns the fields of a record without checks."
)
PICTURES = (
    "Uniform buffers of transitions with two stacks of 4 × 84 × 84 uint8. The ceiling copies the same number "
    "of bytes with NumPy into reused memory; its `add` also copies whole stacks with `dedupe_frames`, "
    "because NumPy takes longer to copy one image of each. Stable-Baselines3, tianshou and TorchRL store "
    "stacks channel-first."
)
KERNELS = f"Rows of {FLOATS}. The ceiling is the kernels after the slash, called with prepared arguments."
SEQUENCES = (
    "Steps of 30 + 3 + 1 + 1 float32 (obs/action/reward/done), in episodes of 200 steps. Our windows contain "
    "one more observation, the one after the last step. The ceiling is one `take` of the records of as many "
    "windows."
)
HINDSIGHT = (
    "Rows of 2 × (15 + 3 + 3) + 3 + 1 + 1 float32 (obs and next_obs, each with two goals/action/reward/"
    "done), in episodes of 200 steps; 80% of the sampled rows are relabelled. cpprb stores the goals when an "
    "episode ends, so a fifth of its rows are original ones, and its `sample` only copies. The ceiling is "
    "one `take` of random rows."
)
SCHEMES = f"Rows of {FLOATS}. The ceiling is one `take` of random rows."
SETS = {
    "rows": CaseSet(cases.rows, 2**20, 100, ("cpprb",), ROWS),
    "inputs": CaseSet(cases.inputs, 2**17, 40, ("cpprb", *LEARNING_LIBRARIES), INPUTS),
    "pictures": CaseSet(cases.pictures, 2000, 40, ("cpprb", *LEARNING_LIBRARIES), PICTURES),
    "sequences": CaseSet(cases.sequences, 2**20, 40, ("TorchRL", "flashbax"), SEQUENCES),
    "hindsight": CaseSet(cases.hindsight, 2**20, 40, WITH_GOALS, HINDSIGHT),
    "schemes": CaseSet(cases.schemes, 2**20, 100, ("cpprb",), SCHEMES),
    # In short slots, the workloads that are called more often would find warmer caches.
    "kernels": CaseSet(cases.kernels, 2**20, 100, (), KERNELS, slot_seconds=0.05),
}


def lines_of(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return a table with times and ratios, then one with the ratios to `LEARNING_LIBRARIES`.

    Ratios are bold where ours is slower.
    """
    timed = [name for name in names if name not in LEARNING_LIBRARIES]
    others = [name for name in timed if name not in (OURS, CEILING)]
    heads = ["operation", *(f"{name}, µs" for name in timed)]
    heads += [*(f"speed relative to {name}" for name in others), "of the ceiling"]

    def ratio(row: Row, name: str) -> str:
        text = spread_text(row.ratios.get(name))
        return f"**{text}**" if text and row.ratios[name].median < 1 else text

    def cells(row: Row) -> list[str]:
        times = [spread_text(row.microseconds.get(name)) for name in timed]
        ratios = [ratio(row, name) for name in others]
        return [row.operation, *times, *ratios, f"{row.ratios[CEILING].median:.0%}"]

    lines = table(heads, [cells(row) for row in rows])
    if beside := [name for name in names if name in LEARNING_LIBRARIES]:
        rest = [[row.operation, *(ratio(row, name) for name in beside)] for row in rows]
        lines += ["", *table(["operation", *(f"speed relative to {name}" for name in beside)], rest)]
    return lines


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table could not be written, else 0."""
    parser = new_parser("buffers", "Compare the buffers with other libraries and with plain NumPy calls.")
    parser.add_argument(
        "--cases", choices=SETS, default="rows", help="set of operations (default: %(default)s)"
    )
    capacity_help = "rows in every buffer (default: depends on --cases)"
    add_count(parser, "--capacity", None, capacity_help, minimum=cases.LEARNER_BATCH)
    add_count(parser, "--rounds", None, "rounds per operation (default: depends on --cases)")
    peers_help = "libraries to compare with (default: depends on --cases)"
    parser.add_argument("--peers", nargs="+", choices=OTHERS, help=peers_help)
    add_outputs(parser, "that of --cases, or bench for rows")
    arguments = parser.parse_args(argv)
    chosen = SETS[arguments.cases]
    capacity, rounds = arguments.capacity or chosen.capacity, arguments.rounds or chosen.rounds
    rows: list[Row] = []
    with closing(Lineup(arguments.peers or chosen.peers)) as lineup:
        for operation, prepare in chosen.cases(capacity).items():
            seconds = lineup.seconds_of(prepare, rounds, chosen.slot_seconds, f"'{operation}'")
            rows.append(row_of(operation, seconds))
            print(rows[-1], flush=True)
        provenance = Provenance.of("buffers", argv, lineup.distributions)
        provenance.versions.update(lineup.versions_elsewhere)
    notes = {"skipped": lineup.skipped, "faults": lineup.faults}
    body = {"capacity": capacity, "rounds": rounds, **notes, "rows": rows}
    omitted = "".join(f" Skipped: {name} ({reason})." for name, reason in lineup.skipped.items())
    omitted += "".join(f" {name}: {fault}." for name, fault in lineup.faults.items())
    measured = [name for name in PEERS if any(name in row.microseconds for row in rows)]  # even if lost later
    lines = lines_of(rows, measured)
    slower = (
        " Ratios below 1, where ours is slower, are in bold." if any("**" in line for line in lines) else ""
    )
    about = (
        f"Medians of {rounds} interleaved rounds, quartiles in brackets; ratios are computed within each "
        f"round.{slower} Full buffers of capacity {capacity:,}. {chosen.about}{omitted}"
    )
    mark = "bench" if arguments.cases == "rows" else arguments.cases
    return write_results(arguments, "buffers", provenance, body, lines, about, mark=mark)
