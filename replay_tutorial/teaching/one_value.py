"""The smallest learner that prioritized replay misleads: one value, and eight outcomes of the same state.

The value is to be the mean of the outcomes. Each update draws one outcome in proportion to its error, and
moves the value a little towards it. A rare outcome surprises more than a frequent one, is drawn more often
than it happens, and pulls the value to its side, unless the step is weighted.

A row of another state that is known already has no error: its mass is eps, and as the smallest mass of the
memory it makes every weight small.

Left out: everything else of an agent.

Paper: Schaul et al. 2016, section 3.4.
"""

import numpy as np
import numpy.typing as npt

STEP_SIZE, EPS = 0.02, 0.01


def learn_value(
    outcomes: npt.ArrayLike,
    *,
    first_beta: float,
    last_beta: float,
    known_rows: int = 0,
    updates: int = 2500,
    runs: int = 400,
) -> npt.NDArray[np.float64]:
    """Learn the mean of some outcomes from draws in proportion to |outcome - value|.

    Args:
        outcomes: float[rows], what followed the same state and action in each row.
        first_beta: The exponent of the weights at the first update; from there it goes in a straight line.
        last_beta: The one at the last update.
        known_rows: Rows of other states in the same memory, from which nothing is left to learn.
        updates: How often one row is drawn.
        runs: How many learners; they differ in their draws.

    Returns:
        float64[updates], the value after each update, as a mean over all runs.
    """
    rng = np.random.default_rng(0)
    rows = np.asarray(outcomes, np.float64)
    values, curve, known = np.zeros(runs), np.empty(updates), np.zeros((runs, known_rows))
    for update, beta in enumerate(np.linspace(first_beta, last_beta, updates)):
        errors = np.hstack([rows - values[:, np.newaxis], known])  # float64[runs, rows]
        masses = np.abs(errors) + EPS
        running_sums = masses.cumsum(axis=1)
        queries = rng.random((runs, 1)) * running_sums[:, -1:]
        drawn = (np.arange(runs), (running_sums <= queries).sum(axis=1))
        weights = (masses.min(axis=1) / masses[drawn]) ** beta
        values += STEP_SIZE * weights * errors[drawn]
        curve[update] = values.mean()
    return curve
