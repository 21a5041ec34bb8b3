"""The chapters: their two files agree, they define nothing, and their exercises can be solved, not skipped.

That every cell runs is seen by `docs/render_chapters.py`, which executes them.
"""

import ast
import json
import re
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from places import ROOT

import replay_tutorial
from replay_course import Playable, draw_masses, notebook_charts, playable
from replay_course.exercises import NotYet

jupytext = pytest.importorskip("jupytext", reason="the chapters need the extra `notebooks`")

CHAPTERS = sorted((ROOT / "chapters").glob("[0-9]*.md"))
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def code_of(path: Path, tag: str | None = None) -> list[str]:
    """The cells of code of a chapter: all, or those with a tag."""
    cells = [cell for cell in jupytext.read(path).cells if cell.cell_type == "code"]
    return [cell.source for cell in cells if tag is None or tag in cell.metadata.get("tags", [])]


@each_chapter
def test_markdown_and_notebook_agree(path: Path) -> None:
    text, notebook = (
        [(cell.cell_type, cell.source, cell.metadata.get("tags")) for cell in jupytext.read(file).cells]
        for file in (path, path.with_suffix(".ipynb"))
    )
    assert text == notebook, (
        f"run: jupytext --sync chapters/{path.name}, then docs/render_chapters.py --notebooks"
    )


@each_chapter
def test_the_notebook_was_executed_and_is_small_enough_to_be_shown(path: Path) -> None:
    cells = [cell for cell in jupytext.read(path.with_suffix(".ipynb")).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells), "run: docs/render_chapters.py --notebooks"
    largest = max(len(json.dumps(output)) for cell in cells for output in cell.outputs)
    assert largest <= 80_000, "base64 makes 80 kB of a chart of 60 kB"
    assert path.with_suffix(".ipynb").stat().st_size <= 700_000


@each_chapter
def test_the_notebook_shows_the_current_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import render_chapters

    notebook = jupytext.read(path.with_suffix(".ipynb"))
    assert not render_chapters.renew_code(notebook), "run: docs/render_chapters.py --code"


@each_chapter
def test_a_chapter_defines_only_what_is_the_readers_own(path: Path) -> None:
    for source in code_of(path):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inside = isinstance(node, ast.FunctionDef) and node.col_offset > 0
                own = inside or node.name.startswith(("my_", "My", "Broken"))
                assert own, f"{node.name}: show it, don't copy it"
            if isinstance(node, ast.Assign):
                names = {getattr(target, "id", "") for target in node.targets}
                assert not names & set(replay_tutorial.__all__)


@each_chapter
def test_cells_are_small(path: Path) -> None:
    skeletons = code_of(path, "write")
    lines = [len(source.splitlines()) for source in code_of(path) if source not in skeletons]
    assert statistics.median(lines) <= 6
    assert max(lines) <= 15
    assert all(len(source.splitlines()) <= 40 for source in skeletons)
    widest = max((line for source in code_of(path) for line in source.splitlines()), key=len)
    assert len(widest) <= 104, f"wider than a page: {widest}"


@each_chapter
def test_a_chapter_runs_without_the_repository(path: Path) -> None:
    assert [
        source for source in code_of(path) if re.search(r'"[./]*(?:docs|records|chapters)/', source)
    ] == []


@each_chapter
def test_there_are_three_exercises_with_a_solution(path: Path) -> None:
    assert len(code_of(path, "exercise")) == len(code_of(path, "check")) == 3
    assert (path.parent / "solutions" / f"{path.stem}.py").is_file()


@each_chapter
def test_every_exercise_and_skeleton_says_what_is_missing(path: Path) -> None:
    known: dict[str, Any] = {}
    for cell in [code_of(path)[0], *code_of(path, "write"), *code_of(path, "exercise")]:
        exec(cell, known)  # noqa: S102 - a cell of a chapter
    assert len(code_of(path, "write")) == len(code_of(path, "try"))
    for check in [*code_of(path, "try"), *code_of(path, "check")]:
        with pytest.raises(NotYet):
            exec(check, dict(known))  # noqa: S102 - a cell of a chapter


@each_chapter
def test_every_solution_passes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    known: dict[str, Any] = {}
    file = path.parent / "solutions" / f"{path.stem}.py"
    solution: Any = compile(file.read_text(encoding="utf-8"), file, "exec")
    for cell in [code_of(path)[0], solution, *code_of(path, "try"), *code_of(path, "check")]:
        exec(cell, known)  # noqa: S102 - a cell of a chapter


def test_a_chart_keeps_the_digits_of_its_labels_and_cuts_those_of_its_coordinates() -> None:
    figure = Figure()
    figure.add_subplot().plot([0, 1], [0, 1 / 3], label="ε = 0.00066, 0.0256")
    figure.axes[0].legend()
    with mpl.rc_context(notebook_charts.STYLE):
        drawn = notebook_charts.html_of(figure, "a line")
    assert "ε = 0.00066, 0.0256" in drawn
    assert not re.search(r"<path[^>]*\d\.\d\d\d", drawn)


def test_the_labels_of_narrow_masses_fit_into_their_boxes() -> None:
    shapes = draw_masses([1.0, 0.0, 3.0, 5.0, 0.5, 2.0, 4.0, 0.5]).shapes
    boxes = [(shape, text) for shape, text in pairwise(shapes) if shape.startswith("<rect")]
    assert len(boxes) == 7
    for box, text in boxes:
        (width,), (size,) = re.findall(r' width="(.*?)"', box), re.findall(r'font-size="(.*?)"', text)
        assert 0.6 * float(size) * len(re.sub("<.*?>", "", text)) <= float(width), text


def test_a_drawing_to_play_with_loads_nothing_and_a_wrong_name_is_refused() -> None:
    for name in ("sum-tree", "ring"):
        shown = Playable(name)._repr_html_()
        assert shown.startswith(f'<iframe data-explore="{name}"')
        assert "src=" not in shown
        assert "import(" not in shown
        assert len(shown) <= 70_000
    tree = Playable("sum-tree", [1.0, 0.5])._repr_html_()
    assert tree.count('data-brief data-priorities="1 0.5"') == 1 and "1 0.5&quot;" in tree, (
        "on the site, in a notebook"
    )
    with pytest.raises(ValueError, match="the drawings are sum-tree, ring"):
        Playable("tree")


def test_without_the_repository_a_sentence_stands_for_a_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playable, "FOLDER", Path("/nowhere"))
    assert "in a clone of the repository" in Playable("ring")._repr_html_()
