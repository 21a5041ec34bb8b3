"""The picture of `bench scale`: time against capacity, and time against the batch.

Left out: the quartiles, which are in the table.
"""

from collections.abc import Mapping
from pathlib import Path

from replay_tutorial.bench.method.charts import new_figure, save
from replay_tutorial.bench.method.timing import Spread

Times = Mapping[str, Mapping[int, Spread]]  # operation → size → µs


def draw(of_capacity: Times, of_batch: Times, output: Path) -> Path:
    """Draw two panels: a straight line in the left one is logarithmic, in the right one a power.

    Args:
        of_capacity: Operation → capacity → µs.
        of_batch: Operation → batch size → µs.
        output: The picture, an SVG file.
    """
    figure = new_figure(9.6, 4.0)
    for place, (times, label) in enumerate([(of_capacity, "capacity"), (of_batch, "batch")]):
        axes = figure.add_subplot(1, 2, place + 1)
        for name, spreads in times.items():
            axes.plot(list(spreads), [s.median for s in spreads.values()], "o-", markersize=3, label=name)
        axes.set_xscale("log", base=2)
        if label == "batch":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
        axes.set_ylabel("µs per call, median")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    return save(figure, output, "scale")
