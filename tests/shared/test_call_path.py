"""A call of the shared sampler can be followed: through few files, and kernels with few arguments.

Python's functions are those that are really entered. Inside of compiled kernels nobody can look, so for each
kernel that an entered function names, all that it names in turn is counted, kernels and functions that are
compiled into it, whether they are reached or not.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np
import pytest
from places import PACKAGE, modules_in

from replay_tutorial import MPPrioritizedReplayBuffer

MAX_FILES, MAX_ARGUMENTS = 9, 8
SHARED, BUFFERS = ({path.stem for path in modules_in(PACKAGE / name)} for name in ("shared", "buffers"))


def follow(call: Callable[[], object]) -> tuple[set[str], set[str]]:
    """Make a call; return the functions that it went through, as file:function, and their files."""
    found: set[str] = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            found.add(f"{path.relative_to(PACKAGE).as_posix()}:{frame.f_code.co_qualname}")
            found.update(kernels_of(frame.f_code, frame.f_globals, set()))

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found, {name.partition(":")[0] for name in found}


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


@pytest.fixture
def buffer():
    """A buffer whose tree is made and whose kernels have run."""
    buffer = MPPrioritizedReplayBuffer(64, {"obs": {"shape": 4}, "reward": {}}, seed=0)
    buffer.add(obs=np.zeros((10, 4)), reward=np.zeros(10))
    buffer.update_priorities(buffer.sample(8)["indexes"], np.ones(8))
    return buffer


def test_a_sample_goes_through_ten_files_at_most(buffer):
    functions, files = follow(lambda: buffer.sample(8))
    assert {"shared/sampler.py:draw_rows", "buffers/rows.py:copy_row"} <= functions
    assert len(files) <= MAX_FILES + 1, files  # that of the uniform buffer


def test_an_update_goes_through_nine_files_at_most(buffer):
    indexes = buffer.sample(8)["indexes"]
    functions, files = follow(lambda: buffer.update_priorities(indexes, np.ones(8)))
    assert "shared/sampler.py:update_rows" in functions
    assert len(files) <= MAX_FILES, files


@pytest.mark.parametrize("name", sorted(SHARED - {"__init__"}))
def test_no_kernel_takes_more_than_eight_arguments(name):
    things = vars(importlib.import_module(f"replay_tutorial.shared.{name}")).values()
    kernels = [thing.py_func for thing in things if hasattr(thing, "py_func")]
    counts = {kernel.__name__: len(inspect.signature(kernel).parameters) for kernel in kernels}
    assert max(counts.values(), default=0) <= MAX_ARGUMENTS, counts


def test_no_file_is_called_like_one_for_a_single_process():
    both = SHARED & BUFFERS
    assert both == {"__init__"}, "a tab or a traceback must tell them apart"
