"""The one doorway to Numba: how this package compiles a function, and what the functions' arrays are called.

Numba turns a Python function over arrays into machine code, once, and keeps the result on disk beside the
source. A kernel's annotations are its signature, so that it is compiled exactly once, at its first call: an
argument of another type is an error, never a second compilation in the middle of a training run.

Left out: parallel loops (`prange`). Most kernels wait for memory, and Ape-X uses the other cores already.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# (Numba and llvmlite have no annotations: nobody but this file sees them)

import logging
import math
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir as llvm
from numba import extending
from numba.core import cgutils as code_generation
from numba.core import types as numba_types
from numba.core.compiler_lock import global_compiler_lock

from replay_tutorial.buffers.interrupts import defer_sigint

WARN_AFTER_SECONDS = 1.0
COMPILING = (
    "replay_tutorial is compiling its kernels, which is needed once on a machine; "
    "`python -m replay_tutorial warm-up` does it in advance"
)
NO_CACHE = (
    "Compiled kernels can't be kept on disk ({}), so that every process compiles them again. "
    "Set NUMBA_CACHE_DIR to a folder that can be written to."
)

# Called inside of a kernel, they convert a number to the type.
int64: Any = numba.int64
uint64: Any = numba.uint64

# A small function that stays Python's for Python, and becomes part of every kernel that calls it.
jitable: Any = extending.register_jitable

# For functions whose machine code is written by hand.
intrinsic: Any = extending.intrinsic
types: Any = numba_types
ir: Any = llvm
cgutils: Any = code_generation

# The arrays of kernels, all contiguous: for the reader what they hold, for Numba their type.
Integers = Annotated[npt.NDArray[np.int64], numba.int64[::1]]
Floats = Annotated[npt.NDArray[np.float64], numba.float64[::1]]
Flags = Annotated[npt.NDArray[np.bool_], numba.boolean[::1]]
Bytes = Annotated[npt.NDArray[np.uint8], numba.uint8[:, ::1]]  # rows, or what else, as [rows, bytes]
Words = Annotated[npt.NDArray[np.uint64], numba.uint64[:, ::1]]  # rows as words of eight bytes, [rows, words]

SCALARS: dict[Any, Any] = {
    int: numba.int64,
    float: numba.float64,
    bool: numba.boolean,
    np.uint64: numba.uint64,
    type(None): numba.void,
}


def writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as kernels take it: a copy if it is read-only, because they are compiled for others."""
    return array if array.flags.writeable else array.copy()


# That compilations took in this process; none is counted after the warning. Some compile others on their way.
compiling = {"seconds": 0.0, "depth": 0.0}
kernels: list[Any] = []  # of all modules that have been imported


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function over arrays to machine code at its first call, cached on disk.

    Kernels assume valid input: the class that owns the arrays has checked it. They release the GIL. The
    compiled function keeps its source as `.py_func`.
    """
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)

    def compile_declared(*_: Any) -> Any:
        with defer_sigint(), global_compiler_lock:
            if not dispatcher.signatures:
                start = time.perf_counter()
                compiling["depth"] += 1
                try:
                    compile_signature(dispatcher)
                finally:
                    compiling["depth"] -= 1
                if not dispatcher.stats.cache_hits and not compiling["depth"]:
                    count_compilation(time.perf_counter() - start)
        return dispatcher

    # Numba calls the one at the first call from Python, and then what it returns, and the other at the
    # compilation of a kernel that calls this one. Neither is called again, so that later calls cost nothing.
    dispatcher._compile_for_args = dispatcher.compile = compile_declared
    kernels.append(dispatcher)
    return dispatcher


def count_compilation(seconds: float) -> None:
    """Log a warning, once, when compilation has taken longer than `WARN_AFTER_SECONDS`."""
    compiling["seconds"] += seconds
    if compiling["seconds"] > WARN_AFTER_SECONDS:
        compiling["seconds"] = -math.inf
        logging.getLogger("replay_tutorial").warning(COMPILING)


def compile_signature(dispatcher: Any) -> None:
    """Compile a kernel for the types that its annotations declare, and for no others ever after."""
    *arguments, result = (numba_type(hint) for hint in hints_of(dispatcher.py_func))
    compile_for = partial(type(dispatcher).compile, dispatcher)
    signature, reason = result(*arguments), None
    try:
        dispatcher.enable_caching()
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        reason = "there is no such folder"
    try:
        compile_for(signature)
    except OSError as error:
        reason = error.strerror
        dispatcher._cache.disable()
        compile_for(signature)
    dispatcher.disable_compile()
    if reason is not None:
        warnings.warn(NO_CACHE.format(reason), RuntimeWarning, stacklevel=2)


def compile_now(*wanted: Callable[..., Any]) -> None:
    """Compile kernels before their first calls: those that processes started later will need, too."""
    for each in wanted:
        each.compile()  # pyright: ignore[reportFunctionMemberAccess]


def compile_all() -> list[str]:
    """Compile the kernels of all modules imported so far; return the folders that keep them."""
    compiling["seconds"] = -math.inf  # this is what the warning recommends
    compile_now(*kernels)
    return sorted({each.stats.cache_path for each in kernels} - {None})


if hasattr(os, "register_at_fork"):  # a child forked while another thread compiles could never compile
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


def hints_of(thing: Any) -> list[Any]:
    """List the annotations of a function, its result last, or of a NamedTuple."""
    return list(get_type_hints(thing, include_extras=True).values())


def numba_type(hint: Any) -> Any:
    """Find Numba's type for an annotation.

    A NamedTuple keeps its names between kernels. From Python it comes as a plain tuple,
    `Annotated[tuple[Any, ...], It]`, and is named inside, `It(*plain)`: taking ten arrays out of a named
    tuple costs 0.7 µs more than taking them one by one, out of a plain one 0.1 µs.
    """
    if hint in SCALARS:
        return SCALARS[hint]
    if get_origin(hint) is Annotated:
        told = get_args(hint)[1]
        return numba_types.Tuple(list(map(numba_type, hints_of(told)))) if isinstance(told, type) else told
    if get_origin(hint) is tuple:
        return numba_types.Tuple(list(map(numba_type, get_args(hint))))
    return numba_types.NamedTuple(list(map(numba_type, hints_of(hint))), hint)
