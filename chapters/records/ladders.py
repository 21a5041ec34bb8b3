"""Measure the ladders of the chapters, and write their tables into the site's pages.

    python chapters/records/ladders.py --json docs/measurements/ladders.json \\
        --markdown docs/measurements/ladders.md docs/index.md

The chapters measure the same ladders when they are executed. This script takes more rounds, and adds
quartiles and provenance. `why_replay.py` records the learning curves of chapter 00.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measuring.output import add_count, new_file, page, write_record
from benchmarks.measuring.pages import pages_with, write_table
from benchmarks.measuring.provenance import Provenance
from replay_course.ladder import ROOT, Ladder
from replay_course.ladder_shared import SECONDS, shared_ladder
from replay_course.ladder_sum_tree import sum_tree_ladder
from replay_course.ladder_uniform import uniform_ladder
from replay_course.number_tables import table, three_digits

SCRIPT = "chapters/records/ladders.py"
WRITERS = 2
DRAW, UPDATE = "find 512", "set 512"
MEDIANS = "The share is the ceiling's median over the rung's."


class Part(NamedTuple):
    """A table with its marker and its caption."""

    mark: str
    lines: list[str]
    about: str


def short_table(ladder: Ladder) -> list[str]:
    """Return the home page's table of the sum-tree ladder: medians of both operations."""
    draws, updates = ladder.medians(DRAW), ladder.medians(UPDATE)
    rows = [
        [
            *rung.cells("source")[:2],
            *(three_digits(medians[rung.kind.__name__]) for medians in (draws, updates)),
            ladder.share(rung, DRAW),
        ]
        for rung in ladder.rungs
    ]
    return table(["rung", "what it fixes", "draw 512, µs", "update 512, µs", "of the ceiling"], rows, words=2)


def parts_of(uniform: Ladder, tree: Ladder, shared: Ladder, rounds: int, races: int) -> list[Part]:
    """Return all tables."""
    of_rounds = f"Medians of {rounds} interleaved rounds"
    of_rows = f"{of_rounds}, quartiles in brackets; buffers of 100,000 rows, full. {MEDIANS}"
    of_masses = (
        f"{of_rounds}, quartiles in brackets; 2^20 masses. {MEDIANS} The linear scan is timed with one "
    )
    of_masses += "query, and its time is multiplied by 512."
    of_races = f"Medians of {races} races of {SECONDS:g} s, quartiles in brackets; {WRITERS} writers and one "
    of_races += "sampler, as fast as they can. The share is the rung's median over the ceiling's."
    in_short = f"{of_rounds}; 2^20 masses. The ceiling of a draw reads 512 random masses with one "
    in_short += "NumPy call."
    return [
        Part("ladder-uniform", uniform.table("../source"), of_rows),
        Part("ladder-prioritized", tree.table("../source"), of_masses),
        Part("ladder-shared", shared.table("../source"), of_races),
        Part("ladder-short", short_table(tree), in_short),
    ]


def record_of(ladder: Ladder) -> dict[str, Any]:
    """Return a ladder's entry of the record."""
    rungs = [
        {
            "rung": rung.kind.__name__,
            "file": rung.file.relative_to(ROOT).as_posix(),
            "lines": rung.lines,
            "fixes": rung.fixes,
        }
        for rung in ladder.rungs
    ]
    if ladder.unit == "µs":
        return {"rungs": rungs, "microseconds": ladder.figures, "ceiling": ladder.ceiling}
    figures = {name: list(spreads.values()) for name, spreads in ladder.figures.items()}
    ceiling = list(ladder.ceiling.values())
    return {"rungs": rungs, "rows and batches in a second": figures, "ceiling": ceiling}


def put(parts: Sequence[Part], provenance: Provenance, pages: Sequence[Path]) -> bool:
    """Write each table into every page with its markers; return False if a table has no page."""
    success = True
    for part in parts:
        text = "\n".join([*part.lines, "", f"{part.about} {provenance}"]) + "\n"
        places = pages_with(part.mark, pages)
        if pages and not places:
            print(f"no page contains the marker <!-- {part.mark}:begin -->; add it first", file=sys.stderr)
            success = False
        success &= write_table(places, part.mark, text)
    return success


def main(argv: Sequence[str]) -> int:
    """Measure, print and write the tables; return 1 if a table could not be written, else 0."""
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description="Measure the chapters' ladders.")
    add_count(parser, "--rounds", 50, "rounds of the uniform and the prioritized ladder")
    add_count(parser, "--races", 5, "races of the shared ladder")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all figures to this file")
    parser.add_argument(
        "--markdown", type=page, nargs="+", default=[], metavar="FILE", help="pages to write the tables into"
    )
    given = parser.parse_args(argv)
    uniform, tree = uniform_ladder(rounds=given.rounds), sum_tree_ladder(rounds=given.rounds)
    shared = shared_ladder(WRITERS, given.races)
    provenance = Provenance.of_command(["python", SCRIPT, *argv])
    parts = parts_of(uniform, tree, shared, given.rounds, given.races)
    print("\n\n".join("\n".join(part.lines) for part in parts))
    if given.json is not None:
        ladders = {"uniform": uniform, "prioritized": tree, "shared": shared}
        body = {name: record_of(ladder) for name, ladder in ladders.items()}
        counts = {"rounds": given.rounds, "races": given.races}
        write_record(given.json, {"benchmark": "ladders", **provenance._asdict(), **counts, "ladders": body})
    return 0 if put(parts, provenance, given.markdown) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
