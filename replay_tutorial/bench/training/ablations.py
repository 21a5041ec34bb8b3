"""`python -m replay_tutorial bench ablations`: what does each part of Ape-X bring, on a small environment?

One thing at a time is changed in the environment's preset; all variants get the same number of steps and
the same seeds. What counts is the curve of the greedy evaluations: its mean over the seeds, and the band in
which that mean may lie. Where two bands overlap, nothing is said.

All but the number of actors is changed in runs of one process, which don't depend on the machine: the same
seeds give the same curves on any such processor with these versions. Stale parameters need no second
process either: they are published more rarely, for the evaluator as well, so that a contrast is compared
from the first publication of all its variants on.

Left out: settings tuned for each change; with other settings a variant may look better than here.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.runs.learning_curve import band_of_the_mean, on_common_steps, read_curve
from replay_tutorial.apex.runs.run import train
from replay_tutorial.bench.method.markdown import put_table, table
from replay_tutorial.bench.method.output import add_count, add_outputs, chart_file, new_parser, write_record
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.training.ablations_chart import draw

# Contrast → variant → what is changed in the preset. The first variant is the preset itself.
CONTRASTS: dict[str, dict[str, dict[str, Any]]] = {
    "priorities": {"prioritized": {"actors": 0}, "uniform": {"actors": 0, "alpha": 0.0}},
    "n-step": {"3 steps": {"actors": 0}, "1 step": {"actors": 0, "n_step": 1}},
    "parameters": {
        "published every 25 updates": {"actors": 0},
        "every 400": {"actors": 0, "publish_interval": 400},
        "every 800": {"actors": 0, "publish_interval": 800},
    },
    "actors": {"2 actors": {"actors": 2}, "1 actor": {"actors": 1}, "4 actors": {"actors": 4}},
}
STEPS = {"CartPole-v1": 40_000, "LunarLander-v3": 300_000}
UNREACHABLE = 1e9  # a return that no policy reaches, so that no run ends early
HEADS = (
    *("environment", "contrast", "variant", "seeds", "mean over all steps (95% interval)"),
    *("selected policy (95% interval)", "steps with its band above the first's", "below"),
)


@dataclass(frozen=True)
class Curve:
    """The result of one run."""

    seed: int
    steps: list[float]  # of each evaluation
    returns: list[float]  # their means
    final: float  # of the selected policy, on fresh episodes


def config_of(environment: str, total_steps: int, seed: int, changes: dict[str, Any]) -> Config:
    """Return the settings of a run: the preset's, with more and cheaper evaluations, and one change."""
    unchanged = preset(environment)
    config = replace(
        unchanged,
        seed=seed,
        progress=False,
        total_steps=total_steps,
        solved_at=UNREACHABLE,
        evaluation_interval=max(1, unchanged.evaluation_interval // 2),
        confirmation_episodes=0,
    )
    return replace(config, **changes)


def run_once(config: Config) -> Curve:
    """Train, and read the curve of the evaluations.

    Raises:
        KeyboardInterrupt: If Ctrl-C ended the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = train(replace(config, runs=Path(folder)))
        if result.evaluation is None:
            raise KeyboardInterrupt
        steps, returns = read_curve(result.folder / "evaluations.csv", "mean")
    return Curve(config.seed, steps, returns, result.evaluation.mean)


def at_steps(curve: dict[str, Any], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of a curve at these steps: float64[points]."""
    return np.asarray(np.interp(steps, curve["steps"], curve["returns"]), dtype=np.float64)


def steps_of(variants: dict[str, list[dict[str, Any]]]) -> NDArray[np.float64]:
    """Return steps at which all variants of a contrast can be compared: float64[points]."""
    curves = [(curve["steps"], curve["returns"]) for each in variants.values() for curve in each]
    return on_common_steps(curves)[0]


def compare(
    one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]], steps: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the shares of these steps at which the one band lies wholly above the other, and below it."""
    (low, high), (other_low, other_high) = (
        band_of_the_mean(np.array([at_steps(curve, steps) for curve in curves])) for curves in (one, other)
    )
    return float(np.mean(low > other_high)), float(np.mean(high < other_low))


def with_interval(values: Sequence[float]) -> str:
    """Return the mean over the seeds and its 95% bootstrap interval."""
    (low,), (high,) = band_of_the_mean(np.array(values)[:, None])
    return f"{np.mean(values):.1f} ({low:.1f}, {high:.1f})"


def rows_of(environment: str, contrast: str, variants: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """Return one row for each variant; the first is the one compared with."""
    steps = steps_of(variants)
    first = next(iter(variants.values()))
    rows: list[list[str]] = []
    for name, curves in variants.items():
        means = [float(at_steps(each, steps).mean()) for each in curves]
        shares = [f"{share:.0%}" for share in compare(curves, first, steps)]
        rows.append(
            [
                *(environment, contrast, name, str(len(curves)), with_interval(means)),
                with_interval([each["final"] for each in curves]),
                *(["-", "-"] if curves is first else shares),
            ]
        )
    return rows


def table_of(records: dict[str, dict[str, Any]]) -> str:
    """Return the records as a Markdown table, with where each comes from."""
    rows = [
        row
        for environment, record in records.items()
        for contrast, variants in record["contrasts"].items()
        for row in rows_of(environment, contrast, variants)
    ]
    lines = table(HEADS, rows, words=3)
    for environment, record in records.items():
        lines += ["", f"{environment}: {record['total_steps']:,} steps per run. {Provenance.read(record)}"]
    return "\n".join(lines) + "\n"


def measure(
    environment: str, contrasts: Sequence[str], seeds: int, total_steps: int
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Train every variant with the seeds 0, 1, 2, ...; return contrast → variant → its curves."""
    curves: dict[str, dict[str, list[dict[str, Any]]]] = {
        contrast: {variant: [] for variant in CONTRASTS[contrast]} for contrast in contrasts
    }
    for seed in range(seeds):
        done: dict[Config, dict[str, Any]] = {}  # the preset stands in several contrasts
        for contrast in contrasts:
            for variant, changes in CONTRASTS[contrast].items():
                config = config_of(environment, total_steps, seed, changes)
                if config not in done:
                    done[config] = asdict(run_once(config))
                curve = done[config]
                curves[contrast][variant].append(curve)
                mean = sum(curve["returns"]) / len(curve["returns"])
                print(
                    f"{environment} seed {seed}, {contrast}, {variant}: mean of {len(curve['steps'])} "
                    f"evaluations {mean:.1f}, selected policy {curve['final']:.1f}",
                    flush=True,
                )
    return curves


def new_ablations_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    parser = new_parser(
        "ablations", "Take one part of Ape-X away at a time, and compare the learning curves."
    )
    parser.add_argument(
        "--environment", choices=list(STEPS), default="CartPole-v1", help="which (default: %(default)s)"
    )
    parser.add_argument(
        "--contrasts",
        nargs="+",
        choices=list(CONTRASTS),
        default=list(CONTRASTS),
        help="which (default: all); the record of the environment then holds only these",
    )
    add_count(parser, "--seeds", 10, "runs of each variant")
    add_count(parser, "--steps", None, f"environment steps of a run (default: {STEPS})")
    parser.add_argument("--chart", type=chart_file, metavar="FILE", help="draw the curves here, as SVG")
    add_outputs(parser, "ablations", kept="; other environments in an old one stay")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    arguments = new_ablations_parser().parse_args(argv)
    environment, file = arguments.environment, arguments.json
    total_steps = arguments.steps or STEPS[environment]
    records: dict[str, dict[str, Any]] = {}
    if file is not None and file.exists():
        records = json.loads(file.read_text(encoding="utf-8"))
    records[environment] = {
        **Provenance.of("ablations", argv, ("torch", "gymnasium"))._asdict(),
        "total_steps": total_steps,
        "contrasts": measure(environment, arguments.contrasts, arguments.seeds, total_steps),
    }
    if file is not None:
        write_record(file, records, indent=None)
    text = table_of(records)
    print(f"\n{text}")
    if arguments.chart is not None:
        draw(records, arguments.chart)
    return 0 if put_table(arguments.markdown, "ablations", text) else 1
