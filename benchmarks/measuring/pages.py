"""Write a table between its two markers in a page."""

import sys
from collections.abc import Iterable
from pathlib import Path

from replay_tutorial.buffers.runtime.atomic_file import replace_file


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
