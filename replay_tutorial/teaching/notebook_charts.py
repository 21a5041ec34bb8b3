"""Charts in a notebook, in the colours of the page they stand on: one message, and axes with labels.

    with chart(x="rows stored", y="µs") as axes:
        axes.plot(rows, microseconds)

Matplotlib writes the SVG with a colour that nobody uses, and that colour is then replaced by `currentColor`:
the chart is dark on a light page and light on a dark one.

Left out: files. The benchmarks' charts are theirs.
"""

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from IPython.display import HTML, display
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

PAGE = "#010203"  # becomes the page's own colour
LOOK: Any = {
    "svg.fonttype": "none",  # words stay words: they can be found, and take the page's font
    "svg.hashsalt": "replay_tutorial",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": PAGE,
    "axes.edgecolor": PAGE,
    "axes.labelcolor": PAGE,
    "xtick.color": PAGE,
    "ytick.color": PAGE,
    "grid.color": PAGE,
    "grid.alpha": 0.2,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=["#e8590c", "#1c7ed6", "#2f9e44", "#ae3ec9", "#e8ae0c", "#868e96"]),
}


@contextmanager
def chart(*, x: str, y: str, title: str = "", width: float = 6.4, height: float = 3.2) -> Generator[Any]:
    """Draw a chart, and show it at the end of the block.

    Args:
        x: What the horizontal axis tells, with its unit.
        y: The vertical one.
        title: The message, if there is one to be said.
        width: In inches; a narrower page shrinks the chart.
        height: In inches.

    Yields:
        Matplotlib's axes; a legend is made if something has a label.
    """
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(facecolor="none", xlabel=x, ylabel=y, title=title)
        yield axes
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
        display(HTML(html_of(figure, title or f"{y} against {x}")))


def html_of(figure: Figure, label: str) -> str:
    """Return a figure as an SVG element that a page can hold."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue().replace(PAGE, "currentColor")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    pixels = figure.get_figwidth() * 100
    style = f"width:100%;max-width:{pixels:g}px;height:auto;display:block;margin:auto"
    look = f'role="img" aria-label="{label}" style="{style}"'
    svg = re.sub(r'<svg (.*?)width="[\w.]+" height="[\w.]+"', rf"<svg {look} ", svg, count=1, flags=re.DOTALL)
    return "<div>" + re.sub(r"\n\s*", "\n", svg).strip() + "</div>"
