"""The short table of `bench buffers` for the README, made from the record: ten rows, nothing measured anew.

Nothing is measured here: the rows come from the record, with their medians only. The whole table, with the
spread of every figure, is in the measurements.

Left out: other libraries than cpprb.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from replay_tutorial.bench.method.markdown import figure, table
from replay_tutorial.bench.method.output import add_markdown, hand_over, new_parser, page
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.peers.peer import CEILING, OURS

MARK, PEER = "bench-short", "cpprb"
HEADS = ("operation", f"{OURS}, µs", f"{PEER}, µs", f"times faster than {PEER}", "of the ceiling")
ROWS = (
    "sample 64, uniform",
    "sample 512, uniform",
    "sample 512, uniform, each field copied",
    "sample 64 + update 64, prioritized",
    "sample 512 + update 512, prioritized",
    "add 1, uniform",
    "add 1, prioritized",
    "add 101, uniform",
    "add 101, prioritized",
    "add 101 + sample 512, prioritized",
)


def cells_of(row: Mapping[str, Any]) -> list[str]:
    """Return a row of the table, empty where cpprb wasn't measured."""
    times, ratios = row["microseconds"], row["ratios"]
    theirs = [figure(spreads[PEER]["median"]) if PEER in spreads else "" for spreads in (times, ratios)]
    return [row["operation"], figure(times[OURS]["median"]), *theirs, f"{ratios[CEILING]['median']:.0%}"]


def main(argv: Sequence[str]) -> int:
    """Write the table.

    Args:
        argv: What follows `bench summary` on the command line.

    Returns:
        The exit status: 0, or 1 if the table was not written where it was asked.
    """
    parser = new_parser("summary", "Show ten rows of a record of `bench buffers`; nothing is measured.")
    parser.add_argument("record", type=page, metavar="RECORD", help="what `bench buffers --json` has written")
    add_markdown(parser, MARK)
    parser.set_defaults(json=None)
    arguments = parser.parse_args(argv)
    record = json.loads(arguments.record.read_text(encoding="utf-8"))
    rows = {row["operation"]: row for row in record["rows"]}
    lines = table(HEADS, [cells_of(rows[name]) for name in ROWS if name in rows])
    about = (
        f"Medians of {record['rounds']} interleaved rounds; ratios are taken inside each round. "
        f"Capacity {record['capacity']:,}, full; {record['row']}."
    )
    return hand_over(arguments, "summary", Provenance.read(record), {}, lines, about, mark=MARK)
