"""Common functions of the charts: a figure without a window, and reproducible SVG files.

Charts are drawn on white. An SVG file that is opened directly follows the system's dark mode. The site's
pages invert charts themselves, so they link them with the fragment `#on-page`, which disables dark mode.
"""

import io
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

ON_PAGE = "on-page"  # ID of the chart's root element, which the fragment makes the target
# White becomes #1f1f1f, the background; the hue rotation restores the colours' hues.
IN_THE_DARK = "background: #1f1f1f; filter: invert(0.88) hue-rotate(180deg);"
STYLE = f"<style>@media (prefers-color-scheme: dark) {{ svg:not(:target) {{ {IN_THE_DARK} }} }}</style>"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; `width` and `height` are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def save(figure: Figure, output: Path, name: str) -> Path:
    """Write a figure as SVG, without a date and with IDs derived from `name`, so that it is reproducible.

    Returns:
        `output`.
    """
    written = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    root = re.compile(r"<svg\b([^>]*)>")
    svg = root.sub(lambda tag: f'<svg id="{ON_PAGE}"{tag[1]}>\n {STYLE}', written.getvalue(), count=1)
    output.write_text(svg, encoding="utf-8", newline="\n")
    return output
