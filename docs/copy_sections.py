"""Copy sections of programs and READMEs into pages, so that the pages can be read without the site.

    python docs/copy_sections.py

A comment marks the place of a section of a program, and two comments the place of a section of a README:

    <!-- examples/NAME.py:SECTION -->
    <!-- README.md:SECTION -->
    <!-- end -->

In the source, lines with `--8<-- [start:SECTION]` and `--8<-- [end:SECTION]` enclose the section.
"""

import re
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("[!.]*.md"))
COPY = re.compile(
    r"(?ms)^(?P<head><!-- (?P<file>[\w/]+\.(?:py|md)):(?P<section>[\w-]+) -->\n(?P<code>```python\n)?)"
    r".*?^(?P<tail>(?(code)```|<!-- end -->))$"
)


def section(file: str, name: str) -> str:
    """Return the lines of a section, without the indentation that they share."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^[^\n]*--8<-- \[start:{name}\][^\n]*\n(.*?)^[^\n]*--8<-- \[end:{name}\]", text)
    if found is None:
        raise SystemExit(f"{file} has no section {name!r}.")
    return re.sub(r"(?m)^.*--8<-- .*\n", "", dedent(found[1])).strip("\n") + "\n"


def copied(place: re.Match[str]) -> str:
    """Return the text of a marked place with the current section."""
    lines = section(place["file"], place["section"])
    return place["head"] + (lines if place["code"] else f"\n{lines}\n") + place["tail"]


def with_sections(page: str) -> str:
    """Return the text of a page with the current sections."""
    return COPY.sub(copied, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_sections(path.read_text(encoding="utf-8")), encoding="utf-8")
