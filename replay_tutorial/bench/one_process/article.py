"""`python -m replay_tutorial bench article`: `add` and `sample` over the number of rows.

The article that this project starts from, by cpprb's author, set cpprb beside Reverb and others in four
charts: add and sample, uniform and prioritized, on a buffer of 4,096 rows. Here are the same charts from
one run, and four more at 2^20 rows, which no longer fit into a cache.

Left out: `update_priorities`; `buffers` times it together with the sample that it belongs to.
"""

import argparse
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from replay_tutorial.bench.method.markdown import put_table
from replay_tutorial.bench.method.output import add_count, add_markdown, new_parser, write_record
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.timing import FloatArray, Workload, measure
from replay_tutorial.bench.one_process.article_table import PANELS, Point, relative_spread, section_of
from replay_tutorial.bench.one_process.operations import times_and_ratios, workloads_of
from replay_tutorial.bench.peers import lineup
from replay_tutorial.bench.peers.lineup import Lineup
from replay_tutorial.bench.peers.peer import BETA, FIELDS, OURS, Peer, random_rows
from replay_tutorial.bench.peers.reverb import HelperLost

ARTICLE_ALPHA = 0.4


@dataclass(frozen=True)
class Grid:
    """One size of buffer, and the numbers of rows on its horizontal axes."""

    capacity: int
    adds: tuple[int, ...]
    batches: tuple[int, ...]


STEPS = tuple(range(1, 102, 10))
GRIDS = (
    Grid(4096, STEPS, tuple(2**k for k in range(1, 9))),
    Grid(2**20, STEPS, tuple(2**k for k in range(1, 13))),
)
QUICK = (Grid(256, (1, 11), (2, 8)),)


def maker_of(panel: str, count: int) -> Callable[[Peer], Workload | None]:
    """Return what makes a peer's workload for one place of a panel."""
    prioritized = panel.endswith("prioritized")
    rows = random_rows(np.random.default_rng(2), count)
    if panel.startswith("add"):
        return lambda peer: peer.adding(rows, prioritized=prioritized)
    return lambda peer: peer.sampling(count, prioritized=prioritized)


def seconds_at(
    panel: str, count: int, gathered: Lineup, rounds: int, slot_seconds: float
) -> dict[str, FloatArray]:
    """Measure a point; a peer whose process is lost leaves the lineup, and the others go on without it."""
    while True:
        try:
            workloads = workloads_of(maker_of(panel, count), gathered.peers)
            return measure(workloads, rounds=rounds, slot_seconds=slot_seconds)
        except HelperLost as lost:
            lost.peer.close()
            gathered.peers.remove(lost.peer)
            gathered.skipped[lost.peer.name] = f"from '{panel}' of {count} rows on, as {lost}"
            print(f"{lost.peer.name}: {lost}", flush=True)


def points(grid: Grid, gathered: Lineup, rounds: int, slot_seconds: float) -> Iterator[Point]:
    """Measure one point after the other, every peer in every round."""
    # Samples first: adding leaves the same few rows everywhere, which references would find in the cache.
    for panel in sorted(PANELS, key=lambda panel: panel.startswith("add")):
        for count in grid.adds if panel.startswith("add") else grid.batches:
            seconds = seconds_at(panel, count, gathered, rounds, slot_seconds)
            yield Point(grid.capacity, panel, count, *times_and_ratios(seconds))


def new_article_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    parser = new_parser("article", "Draw the article's charts, with us in them.")
    add_count(parser, "--rounds", 20, "of every point")
    names = list(lineup.PEERS)
    parser.add_argument("--peers", nargs="+", choices=names, default=names, help="only these beside ours")
    parser.add_argument("--quick", action="store_true", help="a few points and rounds, to see that it works")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="write article.json and the charts here"
    )
    add_markdown(parser, "article")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the tables were not written, else 0."""
    options = new_article_parser().parse_args(argv)
    if options.output is not None:
        # Where it is missing, say so before anything is measured.
        importlib.import_module("matplotlib")
    rounds = 2 if options.quick else options.rounds
    names = list(dict.fromkeys([OURS, *options.peers]))
    measured: list[Point] = []
    skipped: dict[int, dict[str, str]] = {}
    packages: dict[str, None] = {}
    elsewhere: dict[str, str] = {}
    for grid in QUICK if options.quick else GRIDS:
        with closing(lineup.gather(grid.capacity, ARTICLE_ALPHA, names)) as gathered:
            skipped[grid.capacity] = gathered.skipped
            packages |= dict.fromkeys(gathered.distributions)
            elsewhere |= gathered.versions_elsewhere
            for point in points(grid, gathered, rounds, 0.001 if options.quick else 0.005):
                print(point, flush=True)
                measured.append(point)
    provenance = Provenance.of("article", argv, packages)
    provenance.versions.update(elsewhere)
    return write(measured, skipped, rounds, provenance, options.output, options.markdown)


def about_of(measured: Sequence[Point], rounds: int) -> str:
    """Return how to read the figures."""
    fields = " + ".join(map(str, FIELDS.values()))
    return (
        f"Medians of {rounds} interleaved rounds; rows of {fields} float32, alpha {ARTICLE_ALPHA}, beta "
        f"{BETA}, buffers full. The relative spread, the width between the quartiles over the median, is "
        f"{relative_spread(measured):.0%} (median of all figures; the record has the quartiles). The "
        "ceiling moves the same bytes by the barest NumPy call; the last column is its time over ours."
    )


def write(
    measured: Sequence[Point],
    skipped: Mapping[int, dict[str, str]],
    rounds: int,
    provenance: Provenance,
    output: Path | None,
    markdown: Path | None,
) -> int:
    """Write the tables, the record, and then the charts; return the exit status."""
    chart = output is not None
    sections = [section_of(capacity, measured, absent, chart=chart) for capacity, absent in skipped.items()]
    text = f"{''.join(sections)}{about_of(measured, rounds)} {provenance}\n"
    print(f"\n{text}", end="")
    status = 0 if put_table(markdown, "article", text) else 1
    if output is not None:
        from replay_tutorial.bench.one_process.article_chart import draw

        output.mkdir(parents=True, exist_ok=True)
        record = {"benchmark": "article", **provenance._asdict(), "rounds": rounds, "skipped": skipped}
        write_record(output / "article.json", {**record, "points": measured})
        for capacity in skipped:
            here = [point for point in measured if point.capacity == capacity]
            draw(here, output / f"article-{capacity}.svg")
    return status
