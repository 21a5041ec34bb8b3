"""Format numbers and tables as Markdown."""

import math
from collections.abc import Sequence

from replay_course.timing import Spread


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a table; all columns after the first `words` are right-aligned.

    Example:
        >>> table(["workload", "µs"], [["add", "2.1"]])
        ['| workload | µs |', '| --- | ---: |', '| add | 2.1 |']
    """
    rules = ["---" if column < words else "---:" for column in range(len(heads))]
    return ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows)]


def spread_text(spread: Spread | None) -> str:
    """Format a median with its quartiles, such as `8.41 (8.30, 8.66)`; return "" for None."""
    if spread is None:
        return ""
    return f"{three_digits(spread.median)} ({three_digits(spread.lower)}, {three_digits(spread.upper)})"


def three_digits(value: float) -> str:
    """Format a number with three significant digits, at most four decimals, and no exponent.

    Example:
        >>> three_digits(12345.6), three_digits(9.996), three_digits(0.0623)
        ('12,346', '10.0', '0.0623')
    """
    rounded = abs(float(f"{value:.2e}"))  # 9.996 becomes 10.0, which has one decimal less
    if rounded >= 100:
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(max(rounded, 0.01)))
    return f"{value:.{decimals}f}"
