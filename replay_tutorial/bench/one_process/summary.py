"""The short table for the README: twelve rows of the records of `buffers`, `inputs` and `pictures`.

Nothing is measured here: the rows come from the records, with their medians only. The whole tables, with the
spread of every figure, are in the measurements.

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
    "add 8, float64, rewards (8,)",
    "channel-last, next_of + stack_compress, sample 32",
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
    parser = new_parser("summary", "Show some rows of records of other benchmarks; nothing is measured.")
    help_text = "what `bench buffers --json`, and `inputs` and `pictures`, have written"
    parser.add_argument("records", type=page, nargs="+", metavar="RECORD", help=help_text)
    add_markdown(parser, MARK)
    parser.set_defaults(json=None)
    arguments = parser.parse_args(argv)
    records = [json.loads(record.read_text(encoding="utf-8")) for record in arguments.records]
    rows = {row["operation"]: row for record in records for row in record["rows"]}
    lines = table(HEADS, [cells_of(rows[name]) for name in ROWS if name in rows])
    first = records[0]
    about = (
        "Medians of interleaved rounds; ratios are taken inside each round. The last two rows are those of "
        "`bench inputs` and `bench pictures`, taken on the same day as their tables; the others of "
        f"{first['rounds']} rounds at capacity {first['capacity']:,}, full; {first['row']}."
    )
    return hand_over(arguments, "summary", Provenance.read(first), {}, lines, about, mark=MARK)
