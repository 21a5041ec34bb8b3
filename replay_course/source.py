"""Live source in a notebook: chapters show the code that Python has imported.

    show(SumTree.set)

displays the source of the function with its file and line number, so the code in a chapter is never out of
date.
"""

import ast
import inspect
import random
import re
import textwrap
from collections.abc import Iterable
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

import replay_tutorial

FOLDER = Path(replay_tutorial.__file__).parents[1]


class Source:
    """The source code of an object, which a notebook displays with syntax highlighting."""

    def __init__(
        self, thing: Any, first: str = "", last: str = "", docstrings: bool = True, fold: str = ""
    ) -> None:
        """Find the source of a module, class, function, method or kernel; see `show`."""
        thing = getattr(thing, "py_func", thing)  # the Python function of a compiled kernel
        if isinstance(thing, property):
            thing = thing.fget
        thing = inspect.unwrap(thing)  # an atomic operation is a Numba object that wraps a function
        lines, number = inspect.getsourcelines(thing)
        path = Path(inspect.getsourcefile(thing) or "").resolve()
        place = path.relative_to(FOLDER) if path.is_relative_to(FOLDER) else Path(path.name)
        numbered = list(enumerate("".join(lines).rstrip().split("\n"), start=max(number, 1)))
        if not docstrings:
            left_out = lines_of_docstrings(textwrap.dedent("".join(lines)), max(number, 1))
            numbered = [(at, line) for at, line in numbered if at not in left_out]
        if first or last:
            start = place_of(first, numbered, 0)
            numbered = numbered[start : place_of(last, numbered, start) + 1]
        self.fold = fold
        self.place = f"{place.as_posix()}:{numbered[0][0]}"
        self.text = textwrap.dedent("\n".join(line for _, line in numbered)).strip()

    def __repr__(self) -> str:
        return f"{self.place}\n\n{self.text}"

    def _repr_markdown_(self) -> str:
        code = f"`{self.place}`\n\n```python\n{self.text}\n```"
        if not self.fold:
            return code
        return f'<details markdown="1"><summary>{escape(self.fold)}</summary>\n\n{code}\n\n</details>'


def lines_of_docstrings(source: str, first_number: int) -> set[int]:
    """Return the numbers of the lines of all docstrings, if the first line has the number `first_number`."""
    numbers = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            numbers |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    return {first_number - 1 + number for number in numbers}


def place_of(part: str, numbered: list[tuple[int, str]], start: int) -> int:
    """Return the place of the first line from `start` on that contains `part`."""
    for place, (_, line) in enumerate(numbered[start:], start=start):
        if part in line:
            return place
    raise ValueError(f"No line of the source from line {numbered[start][0]} on contains {part!r}.")


def random_lines(modules: Iterable[ModuleType], count: int = 10) -> None:
    """Print random lines of some modules and their places, without imports, docstrings and comments."""
    lines = list[str]()
    for module in modules:
        path = Path(module.__file__ or "")
        source = path.read_text(encoding="utf-8")
        left_out = lines_of_docstrings(source, 1)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                left_out |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
        for number, line in enumerate(source.split("\n"), start=1):
            if number not in left_out and re.match(r"[^#@]*[a-z]", line):
                lines.append(f"{path.parent.name}/{path.name}:{number}  {line.strip()}")
    print(*random.sample(lines, count), sep="\n")


def show(thing: Any, *, first: str = "", last: str = "", docstrings: bool = True, fold: str = "") -> Source:
    """Return the source of a module, class, function, method or kernel, for display in a notebook.

    Args:
        thing: The module, class, function, method or kernel.
        first: Part of the first line to show; by default, it is the first line of all.
        last: Part of the last line to show, the next one that contains it; by default, `first` shows one
            line, and everything is shown without both.
        docstrings: Whether docstrings are shown.
        fold: What the code does, if it can be skipped: a notebook shows this line, and the code on a click.

    Raises:
        TypeError: If the object has no source, such as a number.
        ValueError: If no line contains `first` or `last`.

    Example:
        >>> from replay_course.exercises import NotYet
        >>> show(NotYet).text.splitlines()[0]
        'class NotYet(CheckFailed):'
    """
    return Source(thing, first, last, docstrings, fold)
