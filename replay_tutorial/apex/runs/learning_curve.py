"""Learning curves: returns of the actors and of the evaluations over environment steps.

Evaluations are greedy and use fixed seeds; the actors' curve is lower because actors explore. One seed is
weak evidence, so several runs with the same environment and agent are drawn as their mean with a 95%
bootstrap confidence band.

Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from replay_tutorial.apex.runs.files import read_columns
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.buffers.runtime.atomic_file import replace_file

POINTS = 200  # points per mean curve
RESAMPLES = 2_000  # bootstrap resamples of the runs, per band


def read_curve(path: Path, column: str) -> tuple[list[float], list[float]]:
    """Return the steps and the values of one column of a CSV file, without the rows in which it is empty."""
    steps, values = read_columns(path, {"step": float, column: float})
    return steps, values


def draw_curves(runs: Sequence[Path], output: Path) -> Path:
    """Plot the learning curves of one or more runs in a figure, and return its path.

    The suffix of `output` selects the format.

    Raises:
        DamagedFile: If a file of a run can't be read.
        FileNotFoundError: If a folder has no `progress.csv`, or one of several folders no `config.json`.
        OSError: If the figure can't be written.
        ValueError: If `runs` is empty, the runs have different environments, or the format is unknown.
    """
    if not runs:
        raise ValueError("runs is empty; pass at least one folder of a run.")
    # Settings are only needed to compare and group several runs; the names of folders may have been changed.
    configs = [RunFolder.open(run).config() for run in runs] if len(runs) > 1 else []
    kinds = [(config.environment, str(config.agent)) for config in configs] or [("", "")]
    environments = sorted({environment for environment, _ in kinds})
    if len(environments) > 1:
        raise ValueError(
            "the runs have different environments, whose returns can't be compared: "
            f"{', '.join(environments)}. Plot one figure for each."
        )
    # Figure instead of pyplot: it opens no window, has no global state, and works in any thread.
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    groups: dict[str, list[Path]] = {}
    for run, (environment, agent) in zip(runs, kinds, strict=True):
        groups.setdefault(f"{environment}, {agent}", []).append(run)
    for number, (name, members) in enumerate(groups.items()):
        color = f"C{number % 10}"
        if len(members) > 1:
            draw_group(axes, name, members, color)
        else:
            draw_run(axes, members[0], "" if len(runs) == 1 else f" {name}", color)
    axes.set_title(runs[0].resolve().name if len(runs) == 1 else f"{len(runs)} runs")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend()
    kind = output.suffix[1:] or "png"
    replace_file(output, lambda unfinished: figure.savefig(unfinished, dpi=120, format=kind))
    return output


def draw_run(axes: Axes, run: Path, name: str, color: str) -> None:
    """Draw one run: the returns of its actors and of its evaluations."""
    steps, returns = read_curve(run / "progress.csv", "episodic_return")
    axes.plot(steps, returns, color=color, alpha=0.35, linewidth=1, label=f"actors{name}")
    steps, returns = read_curve(run / "evaluations.csv", "mean")
    axes.plot(steps, returns, color=color, marker="o", markersize=3, label=f"evaluation{name}")


def draw_group(axes: Axes, name: str, runs: Sequence[Path], color: str) -> None:
    """Draw the evaluations of several runs: a thin line for each, their mean and its band."""
    curves = [read_curve(run / "evaluations.csv", "mean") for run in runs]
    curves = [(steps, returns) for steps, returns in curves if steps]
    for steps, returns in curves:
        axes.plot(steps, returns, color=color, alpha=0.25, linewidth=1)
    if not curves:
        return
    steps, values = on_common_steps(curves)
    low, high = band_of_the_mean(values)
    axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(steps, values.mean(axis=0), color=color, label=f"{name}, mean of {len(curves)} runs, 95% band")


def on_common_steps(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return common steps, float64[POINTS], and all curves at these steps, float64[curves, POINTS].

    The steps start where the last curve starts. A curve that ends earlier than others keeps its last value,
    because its run was solved.
    """
    first = max(steps[0] for steps, _ in curves)
    last = max(steps[-1] for steps, _ in curves)
    common = np.linspace(first, last, POINTS)
    return common, np.array([np.interp(common, steps, returns) for steps, returns in curves])


def band_of_the_mean(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the 95% bootstrap interval, two float64[points], of the mean of float64[curves, points]."""
    generator = np.random.default_rng(0)  # fixed, so that the figure is reproducible
    seeds = generator.integers(len(values), size=(RESAMPLES, len(values)))
    means = np.array([values[resample].mean(axis=0) for resample in seeds])  # float64[RESAMPLES, points]
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return low, high
