"""`python -m replay_tutorial bench report`: re-run all benchmarks of the site and the README.

Each benchmark runs in a process of its own and writes its table between its marks, in whichever page of the
folder holds them, and its record and charts beside the pages. A table that stands in several places (the
README has one, too) is measured once and copied. A benchmark that fails leaves its old table, and the next
one is run.

Left out, unless `--full`: what trains, and what takes long: `memory` and `cliffwalk`.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from replay_tutorial.bench.method.markdown import write_between_marks
from replay_tutorial.bench.method.output import new_parser

OUTPUT = Path("docs/measurements")
SHORT = ("bench", "inputs", "pictures")  # the records of the README's table
TIMEOUT = 6 * 3600.0  # seconds for one benchmark


@dataclass(frozen=True)
class Step:
    """One benchmark of the suite."""

    mark: str  # of its table; its record is <mark>.json
    arguments: tuple[str, ...]  # of `bench`; {output} is the folder
    long: bool = False  # whether it is left out unless everything is asked for


def steps_of(full: bool) -> list[Step]:
    """Return the suite, in its order."""
    steps = [
        Step("bench", ("buffers",)),
        Step("inputs", ("inputs",)),
        Step("pictures", ("pictures",)),
        Step("bench-short", ("summary", *(f"{{output}}/{name}.json" for name in SHORT))),
        Step("article", ("article", "--output", "{output}")),
        Step("ceiling", ("ceiling",)),
        Step("memory", ("memory", "--rows", "1000000"), long=True),
        Step("startup", ("startup",)),
        Step("shared", ("shared",)),
        Step("shared-rate", ("shared", "--rate", "100000")),
        Step("tables", ("tables",)),
        Step("throughput", ("throughput", "--actors", "2", "1", "4"), long=True),
        Step("cliffwalk", ("cliffwalk", "--states", "8", "10", "12", "14"), long=True),
        Step("learning", ("learning", "--output", "{output}"), long=True),
    ]
    return [step for step in steps if full or not step.long]


def pages_with(mark: str, pages: Sequence[Path]) -> list[Path]:
    """Return the pages that hold the marks of a table."""
    return [page for page in pages if f"<!-- {mark}:begin -->" in page.read_text(encoding="utf-8")]


def table_of(mark: str, page: Path) -> str:
    """Return what stands between the marks in a page."""
    text = page.read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark}:begin -->\n")[2].partition(f"<!-- {mark}:end -->")[0]


def command_of(step: Step, output: Path, page: Path) -> list[str]:
    """Return what follows `bench`."""
    command = [argument.format(output=output.as_posix()) for argument in step.arguments]
    # Two name their records themselves, one reads another's.
    if step.arguments[0] not in ("article", "learning", "summary"):
        command += ["--json", f"{output.as_posix()}/{step.mark}.json"]
    return [*command, "--markdown", page.as_posix()]


def run(step: Step, output: Path, pages: Sequence[Path]) -> str:
    """Run one benchmark, and copy its table to all its places; return what went wrong, "" if nothing did."""
    places = pages_with(step.mark, pages)
    if not places:
        return f"no page has the marks <!-- {step.mark}:begin --> and <!-- {step.mark}:end -->"
    command = command_of(step, output, places[0])
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


def new_report_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
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
    parser.add_argument(
        "--full", action="store_true", help="also what trains, and memory and cliffwalk: two hours"
    )
    marks = [step.mark for step in steps_of(full=True)]
    parser.add_argument(
        "--only", nargs="+", choices=marks, metavar="MARK", help=f"some of {', '.join(marks)}"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the suite; return 1 if any benchmark failed, else 0."""
    parser = new_report_parser()
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
    for mark, failure in failures.items():
        print(f"{mark}: {failure}", file=sys.stderr)
    print(f"\n{len(chosen) - len(failures)} of {len(chosen)} benchmarks done.")
    return 1 if failures else 0
