"""Train DQN with and without hindsight on the bit-flipping problem, for the recipe.

    python chapters/records/bit_flip.py --json docs/measurements/bit-flip.json \\
        --markdown docs/recipes/hindsight.md
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

SCRIPT = "chapters/records/bit_flip.py"
RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "programs" / "hindsight_n_step.py"
SHARES = {"with hindsight": 0.8, "DQN alone": 0.0}  # agent → relabel
HEADS = ("agent", "success rate: median (min to max)")


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return 1 if the table could not be written, else 0."""
    description = "Train DQN with and without hindsight experience replay to flip bits."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    add_count(parser, "--bits", 15, "number of bits")
    add_count(parser, "--episodes", 2_000, "training episodes per run")
    add_count(parser, "--runs", 10, "runs per agent, with the seeds 0, 1, 2, ...")
    add_outputs(parser, "bit-flip")
    arguments = parser.parse_args(argv)
    recipe: dict[str, Any] = runpy.run_path(str(RECIPE))
    recipe["torch"].set_num_threads(1)  # more threads don't speed up a network this small
    rates: dict[str, list[float]] = {}
    for agent, share in SHARES.items():
        runs = (
            recipe["train"](arguments.bits, arguments.episodes, seed, share, n_step=1)
            for seed in range(arguments.runs)
        )
        rates[agent] = [rate for _, rate in runs]
    cells = [
        [agent, f"{median(each):.1%} ({min(each):.1%} to {max(each):.1%})"] for agent, each in rates.items()
    ]
    body = {"bits": arguments.bits, "episodes": arguments.episodes, "success_rates": rates}
    about = (
        f"Greedy episodes that reach their goal, of 200 per run; {arguments.bits} bits, "
        f"{arguments.episodes:,} training episodes, {arguments.runs} runs per agent."
    )
    provenance = Provenance.of_command(["python", SCRIPT, *argv])
    return write_results(arguments, "bit-flip", provenance, body, table(HEADS, cells, words=1), about)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
