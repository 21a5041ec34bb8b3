"""The article's charts: time over the number of rows, both in powers of ten, one line per library.

The name stands at the line's end, in its colour; names that would lie on each other are moved apart. The
band around a line lies between its quartiles.

Left out: a legend.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from replay_tutorial.bench.method.charts import new_figure, save
from replay_tutorial.bench.one_process.article_table import PANELS, Point, label_of, names_at
from replay_tutorial.bench.peers.lineup import PEERS
from replay_tutorial.bench.peers.peer import CEILING, OURS

COLOURS = {name: f"C{place}" for place, name in enumerate(PEERS)} | {
    OURS: "black",
    "Python sum tree": "navy",  # the eighth colour is grey
    CEILING: "0.55",
}
MIN_DISTANCE = 0.055  # between two names, of the axis' height


def draw(measured: Sequence[Point], output: Path) -> Path:
    """Draw the four panels of one buffer.

    Args:
        measured: Points of one capacity.
        output: The picture, an SVG file.

    Returns:
        `output`.
    """
    chart = new_figure(11.0, 8.0)
    for number, panel in enumerate(PANELS):
        draw_panel(chart.add_subplot(2, 2, number + 1), measured, panel)
    chart.suptitle(f"A buffer of {measured[0].capacity:,} rows", fontsize=11)
    return save(chart, output, "article")


def draw_panel(axes: Axes, measured: Sequence[Point], panel: str) -> None:
    """Draw one line for each library, and its name."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    ends: dict[str, float] = {}
    for name in names_at(measured, panel):
        here = [point for point in measured if point.panel == panel and name in point.microseconds]
        rows = [point.rows for point in here]
        spreads = [point.microseconds[name] for point in here]
        style = "--" if name == CEILING else "-"
        width = 2.2 if name == OURS else 1.3
        medians = [spread.median for spread in spreads]
        axes.plot(rows, medians, style, color=COLOURS[name], linewidth=width, marker="o", markersize=2.5)
        lower, upper = [s.lower for s in spreads], [s.upper for s in spreads]
        axes.fill_between(rows, lower, upper, color=COLOURS[name], alpha=0.15, linewidth=0)
        ends[name] = medians[-1]
    low, high = (math.log10(value) for value in axes.get_ylim())
    heights = {name: (math.log10(end) - low) / (high - low) for name, end in ends.items()}
    for name, height in apart(heights).items():
        axes.text(
            1.02,
            10 ** (low + height * (high - low)),
            label_of(name, panel),
            color=COLOURS[name],
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=8,
        )
    axes.set_ylim(10**low, 10**high)
    axes.set_title(panel, fontsize=10, loc="left")
    axes.set_xlabel("rows in one call", fontsize=9)
    axes.set_ylabel("µs per call", fontsize=9)
    axes.grid(alpha=0.3, which="major")


def apart(heights: dict[str, float]) -> dict[str, float]:
    """Move names up until none lies on the one below it; their order stays.

    Example:
        >>> apart({"a": 0.50, "b": 0.51, "c": 0.9})
        {'a': 0.5, 'b': 0.555, 'c': 0.9}
    """
    moved: dict[str, float] = {}
    below = -math.inf
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        below = moved[name] = max(height, below + MIN_DISTANCE)
    return moved
