"""Train SAC on Pendulum with half of each batch from offline data, and without offline data, for the recipe.

    python chapters/records/half_offline.py --json docs/measurements/half-offline.json \\
        --chart docs/measurements/half-offline.svg --markdown docs/recipes/offline_data.md
"""

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measuring.charts import new_figure, save
from benchmarks.measuring.output import add_count, add_outputs, new_file, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table

SCRIPT = "chapters/records/half_offline.py"
PROGRAM = Path(__file__).parents[2] / "docs" / "recipes" / "programs" / "half_offline_sac.py"
SHARES = {"half offline": 0.5, "online alone": 0.0}  # agent → share of the offline data
HEADS = ("steps", *(f"{agent}: median (min to max)" for agent in SHARES))
EPISODES = 20  # of the offline data

Curves = list[list[float]]  # per run, the mean return of each evaluation


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return 1 if the table could not be written, else 0."""
    description = "Train SAC on Pendulum with and without offline data."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    add_count(parser, "--steps", 1_500, "steps per run")
    add_count(parser, "--every", 250, "steps between evaluations")
    add_count(parser, "--runs", 10, "runs per agent, with the seeds 0, 1, 2, ...")
    parser.add_argument("--chart", type=new_file, metavar="FILE", help="draw the learning curves")
    add_outputs(parser, "half-offline")
    arguments = parser.parse_args(argv)
    program: dict[str, Any] = runpy.run_path(str(PROGRAM))
    torch.set_num_threads(1)  # more threads don't speed up networks this small
    episodes = program["collect"](EPISODES)
    data_return = sum(float(episode.rewards.sum()) for episode in episodes) / EPISODES
    curves: dict[str, Curves] = {
        agent: [
            program["train"](episodes, share, arguments.steps, seed, arguments.every)[1]
            for seed in range(arguments.runs)
        ]
        for agent, share in SHARES.items()
    }
    steps = list(range(arguments.every, arguments.steps + 1, arguments.every))
    cells = [
        [f"{step:,}", *(spread([curve[place] for curve in each]) for each in curves.values())]
        for place, step in enumerate(steps)
    ]
    if arguments.chart is not None:
        draw(steps, curves, data_return, arguments.chart)
    body = {"steps": steps, "data_episodes": EPISODES, "data_return": data_return, "returns": curves}
    about = (
        f"Mean return of ten greedy episodes after each number of steps on Pendulum-v1; {arguments.runs} "
        f"runs per agent. The offline data: {EPISODES} episodes with a mean return of {data_return:,.0f}."
    )
    provenance = Provenance.of_command(["python", SCRIPT, *argv], ("torch", "gymnasium"))
    return write_results(arguments, "half-offline", provenance, body, table(HEADS, cells, words=0), about)


def spread(returns: Sequence[float]) -> str:
    """Format the median, the minimum and the maximum."""
    return f"{median(returns):,.0f} ({min(returns):,.0f} to {max(returns):,.0f})"


def draw(steps: Sequence[int], curves: dict[str, Curves], data_return: float, output: Path) -> Path:
    """Draw the median of each agent, a band from its worst to its best run, and the offline data."""
    figure = new_figure(6.0, 3.4)
    axes: Any = figure.add_subplot()
    for agent, each in curves.items():
        columns = list(zip(*each, strict=True))
        (line,) = axes.plot(steps, [median(column) for column in columns], label=agent)
        low, high = [min(column) for column in columns], [max(column) for column in columns]
        axes.fill_between(steps, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.axhline(data_return, color="0.4", linestyle="--", linewidth=1, label="offline data")
    axes.set_xlabel("steps")
    axes.set_ylabel("mean return of 10 greedy episodes")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    return save(figure, output, "half-offline")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
