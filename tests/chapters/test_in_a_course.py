"""The chapters in a course: the program that grades notebooks, and the times on the page for teachers."""

import re
from pathlib import Path

import pytest
from places import ROOT
from programs import run_python

jupytext = pytest.importorskip("jupytext", reason="grade.py reads notebooks: the extra `notebooks`")

CHAPTER = ROOT / "chapters" / "01_uniform_replay.ipynb"
SOLUTION = ROOT / "chapters" / "solutions" / "01_uniform_replay.py"


def test_grade_counts_the_checks_that_pass_even_if_the_student_has_deleted_them(tmp_path: Path) -> None:
    blank, answered, misspelt = (tmp_path / f"{name}.ipynb" for name in ("blank", "answered", "misspelt"))
    notebook = jupytext.read(CHAPTER)
    jupytext.write(notebook, blank)
    answers = [cell for cell in notebook.cells if {"write", "exercise"} & {*cell.metadata.get("tags", [])}]
    for cell, source in zip(answers, [SOLUTION.read_text(encoding="utf-8"), "", "", ""], strict=True):
        cell.source = source
    notebook.cells = [cell for cell in notebook.cells if "check" not in cell.metadata.get("tags", [])]
    jupytext.write(notebook, answered)
    answers[1].source = "my_rows = [10, 11"
    jupytext.write(notebook, misspelt)
    grade = ROOT / "chapters" / "grade.py"
    graded = run_python(grade, "01", blank, answered, misspelt, encoding="utf-8")
    assert graded.returncode == 0, graded.stderr
    lines = graded.stdout.splitlines()
    told = "  check_written(exercises.check_ring, MyRing): NotYet: MyRing.__len__ is still empty"
    assert lines[0].startswith(told)
    assert f"{blank}: 0 of 4 checks passed" in lines
    assert f"{answered}: 4 of 4 checks passed" in lines
    assert any(line.startswith("  a cell with an answer: SyntaxError") for line in lines)


def test_the_plan_of_a_course_has_the_times_of_the_chapters() -> None:
    page = (ROOT / "docs" / "teach.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+(?:, \d+)? \| (\d\db?) .*? \| (\d+) \|", page, re.MULTILINE)
    planned = {chapter: int(time) for chapter, time in rows}
    stated = {}
    for path in sorted((ROOT / "chapters").glob("[0-9]*.md")):
        found = re.search(r"takes\s+about\s+(\d+)\s+minutes", path.read_text(encoding="utf-8"))
        assert found, f"{path.name} doesn't state its time"
        stated[path.name.partition("_")[0]] = int(found[1])
    assert planned == stated
    assert f"{sum(stated.values())} minutes in all" in page
    for text, chapters in [("00 to 05", "00 01 02 03 04 05"), ("01, 03, 04 and 06", "01 03 04 06")]:
        assert f"{text}, {sum(stated[chapter] for chapter in chapters.split())} minutes" in page
