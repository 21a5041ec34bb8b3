"""Count the updates that the Blind Cliffwalk takes with linear features and more samplers, for the site.

    python chapters/records/cliffwalk_linear.py --json docs/measurements/cliffwalk-linear.json \\
        --markdown docs/measurements/index.md

`cliffwalk.py` counts them for tables and proportional priorities. With linear features, the values of an
action share a bias, Q(s, a) = w[s, a] + b[a], so an update changes the values of all states. The oracle knows
the true values and learns from the row whose update reduces the error most.

Paper: Schaul et al. 2016, sections 3.1 to 3.3 and appendix B.1.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring.output import add_count, add_outputs, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table
from replay_course.steps.learning.cliffwalk import FIELDS, GOOD_ENOUGH, STEP_SIZE, memory_of, true_values
from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.buffers.schemes import RankBased

SCRIPT = "chapters/records/cliffwalk_linear.py"
ORACLE = "oracle"
STATES = (8, 10, 12)
# sampler → alpha of the buffer, scheme
SAMPLERS: dict[str, tuple[float, RankBased | None]] = {
    "uniform": (0.0, None),
    "alpha 0.6": (0.6, None),
    "alpha 1": (1.0, None),
    "rank-based, alpha 0.7": (1.0, RankBased(alpha=0.7)),
    ORACLE: (0.0, None),
}
Values = NDArray[np.float64]  # [states, 2]
Row = tuple[int, int, float, int, float]  # of FIELDS


def update(values: Values, row: Row, linear: bool) -> float:
    """Learn from a row; return its TD error."""
    state, action, reward, following, discount = row
    error = reward + discount * values[following].max() - values[state, action]
    if linear:  # the step of the bias
        values[:, action] += STEP_SIZE * error
    values[state, action] += STEP_SIZE * error
    return float(error)


def updates_needed(states: int, sampler: str, linear: bool, seed: int, limit: int = 10**7) -> int:
    """Learn from one row per update, and return the number of updates until the values are accurate.

    Raises:
        RuntimeError: If `limit` updates are not enough.
    """
    columns = memory_of(states)
    # In the buffer's data types, so that a table takes exactly the updates that `cliffwalk.py` counts.
    stored = (columns[name].astype(spec.get("dtype", np.float32)) for name, spec in FIELDS.items())
    rows: list[Row] = list(zip(*(column.tolist() for column in stored), strict=True))
    kinds = sorted(set(rows))
    alpha, scheme = SAMPLERS[sampler]
    buffer = PrioritizedReplayBuffer(len(rows), FIELDS, alpha=alpha, eps=1e-3, seed=seed)
    buffer.add(**columns)
    truth, rng = true_values(states), np.random.default_rng(seed)
    values = rng.normal(0.0, 0.1, (states, 2))
    if linear:
        values += rng.normal(0.0, 0.1, 2)

    def error_after(row: Row) -> float:
        tried = values.copy()
        update(tried, row, linear)
        return float(np.square(tried - truth).mean())

    for count in range(limit):
        if np.square(values - truth).mean() < GOOD_ENOUGH:
            return count
        if sampler == ORACLE:
            update(values, min(kinds, key=error_after), linear)
            continue
        index = buffer.sample(1, beta=0.0, scheme=scheme)["indexes"]
        error = update(values, rows[index[0]], linear)
        buffer.update_priorities(index, np.array([abs(error)]))
    raise RuntimeError(f"{states} states, {sampler}: {limit} updates are not enough")


def spread(counts: Sequence[int]) -> str:
    """Format the median, the minimum and the maximum."""
    return f"{median(counts):,.0f} ({min(counts):,} to {max(counts):,})"


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return 1 if the table could not be written, else 0."""
    description = "Count the updates that Q-learning needs to learn the Blind Cliffwalk."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    add_count(parser, "--states", None, "numbers of states (default: 8 10 12)", 2, nargs="+")
    add_count(parser, "--runs", 10, "runs per sampler, with the seeds 0, 1, 2, ...")
    add_outputs(parser, "cliffwalk-linear")
    given = parser.parse_args(argv)
    outcomes: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    for linear, states in product((False, True), given.states or STATES):
        updates = {
            sampler: [updates_needed(states, sampler, linear, seed) for seed in range(given.runs)]
            for sampler in SAMPLERS
            # With linear features, the oracle reaches values whose error no single row reduces.
            if not (linear and sampler == ORACLE)
        }
        values = "linear" if linear else "table"
        outcomes.append({"values": values, "states": states, "updates": updates})
        cells.append([values, str(states), *map(spread, updates.values())])
    about = f"Updates, medians of {given.runs} runs (min to max); the counts do not depend on the machine."
    provenance = Provenance.of_command(["python", SCRIPT, *argv])
    lines = table(("values", "states", *SAMPLERS), cells, words=2)
    return write_results(given, "cliffwalk-linear", provenance, {"outcomes": outcomes}, lines, about)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
