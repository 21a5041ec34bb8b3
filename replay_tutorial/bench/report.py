"""`python -m replay_tutorial bench report`: re-run the benchmarks of the site and the README.

Each benchmark runs in a new process and writes its table between its markers in the pages, and its record and
charts next to them. If a benchmark fails, the next one runs. The README's short table is written from the
records and shows medians only. `cluster`, `conformance` and the records of the chapters are not re-run.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay_tutorial.bench.buffers import FLOATS
from replay_tutorial.bench.peers.peer import CEILING, OURS
from replay_tutorial.measuring.markdown import figure, pages_with, table, write_table
from replay_tutorial.measuring.output import new_parser
from replay_tutorial.measuring.provenance import Provenance

OUTPUT = Path("docs/measurements")
SHORT = "bench-short"  # marker of the README's table
RECORDS = ("bench", "inputs", "pictures")  # the records that the README's table is written from
SHORT_ROWS = (
    "sample 64, uniform",
    "sample 64 + update 64, prioritized",
    "sample 512 + update 512, prioritized",
    "add 1, prioritized",
    "add 8, float64, rewards (8,)",
    "channel-last, next_of + stack_compress, sample 32",
)
TIMEOUT = 6 * 3600.0  # seconds for one benchmark


@dataclass(frozen=True)
class Step:
    """One benchmark of the suite."""

    mark: str  # marker of its table; its record is <mark>.json
    arguments: tuple[str, ...]  # after `bench` on the command line
    long: bool = False  # runs only with --full or --only


def steps_of(full: bool) -> list[Step]:
    """Return the benchmarks in the order in which they run."""
    steps = [
        Step("bench", ("buffers",)),
        Step("inputs", ("buffers", "--cases", "inputs")),
        Step("pictures", ("buffers", "--cases", "pictures")),
        Step("article", ("article",)),
        *(Step(cases, ("buffers", "--cases", cases)) for cases in ("sequences", "hindsight", "schemes")),
        Step("ceiling", ("buffers", "--cases", "kernels")),
        Step("memory", ("memory", "--rows", "1000000"), long=True),
        Step("startup", ("startup",)),
        Step("shared", ("shared",)),
        Step("shared-rate", ("shared", "--rate", "100000")),
        Step("tables", ("tables",)),
        Step("throughput", ("throughput", "--actors", "2", "1", "4"), long=True),
        Step("learning", ("learning",), long=True),
    ]
    return [step for step in steps if full or not step.long]


def table_of(mark: str, page: Path) -> str:
    """Return the text between a table's markers in a page."""
    text = page.read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark}:begin -->\n")[2].partition(f"<!-- {mark}:end -->")[0]


def short_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the README's table from the records of `buffers`; a cell is empty if cpprb wasn't measured."""
    rows = {row["operation"]: row for record in records for row in record["rows"]}

    def cells(row: Mapping[str, Any]) -> list[str]:
        times, ratios = row["microseconds"], row["ratios"]
        theirs = [
            figure(spreads["cpprb"]["median"]) if "cpprb" in spreads else "" for spreads in (times, ratios)
        ]
        return [row["operation"], figure(times[OURS]["median"]), *theirs, f"{ratios[CEILING]['median']:.0%}"]

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


def run(step: Step, output: Path, pages: Sequence[Path]) -> str:
    """Run one benchmark and write its table into every page with its markers.

    Returns:
        An error message, or "" on success.
    """
    places = pages_with(step.mark, pages)
    if not places:
        return f"no page contains the markers <!-- {step.mark}:begin --> and <!-- {step.mark}:end -->"
    names_record = step.mark in ("article", "learning")
    where = ("--output", output) if names_record else ("--json", output / f"{step.mark}.json")
    command = [*step.arguments, *map(str, where), "--markdown", *map(str, places)]
    print(f"\nbench {' '.join(command)}", flush=True)
    before = table_of(step.mark, places[0])
    try:
        whole = [sys.executable, "-m", "replay_tutorial", "bench", *command]
        status = subprocess.run(whole, timeout=TIMEOUT, check=False).returncode
        failure = f"exit status {status}" if status else ""
    except subprocess.TimeoutExpired:
        failure = f"took more than {TIMEOUT:g} s"
    if not failure:
        return ""
    unchanged = table_of(step.mark, places[0]) == before
    return f"{failure}; its table is {'unchanged' if unchanged else 'updated'}"


def main(argv: Sequence[str]) -> int:
    """Run the benchmarks; return 1 if any of them failed, else 0."""
    parser = new_parser("report", "Re-run the benchmarks of the site and the README.")
    parser.add_argument(
        "--output",
        type=Path,
        default=OUTPUT,
        metavar="FOLDER",
        help="folder of the pages to update (default: %(default)s)",
    )
    full_help = "also run memory, throughput and learning; takes two hours"
    parser.add_argument("--full", action="store_true", help=full_help)
    marks = [step.mark for step in steps_of(full=True)]
    only_help = f"run only these benchmarks: one or more of {', '.join(marks)}"
    parser.add_argument("--only", nargs="+", choices=marks, metavar="MARK", help=only_help)
    arguments = parser.parse_args(argv)
    output: Path = arguments.output
    if not output.is_dir():
        parser.error(f"--output {output}: no such folder; pass the folder that contains the pages")
    pages = sorted(output.glob("*.md"))
    if output == OUTPUT:
        pages.append(Path("README.md"))
    chosen = steps_of(arguments.full or bool(arguments.only))
    if arguments.only:
        chosen = [step for step in chosen if step.mark in arguments.only]
    failures = {step.mark: failure for step in chosen if (failure := run(step, output, pages))}
    records = [output / f"{name}.json" for name in RECORDS]
    if all(record.is_file() for record in records):
        text = short_table([json.loads(record.read_text(encoding="utf-8")) for record in records])
        write_table(pages_with(SHORT, pages), SHORT, text)
    for mark, failure in failures.items():
        print(f"{mark}: {failure}", file=sys.stderr)
    print(f"\n{len(chosen) - len(failures)} of {len(chosen)} benchmarks succeeded.")
    return 1 if failures else 0
