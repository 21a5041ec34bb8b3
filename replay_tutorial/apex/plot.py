"""Learning curves: what the actors brought and what the evaluations brought, against environment steps.

The evaluations are greedy and on fixed seeds; the actors' curve lies below them, because curious actors fall sooner.

Left out: confidence bands over several seeds.
"""

# pyright: reportUnknownMemberType=false
# (matplotlib's own annotations are incomplete)

import csv
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def read_curve(path: Path, column: str) -> tuple[list[float], list[float]]:
    """Return the steps and the values of one column of `progress.csv`, where it has values."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row[column]]
    return [float(row["step"]) for row in rows], [float(row[column]) for row in rows]


def draw_curves(runs: Sequence[Path], output: Path) -> Path:
    """Draw the curves of some runs into one picture.

    Args:
        runs: Run folders, at least one.
        output: The picture; its suffix decides the format.

    Raises:
        FileNotFoundError: If a folder has no `progress.csv`.
        ValueError: If there are no runs.
    """
    if not runs:
        raise ValueError("draw_curves needs at least 1 run folder.")
    # Without pyplot: no window, no global state, and it works in any thread.
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, run in enumerate(runs):
        color = f"C{number % 10}"
        steps, returns = read_curve(run / "progress.csv", "episodic_return")
        axes.plot(steps, returns, color=color, alpha=0.35, linewidth=1, label=None if number else "actors")
        steps, returns = read_curve(run / "evaluations.csv", "mean")
        label = run.name if len(runs) > 1 else "evaluation"
        axes.plot(steps, returns, color=color, marker="o", markersize=3, label=label)
    axes.set_title(runs[0].name if len(runs) == 1 else f"{len(runs)} runs")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(output, dpi=120)
    return output
