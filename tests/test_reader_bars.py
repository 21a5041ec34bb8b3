"""What a reader of the chapters finds in the core: no figure got worse, and each module names its chapter."""

import ast
import inspect
import json
import re
from pathlib import Path

import pytest
import reader_bars
from places import PACKAGE, ROOT, modules_in

import replay_tutorial

CHAPTERS = {path.name.partition("_")[0]: path for path in (ROOT / "chapters").glob("[0-9]*.md")}
BUILT = [path for path in modules_in() if reader_bars.BUILT.search(path.read_text(encoding="utf-8"))]


def test_no_figure_is_worse_than_its_bar_and_the_recorded_one() -> None:
    figures, recorded = reader_bars.measure(), json.loads(reader_bars.RECORDED.read_text(encoding="utf-8"))
    assert figures.keys() == recorded.keys(), "run `python tests/reader_bars.py --record`"
    slack = 1.01  # for numbers of lines, which change with every comment; the others are smaller than 100
    limits = {name: max(int(slack * recorded[name]), reader_bars.bar_of(name) or 0) for name in figures}
    worse = [name for name, value in figures.items() if value > limits[name]]
    assert not worse, {name: f"{figures[name]}, recorded {recorded[name]}" for name in worse}


def test_each_module_of_the_core_names_a_chapter() -> None:
    assert {path.stem for path in reader_bars.core()} <= {path.stem for path in BUILT}


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_is_built_in_a_chapter_that_mentions_it(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (built,) = reader_bars.BUILT.findall(ast.get_docstring(tree) or "")
    number, title = built
    chapter = CHAPTERS[number].read_text(encoding="utf-8")
    assert re.search(rf"^# {re.escape(title)}(: .*)?$", chapter, re.MULTILINE), "the title is another one"
    definitions = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    words = [path.stem, path.stem.replace("_", " "), *(node.name for node in definitions)]
    assert re.search(rf"\b({'|'.join(words)})", chapter), f"chapter {number} mentions none of {words}"
    for node in definitions:
        assert reader_bars.BUILT.findall(ast.get_docstring(node) or "") in ([], [built]), node.name


@pytest.mark.parametrize("name", replay_tutorial.__all__)
def test_a_public_class_names_the_chapter_of_its_module(name: str) -> None:
    public = getattr(replay_tutorial, name)
    module = inspect.getmodule(public)
    if inspect.isclass(public) and Path(module.__file__) in BUILT:
        assert reader_bars.BUILT.search(inspect.getdoc(public))[0].strip() in module.__doc__
