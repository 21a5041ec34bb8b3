"""Train the recurrent DQN of the recipe with and without memory, for the recipe.

    python chapters/records/recurrent_dqn.py --json docs/measurements/recurrent-dqn.json \\
        --markdown docs/recipes/sequences.md
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

SCRIPT = "chapters/records/recurrent_dqn.py"
RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "programs" / "recurrent.py"
AGENTS = {"with memory": True, "without memory": False}  # agent → `memory`
HEADS = ("network", "mean return: median (min to max)")


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return 1 if the table could not be written, else 0."""
    description = "Train a recurrent DQN on a task that requires memory."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    add_count(parser, "--steps", 700, "steps per corridor")
    add_count(parser, "--runs", 10, "runs per network, with the seeds 0, 1, 2, ...")
    add_outputs(parser, "recurrent-dqn")
    arguments = parser.parse_args(argv)
    recipe: dict[str, Any] = runpy.run_path(str(RECIPE))
    recipe["torch"].set_num_threads(1)  # more threads don't speed up a network this small
    means = {
        agent: [recipe["train"](arguments.steps, seed, memory)[1] for seed in range(arguments.runs)]
        for agent, memory in AGENTS.items()
    }
    cells = [
        [agent, f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})"] for agent, each in means.items()
    ]
    corridors = recipe["CORRIDORS"]
    body = {"corridors": corridors, "steps": arguments.steps, "mean_returns": means}
    about = (
        f"Mean return of greedy episodes, between -1 and 1; {arguments.steps} training steps in each of "
        f"{corridors} corridors, {arguments.runs} runs per network."
    )
    provenance = Provenance.of_command(["python", SCRIPT, *argv], ("torch",))
    return write_results(arguments, "recurrent-dqn", provenance, body, table(HEADS, cells, words=1), about)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
