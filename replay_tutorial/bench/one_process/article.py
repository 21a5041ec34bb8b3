"""The article that this project starts from, again: `add` and `sample` over the number of rows, library beside library.

cpprb's author set it beside Reverb and others in four charts: add and sample, uniform and prioritized, on a buffer of
4,096 rows. Here are the same charts from one run, and four more at 2^20 rows, where rows no longer fit into a cache.

Left out: `update_priorities`; `buffers` times it together with the sample that it belongs to.
"""

import argparse
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.record import at_least, page
from replay_tutorial.bench.method.report import figure, put_table
from replay_tutorial.bench.method.timing import FloatArray, Spread, Work, measure
from replay_tutorial.bench.peers import contenders
from replay_tutorial.bench.peers.lineup import BETA, CEILING, FIELDS, OURS, Company, Peer, random_rows
from replay_tutorial.bench.peers.reverb import HelperLost

PROGRAM = "python -m replay_tutorial bench article"
ARTICLE_ALPHA = 0.4
PANELS = ("add, uniform", "add, prioritized", "sample, uniform", "sample, prioritized")


@dataclass(frozen=True)
class Workload:
    """One size of buffer and the numbers of rows on its horizontal axes."""

    capacity: int
    adds: tuple[int, ...]
    batches: tuple[int, ...]


STEPS = tuple(range(1, 102, 10))
SETTINGS = (
    Workload(4096, STEPS, tuple(2**k for k in range(1, 9))),
    Workload(2**20, STEPS, tuple(2**k for k in range(1, 13))),
)
QUICK = (Workload(256, (1, 11), (2, 8)),)


@dataclass(frozen=True)
class Point:
    """What was measured at one place of one panel."""

    capacity: int
    panel: str
    rows: int
    microseconds: dict[str, Spread]  # peer → one call
    ratios: dict[str, Spread]  # peer → its time / ours, taken round by round


def works_at(panel: str, count: int, peers: Sequence[Peer]) -> dict[str, Work]:
    """Let each peer that can make the work of a point."""
    prioritized = panel.endswith("prioritized")
    rows = random_rows(np.random.default_rng(2), count)
    make: Callable[[Peer], Work | None] = (
        (lambda peer: peer.adding(rows, prioritized=prioritized))
        if panel.startswith("add")
        else (lambda peer: peer.sampling(count, prioritized=prioritized))
    )
    works = {peer.name: make(peer) for peer in peers}
    return {name: work for name, work in works.items() if work is not None}


def seconds_at(
    panel: str, count: int, company: Company, rounds: int, slot_seconds: float
) -> dict[str, FloatArray]:
    """Measure a point; a peer whose process is lost leaves the company, and the others go on without it."""
    while True:
        try:
            works = works_at(panel, count, company.peers)
            return measure(works, rounds=rounds, slot_seconds=slot_seconds)
        except HelperLost as lost:
            lost.peer.close()
            company.peers.remove(lost.peer)
            company.skipped[lost.peer.name] = f"from '{panel}' of {count} rows on, as {lost}"
            print(f"{lost.peer.name}: {lost}", flush=True)


def points(workload: Workload, company: Company, rounds: int, slot_seconds: float) -> Iterator[Point]:
    """Measure one point after the other, every peer in every round."""
    # Samples first: adding leaves the same few rows everywhere, and what keeps references finds them in the cache.
    for panel in sorted(PANELS, key=lambda panel: panel.startswith("add")):
        for count in workload.adds if panel.startswith("add") else workload.batches:
            seconds = seconds_at(panel, count, company, rounds, slot_seconds)
            yield Point(
                workload.capacity,
                panel,
                count,
                {name: Spread.of(values * 1e6) for name, values in seconds.items()},
                {name: Spread.of(v / seconds[OURS]) for name, v in seconds.items() if name != OURS},
            )


def names_at(measured: Sequence[Point], panel: str) -> list[str]:
    """Name who stands in a panel, ours first and the ceiling last."""
    names = dict.fromkeys(name for point in measured if point.panel == panel for name in point.microseconds)
    return sorted(names, key=lambda name: (name == CEILING, name != OURS))


def table(measured: Sequence[Point]) -> str:
    """Write one table for each panel: medians in microseconds, in bold where somebody was faster than ours."""
    parts: list[str] = []
    for panel in PANELS:
        names = names_at(measured, panel)
        lines = [["rows", *names, "of the ceiling"], ["---:"] * (len(names) + 2)]
        for point in measured:
            if point.panel == panel:
                cells = [cell(point, name) for name in names]
                lines.append([f"{point.rows:,}", *cells, f"{point.ratios[CEILING].median:.0%}"])
        parts.append(f"**{panel}**, µs a call\n\n" + "\n".join("| " + " | ".join(c) + " |" for c in lines))
    return "\n\n".join(parts)


def cell(point: Point, name: str) -> str:
    """Write a median, in bold if it is a peer's and less than ours."""
    if name not in point.microseconds:
        return ""
    text = figure(point.microseconds[name].median)
    return f"**{text}**" if name not in (OURS, CEILING) and point.ratios[name].median < 1 else text


def verdict(measured: Sequence[Point]) -> str:
    """Tell at how many points ours was the fastest, and where it wasn't."""
    faster: dict[str, list[int]] = {}
    behind = 0
    for point in measured:
        ahead = [n for n, ratio in point.ratios.items() if n != CEILING and ratio.median < 1]
        behind += bool(ahead)
        for name in ahead:
            faster.setdefault(f"{name} ({point.panel})", []).append(point.rows)
    told = "; ".join(f"{who} at {', '.join(map(str, rows))} rows" for who, rows in faster.items())
    return (
        f"Ours is the fastest library at {len(measured) - behind} of {len(measured)} points."
        f"{f' Faster than ours: {told}.' if told else ''}"
    )


def unrest(measured: Sequence[Point]) -> float:
    """Return the width between the quartiles over the median, in the middle of all figures."""
    spreads = [spread for point in measured for spread in point.microseconds.values()]
    return float(np.median([(s.upper - s.lower) / s.median for s in spreads]))


def parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    arguments = argparse.ArgumentParser(
        prog=PROGRAM, description="Draw the article's charts, with us in them."
    )
    arguments.add_argument(
        "--rounds", type=at_least(1), default=20, help="of every point (default: %(default)s)"
    )
    arguments.add_argument(
        "--peers",
        nargs="+",
        choices=list(contenders.CONTENDERS),
        default=list(contenders.CONTENDERS),
        help="only these beside ours",
    )
    arguments.add_argument(
        "--quick", action="store_true", help="a few points and rounds, to see that it works"
    )
    arguments.add_argument(
        "--output", type=Path, metavar="FOLDER", help="write article.json and the charts here"
    )
    arguments.add_argument(
        "--markdown", type=page, metavar="FILE", help="write the tables between its `article` marks"
    )
    return arguments


def main(argv: Sequence[str]) -> int:
    """Measure, print, and write where it was asked.

    Args:
        argv: What follows `bench article` on the command line.

    Returns:
        The exit status: 0, or 1 if the tables could not be written.
    """
    options = parser().parse_args(argv)
    if options.rounds < 1:
        parser().error(f"--rounds {options.rounds}: at least 1 is needed")
    if options.output is not None:
        importlib.import_module("matplotlib")  # where it is missing, say so before anything is measured
    rounds = 2 if options.quick else options.rounds
    names = list(dict.fromkeys([OURS, *options.peers]))
    measured: list[Point] = []
    skipped: dict[int, dict[str, str]] = {}
    versions: dict[str, None] = {}
    elsewhere: dict[str, str] = {}
    for workload in QUICK if options.quick else SETTINGS:
        company = contenders.gather(workload.capacity, ARTICLE_ALPHA, names)
        skipped[workload.capacity] = company.skipped
        versions |= dict.fromkeys(contenders.versions_of(company.peers))
        elsewhere |= contenders.versions_elsewhere(company.peers)
        for name, reason in company.skipped.items():
            print(f"{workload.capacity:,} rows, {name}: {reason}")
        try:
            for point in points(workload, company, rounds, 0.001 if options.quick else 0.005):
                print(line_of(point), flush=True)
                measured.append(point)
        finally:
            contenders.close(company.peers)
    provenance = Provenance.of(PROGRAM, argv, versions)
    provenance.versions.update(elsewhere)
    return write(measured, skipped, rounds, provenance, options.output, options.markdown)


def line_of(point: Point) -> str:
    """Write a point as text, while it is measured."""
    figures = ", ".join(f"{name} {figure(spread.median)}" for name, spread in point.microseconds.items())
    return f"{point.capacity:>9,} {point.panel:<20}{point.rows:>5}: {figures} µs"


def write(
    measured: Sequence[Point],
    skipped: dict[int, dict[str, str]],
    rounds: int,
    provenance: Provenance,
    output: Path | None,
    markdown: Path | None,
) -> int:
    """Write the record, the tables, and then the charts; return the exit status."""
    fields = " + ".join(map(str, FIELDS.values()))
    parts: list[str] = []
    for capacity, absent in skipped.items():
        here = [point for point in measured if point.capacity == capacity]
        told = "".join(f" {name}: {reason}." for name, reason in absent.items())
        chart = f"![add and sample over the number of rows](article-{capacity}.svg)\n\n" if output else ""
        text = f"{verdict(here)}{f' Not measured:{told}' if told else ''}"
        print(f"{capacity:,} rows: {text}")
        parts.append(f"### {capacity:,} rows\n\n{chart}{text}\n\n{table(here)}\n\n")
    about = (
        f"Medians of {rounds} interleaved rounds; rows of {fields} float32, alpha {ARTICLE_ALPHA}, beta {BETA}, buffers "
        f"full. The two quartiles, which stand in the record, lie {unrest(measured):.0%} of the median apart in "
        f"the middle of all figures. The ceiling moves the same bytes by the barest NumPy call; the last column is its "
        f"time over ours. {provenance}"
    )
    print(about)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        record = {"benchmark": "article", **provenance._asdict(), "rounds": rounds, "skipped": skipped}
        record["points"] = [asdict(point) for point in measured]
        (output / "article.json").write_text(
            json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
    status = 0 if put_table(markdown, "article", f"{''.join(parts)}{about}\n") else 1
    if output is not None:
        from replay_tutorial.bench.one_process.charts import draw

        for capacity in skipped:
            here = [point for point in measured if point.capacity == capacity]
            draw(here, output / f"article-{capacity}.svg")
    return status
