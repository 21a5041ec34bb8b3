"""What all charts share: a figure without a window, and an SVG file that only changes with its figures.

A chart is made on white. Opened alone it turns dark with the system. A page has a palette of its own and
turns its charts over itself: it asks for them with `#on-page` behind the address, and then they stay light.

Left out: what is drawn.
"""

import io
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

ON_PAGE = "on-page"  # the name of a chart's outermost element, which is then the target
# What is white becomes #1f1f1f, as what lies around the chart; the hue is turned back, so that colours stay.
IN_THE_DARK = "background: #1f1f1f; filter: invert(0.88) hue-rotate(180deg);"
STYLE = f"<style>@media (prefers-color-scheme: dark) {{ svg:not(:target) {{ {IN_THE_DARK} }} }}</style>"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def save(figure: Figure, output: Path, name: str) -> Path:
    """Write a figure without a date, and with names made from `name`: it is the same file every time."""
    written = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    output.write_text(dark_with_the_system(written.getvalue()), encoding="utf-8", newline="\n")
    return output


def dark_with_the_system(svg: str) -> str:
    """Return an SVG file's text that turns dark with the system where the file is opened alone."""
    return re.sub(r"<svg\b([^>]*)>", lambda tag: f'<svg id="{ON_PAGE}"{tag[1]}>\n {STYLE}', svg, count=1)
