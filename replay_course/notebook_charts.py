"""Charts in a notebook that use the text colour of the page.

    with chart(x="rows stored", y="µs") as axes:
        axes.plot(rows, microseconds)

Matplotlib writes the SVG with a placeholder colour, which is then replaced by `currentColor`, so a chart is
readable on light and dark pages.
"""

import io
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from IPython.display import HTML, display
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

PLACEHOLDER = "#010203"  # replaced by currentColor, the text colour of the page
STYLE: Any = {
    "path.simplify_threshold": 0.5,  # pixels; keeps a curve of 10,000 points small
    "svg.fonttype": "none",  # text stays text: searchable, and in the font of the page
    "svg.hashsalt": "replay_tutorial",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": PLACEHOLDER,
    "axes.edgecolor": PLACEHOLDER,
    "axes.labelcolor": PLACEHOLDER,
    "xtick.color": PLACEHOLDER,
    "ytick.color": PLACEHOLDER,
    "grid.color": PLACEHOLDER,
    "grid.alpha": 0.2,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=["#e8590c", "#1c7ed6", "#2f9e44", "#ae3ec9", "#e8ae0c", "#868e96"]),
}


@contextmanager
def chart(*, x: str, y: str, height: float = 3.0) -> Generator[Any]:
    """Draw a chart and display it at the end of the `with` block.

    Args:
        x: Label of the horizontal axis, with its unit.
        y: Label of the vertical axis.
        height: Height in inches; the width is 5.4, scaled down on a narrower page.

    Yields:
        The Matplotlib axes; a legend is added if any artist has a label.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4, height), layout="constrained", facecolor="none")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(facecolor="none", xlabel=x, ylabel=y)
        yield axes
        if labels := axes.get_legend_handles_labels()[1]:  # above the axes, where it hides nothing
            columns = max(1, min(len(labels), 67 // (max(map(len, labels)) + 6)))
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)
        display(HTML(html_of(figure, f"{y} against {x}" if y else x)))


@contextmanager
def charts(titles: Sequence[str], *, x: str, y: str, height: float = 1.5) -> Generator[list[Any]]:
    """Draw small charts with the same axes, two in a row, and display them at the end of the `with` block.

    Args:
        titles: Title of each chart.
        x: Label of the horizontal axes, with its unit.
        y: Label of the vertical axes.
        height: Height of a chart in inches; the width of two is 4.4, as on a phone.

    Yields:
        The Matplotlib axes, in the order of the titles.
    """
    with mpl.rc_context(STYLE):
        rows = -(-len(titles) // 2)
        figure = Figure(figsize=(4.4, height * rows + 0.3), layout="constrained", facecolor="none")
        FigureCanvasSVG(figure)
        every = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False).ravel().tolist()
        for axes, title in zip(every, titles, strict=False):
            axes.set_title(title, fontsize=10)
            axes.set_facecolor("none")
        for axes in every[len(titles) :]:
            axes.remove()
        figure.supxlabel(x, fontsize=10)
        figure.supylabel(y, fontsize=10)
        yield every[: len(titles)]
        display(HTML(html_of(figure, f"{y} against {x}: {', '.join(titles)}")))


def html_of(figure: Figure, label: str) -> str:
    """Return a figure as an SVG element in a `div`; `label` is its alternative text."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue().replace(PLACEHOLDER, "currentColor")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Coordinates, which are in tags, are cut to hundredths of a point: a third of the size.
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
    pixels = figure.get_figwidth() * 100
    style = f"width:100%;max-width:{pixels:g}px;height:auto;display:block;margin:auto"
    look = f'role="img" aria-label="{label}" style="{style}"'
    svg = re.sub(r'<svg (.*?)width="[\w.]+" height="[\w.]+"', rf"<svg {look} ", svg, count=1, flags=re.DOTALL)
    return "<div>" + re.sub(r"\n\s*", "\n", svg).strip() + "</div>"
