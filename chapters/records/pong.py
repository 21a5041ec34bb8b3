"""Record a finished run on Pong, for the recipe: what it cost, its final score and its learning curve.

    python -m replay_tutorial train SmallALE/Pong-v5 --solved-at 18
    python chapters/records/pong.py runs/RUN --json docs/measurements/pong.json \\
        --chart docs/measurements/pong.svg --markdown docs/recipes/images.md
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring.charts import new_figure, save
from benchmarks.measuring.output import add_outputs, new_file, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table
from replay_tutorial.apex.runs.files import read_columns, read_json
from replay_tutorial.apex.runs.learning_curve import draw_run

SCRIPT = "chapters/records/pong.py"


def main(argv: Sequence[str]) -> int:
    """Read the run; return 1 if the table could not be written, else 0."""
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description="Record a finished run.")
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--chart", type=new_file, metavar="FILE", help="draw the learning curve")
    add_outputs(parser, "pong")
    arguments = parser.parse_args(argv)
    run: Path = arguments.run
    settings: dict[str, Any] = read_json(run / "config.json")
    final: dict[str, Any] = read_json(run / "evaluation.json")
    columns = {"step": int, "update": int, "seconds": float, "SPS": float}
    steps, updates, seconds, rates = read_columns(run / "progress.csv", columns)
    median, fast = np.quantile(rates, [0.5, 0.9]).tolist()
    curve = read_columns(run / "evaluations.csv", {"step": int, "mean": float})
    returns: list[float] = final["returns"]
    cells = [
        ["steps", f"{steps[-1]:,}"],
        ["updates", f"{updates[-1]:,}"],
        ["hours of training", f"{seconds[-1] / 3600:.2f}"],
        ["steps/s, median", f"{median:.0f}"],
        ["steps/s, 90th percentile", f"{fast:.0f}"],
        [f"mean return of {len(returns)} greedy episodes", f"{final['mean']:.2f}"],
        ["standard error of this mean", f"{final['standard_error']:.2f}"],
        ["lowest return", f"{min(returns):g}"],
        ["highest return", f"{max(returns):g}"],
    ]
    if arguments.chart is not None:
        draw(run, arguments.chart)
    parts = [settings, *settings.get("resumed", [])]
    commands = [shlex.join(["python", "-m", "replay_tutorial", *part["command"][1:]]) for part in parts]
    body = {
        "settings": settings["config"],
        "commands": commands,
        "steps": steps[-1],
        "updates": updates[-1],
        "seconds": seconds[-1],
        "steps_per_second": {"median": median, "90th percentile": fast},
        "evaluations": dict(zip(("steps", "means"), curve, strict=True)),
        "final": final,
    }
    about = (
        f"One run, trained in {parts_of(len(commands))}, the first with `{commands[0]}`. A step repeats an "
        "action for four frames. The greedy episodes were not used to select the policy."
    )
    options = [option for option in argv if option != str(run)]
    provenance = Provenance.of_command(
        ["python", SCRIPT, "runs/RUN", *options], ("torch", "gymnasium", "ale-py")
    )
    lines = table(("", settings["config"]["environment"]), cells, words=1)
    return write_results(arguments, "pong", provenance, body, lines, about)


def parts_of(count: int) -> str:
    """Return "1 part" or "2 parts"."""
    return f"{count} part" + "s" * (count > 1)


def draw(run: Path, output: Path) -> Path:
    """Draw the returns of the actors and of the evaluations."""
    figure = new_figure(6.0, 3.4)
    axes: Any = figure.add_subplot()
    draw_run(axes, run, "", "C0")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("points minus the opponent's points")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    return save(figure, output, "pong")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
