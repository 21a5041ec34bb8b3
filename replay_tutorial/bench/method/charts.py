"""What all charts share: a figure without a window, and an SVG file that only changes with its figures.

Left out: what is drawn.
"""

from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def save(figure: Figure, output: Path, name: str) -> Path:
    """Write a figure without a date, and with names made from `name`: it is the same file every time."""
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(output, metadata={"Date": None})
    return output
