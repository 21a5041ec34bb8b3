"""No check accepts a wrong answer, and each accepts right ones of different styles.

`answers/NN_name.py` has the answers to the checks of a chapter as text, by the name that the reader writes:

    WRONG  name → [(words of the message, old text, new text) for an edit of the solution,
                   (words of the message, source) for an answer from scratch]
    RIGHT  name → [source]
    CHECKS name → a check that is used instead of the chapter's

The solution in `chapters/solutions/` is another right answer. From it, a test makes more wrong ones: without
a result, and with NaN, zeros, ones, or always the first result instead of the right one.
"""

import ast
import copy
import functools
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from places import ROOT

from replay_course.exercises import CheckFailed

jupytext = pytest.importorskip("jupytext", reason="the chapters need the extra `notebooks`")

FILES = sorted((Path(__file__).parent / "answers").glob("[0-9]*.py"))
Names = dict[str, Any]


def answers_of(file: Path) -> Names:
    """Return the names of a file with answers."""
    names: Names = {}
    exec(file.read_text(encoding="utf-8"), names)  # noqa: S102 - the answers
    return names


class Chapter:
    """A chapter's imports, solutions and checks, with the answers to these."""

    def __init__(self, file: Path) -> None:
        chapter = ROOT / "chapters" / f"{file.stem}.md"
        cells = [cell for cell in jupytext.read(chapter).cells if cell.cell_type == "code"]
        self.names: Names = {"__name__": "reader"}
        exec(cells[0].source, self.names)  # noqa: S102 - the chapter's imports
        self.solutions = (chapter.parent / "solutions" / f"{file.stem}.py").read_text(encoding="utf-8")
        exec(self.solutions, self.names)  # noqa: S102 - the chapter's solutions
        self.checks = [cell.source for cell in cells if {"try", "check"} & {*cell.metadata.get("tags", [])}]
        answers = answers_of(file)
        self.wrong: dict[str, list[tuple[str, ...]]] = answers["WRONG"]
        self.right: dict[str, list[str]] = answers["RIGHT"]
        self.other_checks: dict[str, str] = answers.get("CHECKS", {})

    def check_of(self, name: str) -> str:
        """Return the cell that checks an answer."""
        return self.other_checks.get(name) or next(
            cell for cell in self.checks if re.search(rf"\b{name}\b", cell)
        )

    def source_of(self, name: str) -> str:
        """Return the source of a solution, under its own name if the chapter has it from a module."""
        solution = self.names[name]
        if getattr(solution, "__module__", "reader") != "reader":
            self.names = vars(sys.modules[solution.__module__]) | self.names
            return re.sub(rf"\b{solution.__name__}\b", name, inspect.getsource(solution))
        for node in ast.parse(self.solutions).body:
            targets = [part for target in getattr(node, "targets", []) for part in ast.walk(target)]
            if name in {getattr(node, "name", ""), *(getattr(part, "id", "") for part in targets)}:
                return ast.get_source_segment(self.solutions, node) or ""
        raise LookupError(f"no solution is called {name}")

    def try_out(self, name: str, source: str) -> None:
        """Run an answer, and its check."""
        names = {"np": np} | self.names
        exec(source, names)  # noqa: S102 - an answer
        exec(self.check_of(name), names)  # noqa: S102 - a check


@functools.cache
def chapter_of(file: Path) -> Chapter:
    """Read a chapter once."""
    return Chapter(file)


CASES = [(file, name) for file in FILES for name in answers_of(file)["WRONG"]]
NAMES = [f"{file.stem.partition('_')[0]}-{name}" for file, name in CASES]
each_name = pytest.mark.parametrize(("file", "name"), CASES, ids=NAMES)
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def like(result: Any, value: float) -> Any:
    """Return a result with all its numbers replaced by one, of the same types if they have it."""
    if isinstance(result, str):
        return result
    if isinstance(result, np.ndarray):
        has_value = result.dtype.kind == "f" or np.isfinite(value)
        return np.full(result.shape, value, result.dtype if has_value else float)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(like(each, value) for each in result))
    if isinstance(result, list | tuple):
        return type(result)(like(each, value) for each in result)
    if isinstance(result, dict):
        return {name: like(each, value) for name, each in result.items()}
    return type(result)(value) if isinstance(result, int | float) and np.isfinite(value) else value


ACTS = {"my_add_many", "my_set_minimum", "my_update", "MyTree", "MyMemory"}  # without results
METHODS = "learn sample find await_can_insert await_can_sample step"  # with results that a check reads
MUTANTS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "none": lambda result, before: None,
    "NaN": lambda result, before: like(result, float("nan")),
    "zeros": lambda result, before: like(result, 0.0),
    "ones": lambda result, before: like(result, 1.0),
    "first": lambda result, before: before[0],
}


def mutant_of(function: Any, mutant: str) -> Any:
    """Return a function that replaces the results of another."""
    before: list[Any] = []

    @functools.wraps(function)
    def replaced(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        before.append(copy.deepcopy(result))
        return MUTANTS[mutant](result, before)

    return replaced


def mutants_of(solution: Any, mutant: str) -> dict[str, Any]:
    """Return wrong answers made from a function, or from a class with each of its methods in turn."""
    if isinstance(solution, FunctionType):
        return {"": mutant_of(solution, mutant)}
    methods = [name for name in METHODS.split() if isinstance(solution, type) and hasattr(solution, name)]
    changes = {name: {name: mutant_of(getattr(solution, name), mutant)} for name in methods}
    module = {"__module__": getattr(solution, "__module__", "")}
    return {name: type("Mutant", (solution,), change | module) for name, change in changes.items()}


@each_name
def test_every_wrong_answer_is_rejected_with_its_reason(file: Path, name: str) -> None:
    chapter = chapter_of(file)
    solution = chapter.source_of(name)
    assert len(chapter.wrong[name]) >= 8
    accepted = []
    for words, *edit in chapter.wrong[name]:
        if len(edit) == 2:
            assert edit[0] in solution, f"{edit[0]!r} is not in the solution"
        source = edit[0] if len(edit) == 1 else solution.replace(edit[0], edit[1])
        try:
            chapter.try_out(name, source)
        except CheckFailed as failed:
            if words not in str(failed):
                accepted.append(f"{' → '.join(edit)}\n{failed}, without {words!r}")
        else:
            accepted.append(f"{' → '.join(edit)}\nis accepted, without {words!r}")
    assert not accepted, "\n\n".join(accepted)


@each_file
def test_a_result_of_nan_or_always_the_same_is_rejected(file: Path) -> None:
    chapter, accepted = chapter_of(file), list[str]()
    for name in chapter.wrong.keys() - ACTS:
        for mutant in MUTANTS:
            for method, wrong in mutants_of(chapter.names[name], mutant).items():
                chapter.names["mutant"] = wrong
                try:
                    chapter.try_out(name, f"{name} = mutant")
                except CheckFailed as failed:
                    print(name, method, mutant, failed)
                else:
                    accepted.append(f"{name} {method}: {mutant}")
    assert accepted == []


@each_name
def test_right_answers_of_every_style_are_accepted(file: Path, name: str) -> None:
    chapter = chapter_of(file)
    assert len(chapter.right[name]) >= 2
    for source in [chapter.source_of(name), *chapter.right[name]]:
        try:
            chapter.try_out(name, source)
        except CheckFailed as failed:
            raise AssertionError(f"{source}\n→ {failed}") from None


def test_every_check_of_a_chapter_has_answers() -> None:
    for file in FILES:
        chapter = chapter_of(file)
        assert {*chapter.wrong} == {*chapter.right}
        for check in chapter.checks:
            assert sum(bool(re.search(rf"\b{name}\b", check)) for name in chapter.wrong) == 1, check
    chapters = sorted((ROOT / "chapters").glob("[0-9]*.md"))
    assert [file.stem for file in FILES] == [path.stem for path in chapters]
