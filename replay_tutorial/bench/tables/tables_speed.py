"""`python -m replay_tutorial bench tables`: our tables beside Reverb's.

Both sides hold the same table of 20,000 items, full, and do the same with it, each in a process of its own
and in turns: write a step and an item of two steps, draw a batch, give new priorities. Then threads write
against a limiter.

Left out: what only one of them has.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from replay_tutorial.bench.tables import tables_limits, tables_rows
from replay_tutorial.bench.tables.tables_clients import client_rows
from replay_tutorial.bench.tables.tables_helper import COLUMNS, ITEM_STEPS, LIMITED_BATCH, MAX_SIZE
from replay_tutorial.bench.tables.tables_limits import Limited, limited_by
from replay_tutorial.bench.tables.tables_rows import OPERATIONS, Row, memory_rows, rows_of
from replay_tutorial.bench.tables.tables_sides import NAMES, REVERB, both_sides, reverb_is_missing
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.measuring.provenance import Provenance


def main(argv: Sequence[str]) -> int:
    """Run the benchmark.

    Args:
        argv: What follows `bench tables` on the command line.

    Returns:
        The exit status: 0, or 1 if it can't run here or the table was not written. A missed goal is only
        reported.
    """
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
    missing = "not asked for" if arguments.no_peer else reverb_is_missing()
    if missing:
        print(f"skipped {REVERB}: {missing}")
    names = NAMES[:1] if missing else NAMES
    rows: list[Row] = []
    limited: list[Limited] = []
    versions: dict[str, str] = {}
    for kind in OPERATIONS:
        with both_sides(names, kind) as sides:
            rows += rows_of(kind, sides, arguments.rounds)
            rows += memory_rows(kind, sides)
            if kind == "uniform":
                limited = limited_by(sides, arguments.slots, arguments.seconds)
            versions |= {side.name: side.version for side in sides}
    rows += client_rows(names, arguments.slots, arguments.seconds)
    provenance = Provenance.of("tables", argv)
    if not missing:
        provenance.versions["dm-reverb"] = versions[REVERB]
    body = {
        "rounds": arguments.rounds,
        "slots": arguments.slots,
        "skipped": {REVERB: missing} if missing else {},
        "rows": [{**asdict(row), "met": row.met} for row in rows],
        "limited": limited,
    }
    lines = [
        *tables_rows.lines_of(rows),
        "",
        tables_limits.verdict(limited),
        "",
        *tables_limits.lines_of(limited),
    ]
    return hand_over(arguments, "tables", provenance, body, lines, how_measured(arguments))


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
        "limiter's; a thread waits while the limiter lets the other side go first."
    )
