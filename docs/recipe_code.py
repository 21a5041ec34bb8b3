"""Copy the programs of the recipes into their pages, so that the pages also show them outside the site.

    python docs/recipe_code.py

A page marks the place of a section of a program with a comment before the code:

    <!-- examples/NAME.py:SECTION -->

In the program, the comments `# --8<-- [start:SECTION]` and `# --8<-- [end:SECTION]` enclose the section.
"""

import re
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
CODE = re.compile(
    r"(?ms)^(?P<head><!-- (?P<program>examples/\w+\.py):(?P<section>\w+) -->\n```python\n).*?^```$"
)


def section(program: str, name: str) -> str:
    """Return the lines of a section, without the indentation that they share."""
    text = (ROOT / program).read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^ *# --8<-- \[start:{name}\]\n(.*?)^ *# --8<-- \[end:{name}\]", text)
    if found is None:
        raise SystemExit(f"{program} has no section {name!r}.")
    return re.sub(r"(?m)^ *# --8<-- .*\n", "", dedent(found[1])).strip("\n") + "\n"


def with_programs(page: str) -> str:
    """Return the text of a page with the current code of the programs."""
    return CODE.sub(lambda found: f"{found['head']}{section(found['program'], found['section'])}```", page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_programs(path.read_text(encoding="utf-8")), encoding="utf-8")
