"""Count the updates that each sampler needs to learn the Blind Cliffwalk, for chapter 03 and the site.

    python chapters/records/cliffwalk.py --states 8 10 12 14 --json docs/measurements/cliffwalk.json \\
        --markdown docs/measurements/index.md
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measuring.output import add_count, add_outputs, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table
from replay_course.steps.learning.cliffwalk import updates_needed

SCRIPT = "chapters/records/cliffwalk.py"
# sampler → alpha; None is the uniform buffer
ALPHAS: dict[str, float | None] = {"uniform": None, "alpha 0": 0.0, "alpha 0.6": 0.6, "alpha 1": 1.0}
HEADS = ("states", "sampler", "updates: median (min to max)", "uniform / this sampler")


@dataclass(frozen=True)
class Outcome:
    """The number of updates that a sampler needed in each run."""

    sampler: str
    states: int
    updates: list[int]  # per run

    @property
    def median(self) -> float:
        """Median number of updates."""
        return float(median(self.updates))


def compare(states: int, runs: int, samplers: Sequence[str]) -> list[Outcome]:
    """Learn the walk `runs` times with each sampler, with the seeds 0, 1, 2, ..."""
    return [
        Outcome(name, states, [updates_needed(states, ALPHAS[name], seed) for seed in range(runs)])
        for name in samplers
    ]


def cells_of(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the table's rows for one number of states, with ratios to the first outcome."""
    rows: list[list[str]] = []
    for outcome in outcomes:
        updates = f"{outcome.median:,.0f} ({min(outcome.updates):,} to {max(outcome.updates):,})"
        ratio = f"{outcomes[0].median / outcome.median:.2f}"
        rows.append([str(outcome.states), outcome.sampler, updates, ratio])
    return rows


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return 1 if the table could not be written, else 0."""
    description = "Count the updates that tabular Q-learning needs to learn the Blind Cliffwalk."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    states_help = "numbers of states (default: 8 10 12)"
    parser.add_argument("--states", type=int, nargs="+", default=[8, 10, 12], help=states_help)
    add_count(parser, "--runs", 10, "runs per sampler")
    add_outputs(parser, "cliffwalk")
    arguments = parser.parse_args(argv)
    if min(arguments.states) < 2 or max(arguments.states) > 20:
        parser.error("--states must be between 2 and 20")
    groups = [compare(states, arguments.runs, list(ALPHAS)) for states in arguments.states]
    lines = table(HEADS, [cells for group in groups for cells in cells_of(group)], words=2)
    body = {"outcomes": [outcome for group in groups for outcome in group]}
    provenance = Provenance.of_command(["python", SCRIPT, *argv])
    return write_results(arguments, "cliffwalk", provenance, body, lines, how_measured(arguments.runs))


def how_measured(runs: int) -> str:
    """Return the caption of the table."""
    return f"Medians of {runs} runs; the counts do not depend on the machine."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
