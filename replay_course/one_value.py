"""The bias of prioritized sampling in the smallest example: a learner of a single value.

The correct value is the mean of several outcomes of one state. Each update samples an outcome in proportion
to its error and moves the value towards it. Without importance weights, a rare outcome with a large error is
sampled too often and biases the value. A row of another state without error has the mass eps, the smallest in
the buffer, and thus makes all other weights small.

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
    """Learn the mean of outcomes that are sampled in proportion to |outcome - value| + EPS.

    Args:
        outcomes: float[rows], the reward of each row; all have the same state and action.
        first_beta: Exponent of the weights at the first update; beta changes linearly.
        last_beta: Exponent of the weights at the last update.
        known_rows: Number of rows of other states in the same buffer, with error 0.
        updates: Number of updates, each from one row.
        runs: Number of learners, which differ in their samples.

    Returns:
        float64[updates], the mean value of all learners after each update.
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
