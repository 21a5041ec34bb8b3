"""Is a draw fair? Pearson's chi-square test, with a limit that a fair draw passes but once in a million runs.

    χ² = Σ_i (drawn_i − expected_i)² / expected_i

It is near the number of cells, if the draws have the probabilities that they should have, and grows with the
number of draws if they haven't. Wilson and Hilferty: ∛(χ² / k) of k degrees of freedom is nearly normal.

Source: Pearson 1900; Wilson and Hilferty 1931, "The distribution of chi-square".
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LIMIT = 4.75  # standard deviations: a normal number is above it once in a million times
EXPECTED = 5.0  # draws of a cell below which the test means nothing; such cells are put together


class Fairness(NamedTuple):
    """How far counts are from what was expected.

    Attributes:
        chi_square: Pearson's statistic.
        freedom: Its degrees of freedom.
        deviations: By how many standard deviations it is too large.
        worst: The cell that is furthest away.
    """

    chi_square: float
    freedom: int
    deviations: float
    worst: int

    @property
    def is_fair(self) -> bool:
        """Whether counts like these may come of fair draws."""
        return self.deviations < LIMIT


def fairness(counts: npt.ArrayLike, probabilities: npt.ArrayLike) -> Fairness:
    """Compare how often each cell was drawn with how often it should be.

    Args:
        counts: int[n], draws of each cell.
        probabilities: float[n], in proportion; a cell of 0 must not have been drawn.

    Example:
        >>> fairness([498, 502], [1, 1]).is_fair, fairness([400, 600], [1, 1]).is_fair
        (True, False)
    """
    drawn, expected = np.asarray(counts, float), np.asarray(probabilities, float)
    expected = expected * (drawn.sum() / expected.sum())
    if (drawn[expected == 0] > 0).any():
        return Fairness(math.inf, 1, math.inf, int(np.argmax((expected == 0) * drawn)))
    worst = int(np.argmax(np.abs(drawn - expected) / np.sqrt(np.maximum(expected, 1e-300))))
    rare = expected < EXPECTED
    cells = [(drawn[~rare], expected[~rare]), (drawn[rare].sum(), expected[rare].sum())]
    chi_square = sum(float(np.sum((d - e) ** 2 / e)) for d, e in cells if np.sum(e) > 0)
    freedom = int((~rare).sum() + rare.any()) - 1
    if freedom < 1:
        return Fairness(chi_square, 0, 0.0, worst)
    spread = 2 / (9 * freedom)
    deviations = ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return Fairness(chi_square, freedom, deviations, worst)
