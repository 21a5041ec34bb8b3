"""`python -m benchmarks report`: re-run the benchmarks of the site.

Each benchmark runs in a new process and writes its table between its markers in the pages, and its record and
charts next to them. If a benchmark fails, the next one runs. The home page's short table is written from the
records and shows medians only. `sb3`, `cleanrl`, `cluster`, `conformance` and the chapters' records are not
re-run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.buffers import FLOATS
from benchmarks.measuring.fresh import python_path
from benchmarks.measuring.output import new_parser
from benchmarks.measuring.pages import pages_with, write_table
from benchmarks.measuring.provenance import Provenance
from benchmarks.peers.buffer import CEILING, OURS
from replay_course.number_tables import table, three_digits

OUTPUT, HOME = Path("docs/measurements"), Path("docs/index.md")
SHORT = "bench-short"  # marker of the home page's table
RECORDS = ("bench", "inputs", "pictures")  # the records that this table is written from
SHORT_ROWS = (
    "sample 64, uniform",
    "sample 64 + update 64, prioritized",
    "sample 512 + update 512, prioritized",
    "add 1, prioritized",
    "add 8, float64, rewards (8,)",
    "channel-last, dedupe_next + dedupe_frames, sample 32",
)
TIMEOUT = 6 * 3600.0  # seconds for one benchmark
# marker of a table, whose record is <mark>.json → arguments of `bench`
STEPS = {
    "bench": ["buffers"],
    "inputs": ["buffers", "--cases", "inputs"],
    "pictures": ["buffers", "--cases", "pictures"],
    "article": ["article"],
    "sequences": ["buffers", "--cases", "sequences"],
    "hindsight": ["buffers", "--cases", "hindsight"],
    "schemes": ["buffers", "--cases", "schemes"],
    "kernels": ["buffers", "--cases", "kernels"],
    "memory": ["memory"],
    "startup": ["startup"],
    "shared": ["shared"],
    "shared-rate": ["shared", "--rate", "100000"],
    "tables": ["tables"],
    "throughput": ["throughput", "--actors", "2", "1", "4"],
    "learning": ["learning"],
}
LONG = ("memory", "throughput", "learning")  # run only with --full or --only


def short_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the home page's table from the records of `buffers`; cells of cpprb are empty without it."""
    rows = {row["operation"]: row for record in records for row in record["rows"]}

    def cells(row: Mapping[str, Any]) -> list[str]:
        times, ratios = row["microseconds"], row["ratios"]
        spreads = times[OURS], times.get("cpprb"), ratios.get("cpprb")
        medians = [three_digits(spread["median"]) if spread else "" for spread in spreads]
        return [row["operation"], *medians, f"{ratios[CEILING]['median']:.0%}"]

    heads = ("operation", f"{OURS}, µs", "cpprb, µs", "speed relative to cpprb", "of the ceiling")
    lines = table(heads, [cells(rows[name]) for name in SHORT_ROWS if name in rows])
    first, *others = records
    days = " and ".join(dict.fromkeys(record["date"] for record in others))
    about = (
        f"Medians of {first['rounds']} interleaved rounds on full buffers of capacity {first['capacity']:,} "
        f"with rows of {FLOATS}; ratios are computed within each round. {Provenance.read(first)} The last "
        f"two rows were measured on {days} with `--cases inputs` and `--cases pictures` and their own "
        "settings."
    )
    return "\n".join([*lines, "", about]) + "\n"


def run(mark: str, output: Path, pages: Sequence[Path]) -> str:
    """Run one benchmark, which writes its table into every page with its markers; return an error message."""
    places = pages_with(mark, pages)
    if not places:
        return f"no page contains the markers <!-- {mark}:begin --> and <!-- {mark}:end -->"
    has_charts = mark in ("article", "learning")
    where = ("--output", output) if has_charts else ("--json", output / f"{mark}.json")
    command = [*STEPS[mark], *map(str, where), "--markdown", *map(str, places)]
    print(f"\nbenchmarks {' '.join(command)}", flush=True)
    try:
        whole = [sys.executable, "-m", "benchmarks", *command]
        environment = {**os.environ, "PYTHONPATH": python_path()}
        status = subprocess.run(whole, env=environment, timeout=TIMEOUT, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"took more than {TIMEOUT:g} s"
    return f"exit status {status}" if status else ""


def main(argv: Sequence[str]) -> int:
    """Run the benchmarks; return 1 if any of them failed, else 0."""
    parser = new_parser("report", "Re-run the benchmarks of the site.")
    parser.add_argument(
        "--output",
        type=Path,
        default=OUTPUT,
        metavar="FOLDER",
        help="folder of the pages to update (default: %(default)s)",
    )
    full_help = "also run memory, throughput and learning; takes two hours"
    parser.add_argument("--full", action="store_true", help=full_help)
    only_help = f"run only these benchmarks: one or more of {', '.join(STEPS)}"
    parser.add_argument("--only", nargs="+", choices=STEPS, metavar="MARK", help=only_help)
    arguments = parser.parse_args(argv)
    output: Path = arguments.output
    if not output.is_dir():
        parser.error(f"--output {output}: no such folder; pass the folder that contains the pages")
    pages = [*sorted(output.glob("*.md")), *([HOME] if output == OUTPUT else [])]
    usual = [mark for mark in STEPS if arguments.full or mark not in LONG]
    chosen: list[str] = arguments.only or usual
    failures = {mark: failure for mark in chosen if (failure := run(mark, output, pages))}
    succeeded = len(chosen) - len(failures)
    records = [output / f"{name}.json" for name in RECORDS]
    if all(record.is_file() for record in records):
        text = short_table([json.loads(record.read_text(encoding="utf-8")) for record in records])
        if not write_table(pages_with(SHORT, pages), SHORT, text):
            failures[SHORT] = "the table was not written"
    for mark, failure in failures.items():
        print(f"{mark}: {failure}", file=sys.stderr)
    print(f"\n{succeeded} of {len(chosen)} benchmarks succeeded.")
    return 1 if failures else 0
