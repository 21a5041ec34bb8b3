"""Count the episodes that Q-learning finishes with buffers of several sizes and schemes, for the recipe.

    python chapters/records/grid_world.py --json docs/measurements/grid-world.json \\
        --markdown docs/recipes/sampling_schemes.md
"""

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measuring.output import add_count, add_outputs, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table
from replay_tutorial.buffers.schemes import Combined, Geometric, Scheme, Uniform

SCRIPT = "chapters/records/grid_world.py"
RECIPE = Path(__file__).parents[2] / "examples" / "large_buffer.py"
CASES: list[tuple[str, Scheme, int]] = [  # scheme as text, scheme, size of the buffer
    *(("Uniform()", Uniform(), size) for size in (1_000_000, 1_000, 10, 1)),
    ("Geometric(half_life=1_000)", Geometric(half_life=1_000), 1_000_000),
    ("Geometric(half_life=10)", Geometric(half_life=10), 1_000_000),
    ("Combined()", Combined(), 1_000_000),
]
HEADS = ("scheme", "size", "episodes: median (min to max)")


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return 1 if the table could not be written, else 0."""
    description = "Count the episodes that tabular Q-learning finishes with large and small buffers."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    add_count(parser, "--steps", 50_000, "steps per run")
    add_count(parser, "--runs", 10, "runs per case, with the seeds 0, 1, 2, ...")
    add_outputs(parser, "grid-world")
    arguments = parser.parse_args(argv)
    recipe: dict[str, Any] = runpy.run_path(str(RECIPE))
    cells: list[list[str]] = []
    outcomes: list[dict[str, Any]] = []
    for text, scheme, size in CASES:
        runs: list[list[int]] = [
            recipe["main"](scheme, size, arguments.steps, seed) for seed in range(arguments.runs)
        ]
        counts = [len(lengths) for lengths in runs]
        cells.append(
            [f"`{text}`", f"{size:,}", f"{median(counts):,.0f} ({min(counts):,} to {max(counts):,})"]
        )
        outcomes.append({"scheme": text, "size": size, "episodes": counts})
    body = {"steps": arguments.steps, "outcomes": outcomes}
    about = (
        f"Episodes finished in {arguments.steps:,} steps; {arguments.runs} runs per row. The counts do not "
        "depend on the machine."
    )
    provenance = Provenance.of_command(["python", SCRIPT, *argv])
    return write_results(arguments, "grid-world", provenance, body, table(HEADS, cells, words=1), about)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
