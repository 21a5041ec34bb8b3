"""Tables in Markdown: how a figure, a spread and a table are written, and where a table goes in a page.

A page holds two marks for each table; what stands between them is replaced, and the rest stays as it is.

Left out: charts.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from replay_tutorial.buffers.atomic_file import replace_file
from replay_tutorial.measuring.timing import Spread


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Lay a table out; all but its first `words` columns hold figures and end on the right.

    Example:
        >>> table(["workload", "µs"], [["add", "2.1"]])
        ['| workload | µs |', '| --- | ---: |', '| add | 2.1 |']
    """
    rules = ["---" if column < words else "---:" for column in range(len(heads))]
    return ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows)]


def spread_text(spread: Spread | None) -> str:
    """Write a median and its quartiles, as in `8.41 (8.30, 8.66)`; nothing of nothing."""
    if spread is None:
        return ""
    return f"{figure(spread.median)} ({figure(spread.lower)}, {figure(spread.upper)})"


def figure(value: float) -> str:
    """Write three significant digits or whole numbers, never a power of ten, and at most four decimals.

    Example:
        >>> figure(12345.6), figure(27.04), figure(0.0623)
        ('12,346', '27.0', '0.0623')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(max(abs(value), 0.01)))
    return f"{value:.{decimals}f}"


def put_table(path: Path | None, mark: str, text: str) -> bool:
    """Put a table into a page, if one is asked for; print what is wrong, and return whether all is well."""
    if path is not None:
        try:
            write_between_marks(path, mark, text)
        except (OSError, ValueError) as error:
            print(f"the table was not written: {error}", file=sys.stderr)
            return False
    return True


def write_between_marks(path: Path, mark: str, text: str) -> None:
    """Replace what stands between the two marks of a name in a page; the rest stays as it is.

    Raises:
        ValueError: If the page does not hold each mark once, in order.
    """
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    page = path.read_text(encoding="utf-8")
    head, _, rest = page.partition(begin)
    _, end_found, tail = rest.partition(end)
    if not end_found or page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(
            f"{path} must hold the marks {begin} and {end} once each, in this order; add them first."
        )
    whole = f"{head}{begin}\n{text}{end}{tail}"
    replace_file(path, lambda unfinished: unfinished.write_text(whole, encoding="utf-8"))
