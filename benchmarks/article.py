"""`python -m benchmarks article`: time of `add` and `sample` over the batch size.

Repeats the benchmark of an article by cpprb's author, which compares cpprb with Reverb and other libraries.
Its four charts show add and sample, uniform and prioritized, on a buffer of 4,096 rows. Four more charts use
2^20 rows, which don't fit into the processor's cache.

Source: Hiroyuki Yamada, "Benchmark", https://ymd_h.gitlab.io/cpprb/comparison/benchmark/
"""

import importlib
import math
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import adding, sampling
from benchmarks.measuring.output import add_count, add_markdown, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from benchmarks.peers.buffer import BETA, CEILING, FIELDS, OURS, Kind
from benchmarks.peers.lineup import OTHERS, PEERS, SLOT_SECONDS, Lineup, row_of
from replay_course.number_tables import table, three_digits
from replay_course.timing import Spread

ARTICLE_ALPHA = 0.4
ADDS_AS = {"Reverb dataset": "Reverb writer"}  # Reverb adds with one class and samples with another
PANELS = ("add, uniform", "add, prioritized", "sample, uniform", "sample, prioritized")


@dataclass(frozen=True)
class Grid:
    """A capacity, and the batch sizes on the horizontal axes of its charts."""

    capacity: int
    adds: tuple[int, ...]
    batches: tuple[int, ...]


STEPS = tuple(range(1, 102, 10))
GRIDS = (
    Grid(4096, STEPS, tuple(2**k for k in range(1, 9))),
    Grid(2**20, STEPS, tuple(2**k for k in range(1, 13))),
)
QUICK = (Grid(256, (1, 11), (2, 8)),)


@dataclass(frozen=True)
class Point:
    """The measurements at one batch size of one panel."""

    capacity: int
    panel: str
    rows: int
    microseconds: dict[str, Spread]  # peer → time of one call
    ratios: dict[str, Spread]  # peer → its time / ours, computed within each round


def points(grid: Grid, lineup: Lineup, rounds: int, slot_seconds: float) -> Iterator[Point]:
    """Measure every point with all peers."""
    # Sample before adding: `add` fills the buffer with references to the same few rows, which would then be
    # sampled from the cache.
    for panel in sorted(PANELS, key=lambda panel: panel.startswith("add")):
        kind = Kind(grid.capacity, prioritized=panel.endswith("prioritized"), alpha=ARTICLE_ALPHA)
        for count in grid.adds if panel.startswith("add") else grid.batches:
            prepare = adding(kind, count) if panel.startswith("add") else sampling(kind, count)
            where = f"'{panel}' of {count} rows"
            row = row_of(panel, lineup.seconds_of(prepare, rounds, slot_seconds, where))
            print(f"{grid.capacity:,} rows, {count} per call: {row}", flush=True)
            yield Point(grid.capacity, panel, count, row.microseconds, row.ratios)


def of_panel(measured: Sequence[Point], panel: str) -> tuple[list[Point], list[str]]:
    """Return a panel's points and its peers, ours first and the ceiling last."""
    here = [point for point in measured if point.panel == panel]
    names = dict.fromkeys(name for point in here for name in point.microseconds)
    return here, sorted(names, key=lambda name: (name == CEILING, name != OURS))


def label_of(name: str, panel: str) -> str:
    """Return a peer's label in a panel, which names the class that is measured there."""
    return ADDS_AS.get(name, name) if panel.startswith("add") else name


def tables_of(measured: Sequence[Point]) -> str:
    """Return a table for each panel: medians in µs, bold where a peer is faster than ours."""
    parts: list[str] = []
    for panel in PANELS:
        here, names = of_panel(measured, panel)
        rows = [
            [f"{point.rows:,}", *(cell(point, name) for name in names), f"{point.ratios[CEILING].median:.0%}"]
            for point in here
        ]
        labels = [label_of(name, panel) for name in names]
        lines = table(["rows", *labels, "of the ceiling"], rows, words=0)
        parts.append(f"**{panel}**, µs per call\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def cell(point: Point, name: str) -> str:
    """Return a peer's median, in bold if the peer is faster than ours; "" if it wasn't measured."""
    if name not in point.microseconds:
        return ""
    text = three_digits(point.microseconds[name].median)
    return f"**{text}**" if name not in (OURS, CEILING) and point.ratios[name].median < 1 else text


def comparison(measured: Sequence[Point]) -> str:
    """Return how often our buffer is the fastest, and the points where others are faster, as sentences."""
    faster: dict[str, list[int]] = {}
    behind = 0
    for point in measured:
        ahead = [n for n, ratio in point.ratios.items() if n != CEILING and ratio.median < 1]
        behind += bool(ahead)
        for name in ahead:
            faster.setdefault(f"{label_of(name, point.panel)} ({point.panel})", []).append(point.rows)
    places = "; ".join(
        f"{name} at {', '.join(map(str, rows))} row{'' if rows == [1] else 's'}"
        for name, rows in faster.items()
    )
    return (
        f"Our buffer is the fastest at {len(measured) - behind} of {len(measured)} points."
        f"{f' Faster than ours: {places}.' if places else ''}"
    )


def section_of(measured: Sequence[Point], skipped: Mapping[str, str], output: Path | None) -> str:
    """Return the section of the page on one capacity."""
    capacity = measured[0].capacity
    picture = (
        f"![Time of add and sample over the number of rows](article-{capacity}.svg)\n\n" if output else ""
    )
    reasons = "; ".join(f"{name} ({reason})" for name, reason in skipped.items())
    absent = f" Not measured: {reasons}." if reasons else ""
    return f"### {capacity:,} rows\n\n{picture}{comparison(measured)}{absent}\n\n{tables_of(measured)}\n"


def about_of(measured: Sequence[Point], rounds: int) -> str:
    """Return the caption of the tables."""
    spreads = [spread for point in measured for spread in point.microseconds.values()]
    relative = float(np.median([(s.upper - s.lower) / s.median for s in spreads]))
    fields = " + ".join(map(str, FIELDS.values()))
    return (
        f"Medians of {rounds} interleaved rounds; rows of {fields} float32, alpha {ARTICLE_ALPHA}, beta "
        f"{BETA}; full buffers. The interquartile range is {relative:.0%} of the median (itself the median "
        "over all figures; the record has the quartiles). The ceiling is the simplest NumPy call that moves "
        "the same bytes; the last column is its time divided by ours."
    )


COLOURS = {name: f"C{place}" for place, name in enumerate(PEERS)} | {
    OURS: "black",
    "Python sum tree": "navy",  # the eighth colour is grey
    CEILING: "0.55",
}
MIN_DISTANCE = 0.055  # between two labels, as a fraction of the axis' height


def draw(measured: Sequence[Point], output: Path) -> Path:
    """Draw the four panels of one capacity: time over batch size, on logarithmic axes, a line per library."""
    from benchmarks.measuring.charts import new_figure, save

    chart = new_figure(11.0, 8.0)
    for number, panel in enumerate(PANELS):
        draw_panel(chart.add_subplot(2, 2, number + 1), measured, panel)
    chart.suptitle(f"A buffer of {measured[0].capacity:,} rows", fontsize=11)
    return save(chart, output, "article")


def draw_panel(axes: Any, measured: Sequence[Point], panel: str) -> None:
    """Draw each library's median with a band between its quartiles and a label at its right end."""
    axes.set(xscale="log", yscale="log", xlabel="rows in one call", ylabel="µs per call")
    ends: dict[str, float] = {}
    here, names = of_panel(measured, panel)
    for name in names:
        rows = [point.rows for point in here if name in point.microseconds]
        spreads = [point.microseconds[name] for point in here if name in point.microseconds]
        style, width = "--" if name == CEILING else "-", 2.2 if name == OURS else 1.3
        medians, colour = [spread.median for spread in spreads], COLOURS[name]
        axes.plot(rows, medians, style, color=colour, linewidth=width, marker="o", markersize=2.5)
        lower, upper = [s.lower for s in spreads], [s.upper for s in spreads]
        axes.fill_between(rows, lower, upper, color=colour, alpha=0.15, linewidth=0)
        ends[name] = medians[-1]
    low, high = (math.log10(value) for value in axes.get_ylim())
    heights = {name: (math.log10(end) - low) / (high - low) for name, end in ends.items()}
    for name, height in spread_labels(heights).items():
        place, across = 10 ** (low + height * (high - low)), axes.get_yaxis_transform()
        axes.text(
            1.02, place, label_of(name, panel), color=COLOURS[name], transform=across, va="center", fontsize=8
        )
    axes.set_ylim(10**low, 10**high)
    axes.set_title(panel, fontsize=10, loc="left")
    axes.grid(alpha=0.3, which="major")


def spread_labels(heights: dict[str, float]) -> dict[str, float]:
    """Move labels up until none overlaps the next lower one; the order is unchanged.

    Example:
        >>> spread_labels({"a": 0.50, "b": 0.51, "c": 0.9})
        {'a': 0.5, 'b': 0.555, 'c': 0.9}
    """
    moved: dict[str, float] = {}
    below = -math.inf
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        below = moved[name] = max(height, below + MIN_DISTANCE)
    return moved


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the tables could not be written, else 0."""
    parser = new_parser("article", "Repeat the benchmark of an article by cpprb's author, with our buffers.")
    add_count(parser, "--rounds", 20, "rounds per point")
    parser.add_argument("--peers", nargs="+", choices=OTHERS, default=OTHERS, help="libraries (default: all)")
    parser.add_argument("--quick", action="store_true", help="measure a few points in 2 rounds, as a test")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder for article.json and the charts"
    )
    add_markdown(parser, "article")
    options = parser.parse_args(argv)
    output: Path | None = options.output
    if output is not None:
        importlib.import_module("matplotlib")  # fail before measuring if it is not installed
        output.mkdir(parents=True, exist_ok=True)
    rounds, slot_seconds = (2, 0.001) if options.quick else (options.rounds, SLOT_SECONDS)
    measured: list[Point] = []
    sections: list[str] = []
    skipped: dict[int, Mapping[str, str]] = {}
    packages: dict[str, None] = {}
    elsewhere: dict[str, str] = {}
    grids = QUICK if options.quick else GRIDS
    for grid in grids:
        with closing(Lineup(options.peers)) as lineup:
            here = list(points(grid, lineup, rounds, slot_seconds))
            packages |= dict.fromkeys(lineup.distributions)
            elsewhere |= lineup.versions_elsewhere
        measured += here
        skipped[grid.capacity] = lineup.skipped
        sections.append(section_of(here, lineup.skipped, output))
    provenance = Provenance.of("article", argv, packages)
    provenance.versions.update(elsewhere)
    body = {"rounds": rounds, "skipped": skipped, "points": measured}
    outputs = Namespace(json=output / "article.json" if output else None, markdown=options.markdown)
    status = write_results(outputs, "article", provenance, body, sections, about_of(measured, rounds))
    if output is not None:
        for grid in grids:
            here = [point for point in measured if point.capacity == grid.capacity]
            draw(here, output / f"article-{grid.capacity}.svg")
    return status
