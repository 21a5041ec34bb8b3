"""The picture of the learning benchmark: each seed, the interquartile mean, the target.

Left out: learning curves; `plot` draws those.
"""

from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D

from replay_tutorial.measuring.charts import new_figure, save


def draw(records: dict[str, dict[str, Any]], output: Path) -> Path:
    """Draw one panel for each environment.

    Args:
        records: What `learning.json` holds, at least one environment.
        output: The picture, an SVG file.
    """
    figure = new_figure(3.4 * len(records), 3.9)
    labels: dict[str, Line2D] = {}  # agent → its points
    for number, (environment, record) in enumerate(records.items()):
        axes = figure.add_subplot(1, len(records), number + 1)
        for place, (name, summary) in enumerate(record["agents"].items()):
            means = [score["mean"] for score in summary["scores"]]
            # Side by side, so that equal scores don't hide each other.
            spread = [place + 0.3 * (i / max(1, len(means) - 1) - 0.5) for i in range(len(means))]
            (labels[name],) = axes.plot(spread, means, "o", markersize=4, alpha=0.5, color=f"C{place}")
            low, high = summary["interval"]
            axes.plot([place + 0.3] * 2, [low, high], color=f"C{place}", linewidth=2)
            axes.plot(place + 0.3, summary["interquartile_mean"], "D", markersize=6, color=f"C{place}")
        axes.axhline(record["task"]["target"], color="0.4", linestyle="--", linewidth=1)
        axes.set_title(f"{environment}, target {record['task']['target']:g}", fontsize=10)
        axes.set_xlim(-0.5, len(record["agents"]) - 0.2)
        axes.set_xticks([])
        axes.set_ylabel("mean return of 100 greedy episodes")
        axes.grid(alpha=0.3, axis="y")
    # Below the panels, where it hides no point.
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return save(figure, output, "learning")
