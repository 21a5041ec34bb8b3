"""Live source in a notebook: what a chapter shows is what Python has imported.

    show(SumTree.set)

prints the lines of the function as they stand in the file, under the file's name and line. A copy in the
chapter's text could be out of date; this can't.

Left out: nothing is executed, and nothing is shortened but the indentation.
"""

import inspect
import textwrap
from pathlib import Path
from typing import Any

import replay_tutorial

FOLDER = Path(replay_tutorial.__file__).parents[1]


class Source:
    """The source of something, which a notebook shows as Markdown with colours."""

    def __init__(self, thing: Any) -> None:
        """Find the source of a module, class, function, method, or kernel.

        Raises:
            TypeError: If it has none, as a number.
        """
        thing = getattr(thing, "py_func", thing)  # of a kernel the Python function that was compiled
        if isinstance(thing, property):
            thing = thing.fget
        thing = inspect.unwrap(thing)  # an atomic is an object of Numba's around a function
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
    """Return the live source of a module, class, function, method or kernel, for a notebook to show.

    Example:
        >>> from replay_tutorial.teaching.exercises import NotYet
        >>> show(NotYet).text.splitlines()[0]
        'class NotYet(OneLine):'
    """
    return Source(thing)
