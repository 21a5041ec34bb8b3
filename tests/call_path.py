"""Follows a call through the package: every function that it enters, and every file.

Python's functions are those that are really entered. Inside of compiled kernels nobody can look, so for each
kernel that an entered function names, all that it names in turn is counted, kernels and functions that are
compiled into it, whether they are reached or not.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from places import PACKAGE


class CallPath(NamedTuple):
    """What a call went through, each list in the order of the first visit."""

    functions: list[str]  # file:function, Python's and kernels
    files: list[str]  # below the package
    calls: int  # of Python functions of the package, repeated ones too


def follow(call: Callable[[], object]) -> CallPath:
    """Make a call and return what it went through; make it once before, so that nothing is new."""
    found: dict[str, None] = {}
    calls = 0

    def enter(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            calls += 1
            found[f"{path.relative_to(PACKAGE).as_posix()}:{frame.f_code.co_qualname}"] = None
            for kernel in kernels_of(frame.f_code, frame.f_globals, set()):
                found[kernel] = None

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    files = dict.fromkeys(name.partition(":")[0] for name in found)
    return CallPath(list(found), list(files), calls)


def kernels_of(
    code: CodeType, names: dict[str, Any], seen: set[str], compiled: bool = False
) -> Iterator[str]:
    """List the kernels, and the functions of hand-written machine code, that a function names.

    What a compiled function names is compiled, too, plain functions included.
    """
    for name in code.co_names:
        thing = names.get(name)
        function = getattr(thing, "py_func", None) or getattr(thing, "_defn", None)  # numba's two kinds
        if function is None and compiled and isinstance(thing, FunctionType):
            function = thing
        source = getattr(function, "__code__", None)
        if source is None or not Path(source.co_filename).is_relative_to(PACKAGE):
            continue
        label = f"{Path(source.co_filename).relative_to(PACKAGE).as_posix()}:{function.__name__}"
        if label not in seen:
            seen.add(label)
            yield label
            yield from kernels_of(source, function.__globals__, seen, compiled=True)
