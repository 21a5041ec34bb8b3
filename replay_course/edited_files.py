"""A copy of a file of the package with edits, which runs beside the original.

    copy = edited_copy(ring, {"if count == 1:": '''
        print(count, "rows")
        if count == 1:
    '''})
    copy.ReplayBuffer(100, {"obs": {}}).add(obs=1.0)

The modules of the core that import the edited one are copied, too, so that the buffers of the copy use it.
The kernels of the copies are compiled when they are first called.
"""

import difflib
import importlib
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Mapping
from hashlib import sha256
from types import ModuleType
from typing import Any

from replay_course.exercises import CheckFailed

FOLDER = "replay_tutorial.buffers"
# The modules that can be edited; each imports only earlier ones of these.
CORE = ("rows", "fields", "ring", "gather", "priorities", "uniform", "prioritized_ring", "prioritized")


class EditedCopy:
    """Buffers of the package with an edited file; a notebook shows the difference from the original.

    Attributes:
        ReplayBuffer: The uniform buffer.
        PrioritizedReplayBuffer: The prioritized buffer.
        changed: Whether an edit changes anything.
        difference: The edits as a unified diff.
    """

    def __init__(self, module: ModuleType, edits: Mapping[str, str]) -> None:
        """Copy a module with edits, and all that import it."""
        name = module.__name__.rpartition(".")[2]
        original = inspect.getsource(module)
        edited = with_edits(original, edits, f"{name}.py")
        self.changed = edited != original
        old, new = original.splitlines(keepends=True), edited.splitlines(keepends=True)
        self.difference = "".join(difflib.unified_diff(old, new, f"{name}.py", f"your {name}.py", n=2))
        prefix = f"my_{sha256(edited.encode()).hexdigest()[:8]}"
        self._copies: dict[str, ModuleType] = {}
        for each in CORE[CORE.index(name) :]:
            package = importlib.import_module(f"{FOLDER}.{each}")
            text = edited if each == name else inspect.getsource(package)
            for copied in self._copies:
                text = re.sub(
                    rf"^( *)from {FOLDER}\.{copied} import",
                    rf"\1from {prefix}_{copied} import",
                    text,
                    flags=re.MULTILINE,
                )
            if each == name or text != inspect.getsource(package):
                self._copies[each] = load(f"{prefix}_{each}", text)

    def __getattr__(self, name: str) -> Any:
        module = {"ReplayBuffer": "uniform", "PrioritizedReplayBuffer": "prioritized"}.get(name, "")
        if not module:
            raise AttributeError(f"an edited copy has no attribute {name!r}")
        copy = self._copies.get(module) or importlib.import_module(f"{FOLDER}.{module}")
        return getattr(copy, name)

    def __repr__(self) -> str:
        return self.difference or "no line has been changed"

    def _repr_markdown_(self) -> str:
        return f"```diff\n{self.difference}```" if self.difference else repr(self)


def with_edits(source: str, edits: Mapping[str, str], file: str) -> str:
    """Return a source in which some lines have been replaced.

    Args:
        source: The original.
        edits: Maps a line, without its indentation, to the lines that replace it. They get its indentation.
        file: Name of the file, for errors.

    Raises:
        CheckFailed: If a line doesn't occur exactly once.
    """
    lines = source.split("\n")
    for old, new in edits.items():
        places = [place for place, line in enumerate(lines) if line.strip() == old.strip()]
        if len(places) != 1:
            raise CheckFailed(
                f"{file} has {len(places)} lines {old.strip()!r}; choose a line that occurs once"
            )
        place = places[0]
        margin = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
        lines[place : place + 1] = textwrap.indent(textwrap.dedent(new).strip("\n").rstrip(), margin).split(
            "\n"
        )
    return "\n".join(lines)


def load(name: str, source: str) -> ModuleType:
    """Execute a source as a module of this name, unless it has been loaded."""
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = f"<{name}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[name] = module  # the cache of kernels imports a kernel's module by its name
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)  # noqa: S102 - the reader's own code
    except BaseException:
        del sys.modules[name]
        raise
    return module


def edited_copy(module: ModuleType, edits: Mapping[str, str]) -> EditedCopy:
    """Return buffers with a copy of a module in which some lines have been replaced.

    Args:
        module: A module of the core, such as `replay_tutorial.buffers.ring`.
        edits: Maps a line, without its indentation, to the lines that replace it. They get its indentation.

    Raises:
        CheckFailed: If a line doesn't occur exactly once.
        SyntaxError: If the edited file is not valid Python.
    """
    return EditedCopy(module, edits)
