"""The one doorway to Numba: how this package compiles a function, and what the functions' arrays are called.

Numba turns a Python function over arrays into machine code, once, and keeps the result on disk beside the
source. A kernel's annotations are its signature, so that it is compiled exactly once: an argument of another
type is an error, never a second compilation in the middle of a training run.

Left out: parallel loops (`prange`). Most kernels wait for memory, and Ape-X uses the other cores already.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# (Numba and llvmlite have no annotations: nobody but this file sees them)

import logging
import warnings
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir as llvm
from numba import extending
from numba.core import cgutils as code_generation
from numba.core import event
from numba.core import types as numba_types

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


class FirstCompilation(event.Listener):
    """Logs that kernels are compiled, when the first one is: who waits for that should know."""

    told = False

    def on_start(self, event: Any) -> None:
        """Log it; Numba does not call this for a kernel that is in the cache."""
        if not self.told:
            logging.getLogger("replay_tutorial").info("compiling kernels, once")
        self.told = True

    def on_end(self, event: Any) -> None:
        """Say nothing."""


first_compilation = FirstCompilation()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function over arrays to machine code, cached on disk.

    Kernels assume valid input: the class that owns the arrays has checked it. They release the GIL. The
    compiled function keeps its source as `.py_func`.
    """
    *arguments, result = (numba_type(hint) for hint in hints_of(function))
    try:
        with event.install_listener("numba:compile", first_compilation):
            return numba.njit(result(*arguments), cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        warnings.warn(
            f"{error}; compiling {function.__name__} anew in every process. "
            "Set NUMBA_CACHE_DIR to a folder that can be written to.",
            RuntimeWarning,
            stacklevel=2,
        )
        return numba.njit(result(*arguments), nogil=True, error_model="numpy")(function)


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
