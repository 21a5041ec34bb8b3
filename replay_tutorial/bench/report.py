"""`python -m replay_tutorial bench report`: re-run all benchmarks of the site and the README.

Each benchmark runs in a process of its own and writes its table between its marks, in whichever page of the
folder holds them, and its record and charts beside the pages. A table that is on several pages is measured
once and copied. A benchmark that fails leaves its old table, and the next one runs. The README's short table
is written from the records, with their medians alone. `--full` adds what takes long.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay_tutorial.bench.peers.peer import CEILING, OURS
from replay_tutorial.measuring.markdown import figure, table, write_between_marks
from replay_tutorial.measuring.output import new_parser
from replay_tutorial.measuring.provenance import Provenance

OUTPUT = Path("docs/measurements")
SHORT = "bench-short"  # the mark of the README's table
RECORDS = ("bench", "inputs", "pictures")  # that it is written from
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

    mark: str  # of its table; its record is <mark>.json
    arguments: tuple[str, ...]  # of `bench`
    long: bool = False  # whether it is left out unless everything is asked for


def steps_of(full: bool) -> list[Step]:
    """Return the suite, in its order."""
    steps = [
        Step("bench", ("buffers",)),
        Step("inputs", ("buffers", "--cases", "inputs")),
        Step("pictures", ("buffers", "--cases", "pictures")),
        Step("article", ("article",)),
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


def pages_with(mark: str, pages: Sequence[Path]) -> list[Path]:
    """Return the pages that hold the marks of a table."""
    return [page for page in pages if f"<!-- {mark}:begin -->" in page.read_text(encoding="utf-8")]


def table_of(mark: str, page: Path) -> str:
    """Return what stands between the marks in a page."""
    text = page.read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark}:begin -->\n")[2].partition(f"<!-- {mark}:end -->")[0]


def short_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the README's rows of the records of `buffers`; a cell is empty where cpprb wasn't measured."""
    rows = {row["operation"]: row for record in records for row in record["rows"]}

    def cells(row: Mapping[str, Any]) -> list[str]:
        times, ratios = row["microseconds"], row["ratios"]
        theirs = [
            figure(spreads["cpprb"]["median"]) if "cpprb" in spreads else "" for spreads in (times, ratios)
        ]
        return [row["operation"], figure(times[OURS]["median"]), *theirs, f"{ratios[CEILING]['median']:.0%}"]

    heads = ("operation", f"{OURS}, µs", "cpprb, µs", "times faster than cpprb", "of the ceiling")
    lines = table(heads, [cells(rows[name]) for name in SHORT_ROWS if name in rows])
    first = records[0]
    about = (
        "Medians of interleaved rounds; ratios are taken inside each round. The last two rows are those of "
        "`--cases inputs` and `--cases pictures`, taken on the same day as their tables; the others of "
        f"{first['rounds']} rounds at capacity {first['capacity']:,}, full; {first['row']}. "
        f"{Provenance.read(first)}"
    )
    return "\n".join([*lines, "", about]) + "\n"


def run(step: Step, output: Path, pages: Sequence[Path]) -> str:
    """Run one benchmark, and copy its table to all its places; return what went wrong, "" if nothing did."""
    places = pages_with(step.mark, pages)
    if not places:
        return f"no page has the marks <!-- {step.mark}:begin --> and <!-- {step.mark}:end -->"
    names_record = step.mark in ("article", "learning")
    where = ("--output", output) if names_record else ("--json", output / f"{step.mark}.json")
    command = [*step.arguments, *map(str, where), "--markdown", str(places[0])]
    print(f"\nbench {' '.join(command)}", flush=True)
    before = table_of(step.mark, places[0])
    try:
        whole = [sys.executable, "-m", "replay_tutorial", "bench", *command]
        status = subprocess.run(whole, timeout=TIMEOUT, check=False).returncode
        failure = f"exit status {status}" if status else ""
    except subprocess.TimeoutExpired:
        failure = f"took more than {TIMEOUT:g} s"
    finally:
        table = table_of(step.mark, places[0])
        for page in places[1:]:
            write_between_marks(page, step.mark, table)
    return f"{failure}, {'its old table stays' if table == before else 'its table is new'}" if failure else ""


def main(argv: Sequence[str]) -> int:
    """Run the suite; return 1 if any benchmark failed, else 0."""
    parser = new_parser("report", "Re-run all benchmarks of the site.")
    parser.add_argument(
        "--output",
        type=Path,
        default=OUTPUT,
        metavar="FOLDER",
        help="with the pages to write into (default: %(default)s)",
    )
    parser.add_argument(
        "--readme", type=Path, metavar="FILE", help=f"one page more (default: README.md, with {OUTPUT})"
    )
    parser.add_argument("--full", action="store_true", help="also what trains, and memory: two hours")
    marks = [step.mark for step in steps_of(full=True)]
    parser.add_argument(
        "--only", nargs="+", choices=marks, metavar="MARK", help=f"some of {', '.join(marks)}"
    )
    arguments = parser.parse_args(argv)
    output: Path = arguments.output
    if not output.is_dir():
        parser.error(f"--output {output}: there is no such folder")
    readme = arguments.readme or (Path("README.md") if output == OUTPUT else None)
    pages = [*sorted(output.glob("*.md")), *([readme] if readme is not None and readme.is_file() else [])]
    chosen = steps_of(arguments.full or bool(arguments.only))
    if arguments.only:
        chosen = [step for step in chosen if step.mark in arguments.only]
    failures = {step.mark: failure for step in chosen if (failure := run(step, output, pages))}
    records = [output / f"{name}.json" for name in RECORDS]
    if all(record.is_file() for record in records):
        text = short_table([json.loads(record.read_text(encoding="utf-8")) for record in records])
        for page in pages_with(SHORT, pages):
            write_between_marks(page, SHORT, text)
    for mark, failure in failures.items():
        print(f"{mark}: {failure}", file=sys.stderr)
    print(f"\n{len(chosen) - len(failures)} of {len(chosen)} benchmarks done.")
    return 1 if failures else 0
