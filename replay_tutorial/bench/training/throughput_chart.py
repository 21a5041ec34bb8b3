"""The picture of the throughput benchmark: an actor's step and a learner's update, cut into parts.

Left out: the runs with processes; the table has those.
"""

from pathlib import Path
from typing import Any

from replay_tutorial.bench.method.charts import new_figure, save

UNITS = {"actor": "one step of one environment", "learner": "one update"}


def draw(record: dict[str, Any], output: Path) -> Path:
    """Draw the parts.

    Args:
        record: With "parts": actor and learner → part → microseconds.
        output: The picture, an SVG file.
    """
    figure = new_figure(8, 3.8)
    for number, (name, parts) in enumerate(record["parts"].items()):
        axes = figure.add_subplot(2, 1, number + 1)
        left, whole = 0.0, sum(parts.values())
        for place, (part, microseconds) in enumerate(parts.items()):
            label = f"{part}, {microseconds / whole:.0%}"
            axes.barh(0, microseconds, left=left, color=f"C{place}", edgecolor="white", label=label)
            left += microseconds
        axes.set_title(f"{name}: {UNITS[name]}, {whole:.1f} µs", fontsize=10, loc="left")
        axes.set_xlim(0, whole)
        axes.set_yticks([])
        axes.set_xlabel("µs", fontsize=8)
        axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.35), frameon=False)
    return save(figure, output, "throughput")
