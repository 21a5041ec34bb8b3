"""The picture of the ablations: a panel for each contrast, a curve with its band for each variant.

Left out: curves of single seeds; the record has them.
"""

from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.apex.runs.learning_curve import band_of_the_mean, on_common_steps
from replay_tutorial.bench.method.charts import new_figure, save


def draw(records: dict[str, dict[str, Any]], output: Path) -> Path:
    """Draw a row for each environment.

    Args:
        records: What `ablations.json` holds, at least one environment.
        output: The picture, an SVG file.
    """
    columns = max(len(record["contrasts"]) for record in records.values())
    figure = new_figure(3.6 * columns, 3.2 * len(records))
    for row, (environment, record) in enumerate(records.items()):
        for column, (contrast, variants) in enumerate(record["contrasts"].items()):
            axes = figure.add_subplot(len(records), columns, row * columns + column + 1)
            for number, (variant, curves) in enumerate(variants.items()):
                steps, values = on_common_steps([(each["steps"], each["returns"]) for each in curves])
                low, high = band_of_the_mean(values)
                axes.fill_between(steps, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
                axes.plot(steps, np.mean(values, axis=0), color=f"C{number}", linewidth=1.2, label=variant)
            axes.set_title(f"{environment}: {contrast}", fontsize=9)
            axes.set_xlabel("environment steps", fontsize=8)
            axes.set_ylabel("greedy return, mean of seeds", fontsize=8)
            axes.tick_params(labelsize=7)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
    return save(figure, output, "ablations")
