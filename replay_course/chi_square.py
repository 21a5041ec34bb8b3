"""Pearson's chi-square test: do counts agree with the expected probabilities?

    χ² = Σ_i (drawn_i − expected_i)² / expected_i

With correct probabilities, χ² is close to the number of cells; with wrong ones it grows with the number of
draws. By Wilson and Hilferty, ∛(χ² / k) with k degrees of freedom is approximately normal. The limit rejects
correct probabilities once in a million tests.

Source: Pearson 1900; Wilson and Hilferty 1931, "The distribution of chi-square".
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LIMIT = 4.75  # standard deviations; a normal variable exceeds it with probability 1e-6
MIN_EXPECTED = 5.0  # cells with fewer expected draws are merged, because the test is invalid for them


class Fairness(NamedTuple):
    """The difference between counts and expected counts.

    Attributes:
        chi_square: Pearson's statistic.
        freedom: Degrees of freedom.
        deviations: Standard deviations by which the statistic exceeds its expectation.
        worst: The cell with the largest deviation.
    """

    chi_square: float
    freedom: int
    deviations: float
    worst: int

    @property
    def is_fair(self) -> bool:
        """Whether the counts are consistent with the probabilities."""
        return self.deviations < LIMIT

    @property
    def is_too_even(self) -> bool:
        """Whether the counts are closer to the expected ones than those of independent draws."""
        return self.deviations < -LIMIT

    @property
    def degrees(self) -> str:
        """The degrees of freedom in words."""
        return f"{self.freedom} degree{'' if self.freedom == 1 else 's'} of freedom"


def fairness(counts: npt.ArrayLike, probabilities: npt.ArrayLike) -> Fairness:
    """Test whether cells were drawn with the expected probabilities.

    Args:
        counts: int[n], how often each cell was drawn.
        probabilities: float[n], need not sum to 1; a cell with probability 0 must not have been drawn.

    Example:
        >>> fairness([498, 502], [1, 1]).is_fair, fairness([400, 600], [1, 1]).is_fair
        (True, False)
    """
    drawn, expected = np.asarray(counts, float), np.asarray(probabilities, float)
    expected = expected * (drawn.sum() / expected.sum())
    if (drawn[expected == 0] > 0).any():
        return Fairness(math.inf, 1, math.inf, int(np.argmax((expected == 0) * drawn)))
    worst = int(np.argmax(np.abs(drawn - expected) / np.sqrt(np.maximum(expected, 1e-300))))
    rare = expected < MIN_EXPECTED
    cells = [(drawn[~rare], expected[~rare]), (drawn[rare].sum(), expected[rare].sum())]
    chi_square = sum(float(np.sum((d - e) ** 2 / e)) for d, e in cells if np.sum(e) > 0)
    freedom = int((~rare).sum() + rare.any()) - 1
    if freedom < 1:
        return Fairness(chi_square, 0, 0.0, worst)
    spread = 2 / (9 * freedom)
    deviations = ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return Fairness(chi_square, freedom, deviations, worst)
