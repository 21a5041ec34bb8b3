"""Record one good and several bad runs of Ape-X on CartPole for chapter 08.

    python chapters/records/runs.py

Each bad run differs from the good one in one or two settings. All runs use one process, so the same seed
reproduces them. Some are repeated with other seeds; those with seed 3 are for an exercise. All together take
about two minutes.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring.provenance import Provenance
from replay_tutorial.apex import Config, preset, train

SCRIPT = "chapters/records/runs.py"
STEPS = 60_000
SHOWN = ("step", "episodic_return", "replay_ratio", "td_loss", "q_values", "row_age_p90")

# Name → the settings that differ from those of the healthy run.
RUNS: dict[str, dict[str, Any]] = {
    "healthy": {},
    "steps too large": {"learning_rate": 0.3, "gradient_norm": 1e6},
    "target never updated": {"target_interval": 1_000_000},
    "no exploration": {"epsilon_base": 0.0},
    "too few updates": {"samples_per_insert": 0.1},
    "healthy, seed 2": {"seed": 2},
    "no exploration, seed 2": {"epsilon_base": 0.0, "seed": 2},
    "healthy, seed 3": {"seed": 3},
    "steps too large, seed 3": {"learning_rate": 0.3, "gradient_norm": 1e6, "seed": 3},
    "target never updated, seed 3": {"target_interval": 1_000_000, "seed": 3},
    "too few updates, seed 3": {"samples_per_insert": 0.5, "seed": 3},
}


def settings(changes: dict[str, Any], runs: Path) -> Config:
    """Return the settings of a recorded run."""
    config = replace(
        preset("CartPole-v1"), actors=0, total_steps=STEPS, solved_at=float("inf"), record_interval=75
    )
    config = replace(config, confirmation_episodes=0, evaluation_episodes=5, evaluation_interval=200)
    return replace(config, runs=runs, progress=False, final_episodes=20, **changes)


def numbers(path: Path, columns: Sequence[str]) -> dict[str, list[float | None]]:
    """Return columns of a run's CSV file, with None for empty cells."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name: [float(f"{float(row[name]):.5g}") if row[name] else None for row in rows] for name in columns
    }


def record(changes: dict[str, Any]) -> dict[str, Any]:
    """Train in a temporary folder, and return the run's curves."""
    with tempfile.TemporaryDirectory() as folder:
        result = train(settings(changes, Path(folder)))
        return {
            "changes": changes,
            "end": result.end,
            "steps": result.steps,
            "updates": result.updates,
            "seconds": round(result.seconds, 1),
            "score": None if result.evaluation is None else result.evaluation.mean,
            "progress": numbers(result.folder / "progress.csv", SHOWN),
            "evaluations": numbers(result.folder / "evaluations.csv", ("step", "mean")),
        }


def main(argv: Sequence[str]) -> None:
    """Record the runs, and write the file."""
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description="Record the runs of chapter 08.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "runs.json")
    given = parser.parse_args(argv)
    runs: dict[str, Any] = {}
    for name, changes in RUNS.items():
        runs[name] = record(changes)
        print(
            f"{name}: {runs[name]['end']}, {runs[name]['seconds']} s, score {runs[name]['score']}", flush=True
        )
    provenance = Provenance.of_command(["python", SCRIPT, *argv], ("torch", "gymnasium"))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps({**provenance._asdict(), "runs": runs}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
