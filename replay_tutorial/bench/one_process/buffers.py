"""`python -m replay_tutorial bench buffers`: add, sample and update beside other libraries, in one run.

All peers take turns in every round, and below them stands the machine's ceiling. What is measured,
`operations` says.

Left out: charts; `article` draws some.
"""

import argparse
from collections.abc import Sequence
from contextlib import closing

from replay_tutorial.bench.method.markdown import spread_text, table
from replay_tutorial.bench.method.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.one_process import operations
from replay_tutorial.bench.one_process.operations import CHUNK, Row
from replay_tutorial.bench.peers import lineup
from replay_tutorial.bench.peers.peer import CEILING, FIELDS, OURS


def cells_of(row: Row, names: Sequence[str]) -> list[str]:
    """Return a row of the table, empty where a peer can't do it; last the ceiling's share of our time."""
    times = [spread_text(row.microseconds.get(name)) for name in names]
    ratios = [spread_text(row.ratios.get(name)) for name in others(names)]
    return [row.operation, *times, *ratios, f"{row.ratios[CEILING].median:.0%}"]


def others(names: Sequence[str]) -> list[str]:
    """Return the libraries that we are compared with."""
    return [name for name in names if name not in (OURS, CEILING)]


def lines_of(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return the table."""
    ratios = (f"times faster than {name}" for name in others(names))
    heads = ["operation", *(f"{name}, µs" for name in names), *ratios, "of the ceiling"]
    return table(heads, [cells_of(row, names) for row in rows])


def new_buffers_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    parser = new_parser("buffers", "Measure the buffers beside other libraries and the machine's ceiling.")
    add_count(parser, "--capacity", 2**20, "rows in every buffer", minimum=CHUNK)
    add_count(parser, "--rounds", 100, "of every operation")
    names = [name for name in lineup.PEERS if name != OURS]
    parser.add_argument(
        "--peers", nargs="+", choices=names, default=["cpprb"], help="measured beside ours (default: cpprb)"
    )
    add_outputs(parser, "bench")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    arguments = new_buffers_parser().parse_args(argv)
    rows: list[Row] = []
    with closing(lineup.gather(arguments.capacity, names=[OURS, *arguments.peers])) as gathered:
        for name, reason in gathered.skipped.items():
            print(f"skipped {name}: {reason}")
        for row in operations.run(gathered.peers, rounds=arguments.rounds):
            print(row, flush=True)
            rows.append(row)
    layout = f"rows of {' + '.join(map(str, FIELDS.values()))} float32 ({'/'.join(FIELDS)})"
    skipped = "".join(f" Skipped: {name} ({why})." for name, why in gathered.skipped.items())
    about = (
        f"Medians of {arguments.rounds} interleaved rounds, quartiles in brackets; ratios are taken inside "
        f"each round. Capacity {arguments.capacity:,}, full; {layout}. The ceiling moves the same bytes by "
        "the barest NumPy call: no drawing, no tree, no checks. Our `sample` shows the fields in place in "
        f"rows, cpprb's copies each to an array of its own; one row has ours copied, too.{skipped}"
    )
    given = {"capacity": arguments.capacity, "rounds": arguments.rounds}
    body = {**given, "row": layout, "skipped": gathered.skipped, "rows": rows}
    provenance = Provenance.of("buffers", argv, gathered.distributions)
    lines = lines_of(rows, gathered.names)
    return hand_over(arguments, "buffers", provenance, body, lines, about, mark="bench")
