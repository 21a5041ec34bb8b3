"""Run the checks of a chapter on the notebooks that students hand in.

    python chapters/grade.py 01 submissions/*.ipynb

The program takes the answers from each notebook, and the imports and the checks from the chapter, so that it
doesn't matter whether a student has changed or deleted a check. No other cell runs. The answers run with all
rights of this process: run the program in a container or under an account without other data.
"""

import argparse
import contextlib
import io
import os
from pathlib import Path
from typing import Any

import jupytext

CHAPTERS = Path(__file__).parent


def cells_of(path: Path, *tags: str) -> list[str]:
    """Return the source of the code cells with one of the tags, or of all code cells."""
    cells = [cell for cell in jupytext.read(path).cells if cell.cell_type == "code"]
    return [cell.source for cell in cells if not tags or {*tags} & {*cell.metadata.get("tags", [])}]


def error_of(source: str, names: dict[str, Any]) -> str:
    """Execute a cell without showing its output; return its error, or an empty string."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(source, names)  # noqa: S102 - a student's answer, or a check
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every error is part of the result
        return f"{type(error).__name__}: {error}"
    return ""


def grade(chapter: Path, submission: Path) -> None:
    """Print the result of each check of a chapter, and how many have passed."""
    names: dict[str, Any] = {"__name__": "submission"}
    exec(cells_of(chapter)[0], names)  # noqa: S102 - the chapter's imports
    for source in cells_of(submission, "write", "exercise"):
        if error := error_of(source, names):
            print(f"  a cell with an answer: {error}")
    checks = cells_of(chapter, "try", "check")
    errors = [error_of(source, names) for source in checks]
    for source, error in zip(checks, errors, strict=True):
        print(f"  {source}: {error or 'passed'}")
    print(f"{submission}: {errors.count('')} of {len(errors)} checks passed", flush=True)


def main() -> None:
    """Grade the notebooks named on the command line."""
    os.environ["REPLAY_COURSE"] = ""  # the checks must not store what they accept
    parser = argparse.ArgumentParser(description="Run the checks of a chapter on students' notebooks.")
    parser.add_argument("chapter", help="number of the chapter, such as 01")
    parser.add_argument("notebooks", nargs="+", type=Path)
    arguments = parser.parse_args()
    chapters = sorted(CHAPTERS.glob(f"{arguments.chapter}_*.md"))
    if not chapters:
        parser.error(f"there is no chapter {arguments.chapter!r}; pass two digits, such as 01")
    for path in arguments.notebooks:
        grade(chapters[0], path)


if __name__ == "__main__":
    main()
