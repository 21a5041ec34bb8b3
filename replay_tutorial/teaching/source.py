"""Live source in a notebook: chapters show the code that Python has imported.

    show(SumTree.set)

displays the source of the function with its file and line number, so the code in a chapter is never out of
date.
"""

import inspect
import textwrap
from pathlib import Path
from typing import Any

import replay_tutorial

FOLDER = Path(replay_tutorial.__file__).parents[1]


class Source:
    """The source code of an object, which a notebook displays with syntax highlighting."""

    def __init__(self, thing: Any) -> None:
        """Find the source of a module, class, function, method or kernel.

        Raises:
            TypeError: If the object has no source, such as a number.
        """
        thing = getattr(thing, "py_func", thing)  # the Python function of a compiled kernel
        if isinstance(thing, property):
            thing = thing.fget
        thing = inspect.unwrap(thing)  # an atomic operation is a Numba object that wraps a function
        lines, first = inspect.getsourcelines(thing)
        path = Path(inspect.getsourcefile(thing) or "").resolve()
        place = path.relative_to(FOLDER) if path.is_relative_to(FOLDER) else Path(path.name)
        self.place = f"{place.as_posix()}:{max(first, 1)}"
        self.text = textwrap.dedent("".join(lines)).strip()

    def __repr__(self) -> str:
        return f"{self.place}\n\n{self.text}"

    def _repr_markdown_(self) -> str:
        return f"`{self.place}`\n\n```python\n{self.text}\n```"


def show(thing: Any) -> Source:
    """Return the source of a module, class, function, method or kernel, for display in a notebook.

    Example:
        >>> from replay_tutorial.teaching.exercises import NotYet
        >>> show(NotYet).text.splitlines()[0]
        'class NotYet(CheckFailed):'
    """
    return Source(thing)
