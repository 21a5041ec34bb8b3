"""Format numbers and tables as Markdown, and write a table between its two markers in a page."""

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from replay_tutorial.buffers.runtime.atomic_file import replace_file
from replay_tutorial.measuring.timing import Spread


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


def write_table(pages: Iterable[Path], mark: str, text: str) -> bool:
    """Write a table into pages; print an error for each page that fails, and return whether none did."""
    success = True
    for page in pages:
        try:
            write_between_marks(page, mark, text)
        except (OSError, ValueError) as error:
            print(f"the table was not written: {error}", file=sys.stderr)
            success = False
    return success


def pages_with(mark: str, pages: Iterable[Path]) -> list[Path]:
    """Return the pages that contain a table's markers."""
    return [page for page in pages if f"<!-- {mark}:begin -->" in page.read_text(encoding="utf-8")]


def text_between_marks(mark: str, page: Path) -> str:
    """Return the text between a table's markers in a page."""
    text = page.read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark}:begin -->\n")[2].partition(f"<!-- {mark}:end -->")[0]


def write_between_marks(path: Path, mark: str, text: str) -> None:
    """Replace the text between the markers `<!-- mark:begin -->` and `<!-- mark:end -->` in a page.

    Raises:
        ValueError: If the page doesn't contain each marker exactly once, in this order.
    """
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    page = path.read_text(encoding="utf-8")
    head, _, rest = page.partition(begin)
    _, end_found, tail = rest.partition(end)
    if not end_found or page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(
            f"{path} must contain the markers {begin} and {end} exactly once, in this order; add them first"
        )
    whole = f"{head}{begin}\n{text}{end}{tail}"
    replace_file(path, lambda unfinished: unfinished.write_text(whole, encoding="utf-8"))
