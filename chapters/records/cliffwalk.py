"""Count the updates of the Blind Cliffwalk for chapter 03 and the site, over samplers and lengths.

    python chapters/records/cliffwalk.py --states 8 10 12 14 --json docs/measurements/cliffwalk.json \\
        --markdown docs/measurements/index.md
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from replay_tutorial.measuring.markdown import table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.steps.learning.cliffwalk import updates_needed

SCRIPT = "chapters/records/cliffwalk.py"
# sampler → alpha; None draws from a uniform buffer
ALPHAS: dict[str, float | None] = {"uniform": None, "alpha 0": 0.0, "alpha 0.6": 0.6, "alpha 1": 1.0}
HEADS = ("states", "sampler", "updates: median (min to max)", "times fewer than uniform")


@dataclass(frozen=True)
class Outcome:
    """How many updates one sampler needed."""

    sampler: str
    states: int
    updates: list[int]  # of each run

    @property
    def median(self) -> float:
        """Of all runs."""
        return float(median(self.updates))


def compare(states: int, runs: int, samplers: Sequence[str]) -> list[Outcome]:
    """Learn the walk with each sampler, `runs` times, with seeds 0, 1, 2, ..."""
    return [
        Outcome(name, states, [updates_needed(states, ALPHAS[name], seed) for seed in range(runs)])
        for name in samplers
    ]


def cells_of(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the outcomes for one number of states as rows; the first is the one compared with."""
    rows: list[list[str]] = []
    for outcome in outcomes:
        updates = f"{outcome.median:,.0f} ({min(outcome.updates):,} to {max(outcome.updates):,})"
        ratio = f"{outcomes[0].median / outcome.median:.2f}"
        rows.append([str(outcome.states), outcome.sampler, updates, ratio])
    return rows


def main(argv: Sequence[str]) -> int:
    """Learn, print, and write; return 1 if the table was not written, else 0."""
    about = "Count the updates that a table needs to learn the Blind Cliffwalk."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=about)
    parser.add_argument(
        "--states", type=int, nargs="+", default=[8, 10, 12], help="lengths of the walk (default: 8 10 12)"
    )
    add_count(parser, "--runs", 10, "of each sampler")
    add_outputs(parser, "cliffwalk")
    arguments = parser.parse_args(argv)
    if min(arguments.states) < 2 or max(arguments.states) > 20:
        parser.error("--states must lie between 2 and 20")
    groups = [compare(states, arguments.runs, list(ALPHAS)) for states in arguments.states]
    lines = table(HEADS, [cells for group in groups for cells in cells_of(group)], words=2)
    about = f"Medians of {arguments.runs} runs; the counts do not depend on the machine."
    body = {"outcomes": [outcome for group in groups for outcome in group]}
    return hand_over(
        arguments, "cliffwalk", Provenance.of_command(["python", SCRIPT, *argv]), body, lines, about
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
