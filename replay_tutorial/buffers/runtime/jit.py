"""The interface to Numba: the decorator `kernel` and the array types of kernels.

Numba compiles a Python function to machine code. The annotations of a kernel are its signature, so that it is
compiled exactly once, at its first call, and cached on disk (`numba_internals.py`, which is loaded then). An
argument of another type is an error instead of a second compilation in the middle of a training run.

Parallel loops (`prange`) are not used: most kernels are memory-bound, and Ape-X already uses the other cores.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# (Numba and llvmlite are not annotated; only this file and `numba_internals.py` import them)

import os
from collections.abc import Callable
from typing import Annotated, Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir as llvm
from numba import extending
from numba.core import cgutils as code_generation
from numba.core.compiler_lock import global_compiler_lock

# In a kernel, these convert a number to the type.
int64: Any = numba.int64
uint64: Any = numba.uint64

# Returns Numba's type of a record, for the annotations of kernels.
from_dtype: Any = numba.from_dtype

# Decorator of small functions: compiled into each kernel that calls them, plain Python if called from Python.
jitable: Any = extending.register_jitable

# Decorator of functions that generate their own LLVM code, and what they use.
intrinsic: Any = extending.intrinsic
types: Any = numba.types
ir: Any = llvm
cgutils: Any = code_generation

# Contiguous array types for the annotations of kernels, with Numba's type.
Integers = Annotated[npt.NDArray[np.int64], numba.int64[::1]]
Int32s = Annotated[npt.NDArray[np.int32], numba.int32[::1]]  # half the memory
Int32Matrix = Annotated[npt.NDArray[np.int32], numba.int32[:, ::1]]
Matrix = Annotated[npt.NDArray[np.int64], numba.int64[:, ::1]]
Floats = Annotated[npt.NDArray[np.float64], numba.float64[::1]]
Flags = Annotated[npt.NDArray[np.bool_], numba.boolean[::1]]
Bytes = Annotated[npt.NDArray[np.uint8], numba.uint8[:, ::1]]  # usually [rows, bytes]
Words = Annotated[npt.NDArray[np.uint64], numba.uint64[:, ::1]]  # rows as 8-byte words, [rows, words]

kernels: list[Any] = []  # of all imported modules

# A child forked while another thread compiles, or imports what that takes, would inherit held locks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


def writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array, or a copy if it is read-only, because kernels are compiled for writable arrays."""
    return array if array.flags.writeable else array.copy()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that compiles a function to machine code at its first call and caches it on disk.

    Kernels release the GIL. They assume valid arguments, which the class that owns the arrays has checked.
    The Python function remains available as `.py_func`.

    Only a kernel may call a kernel that returns an array; Python passes the arrays to write to. Numba
    converts a returned array by Python code, and an interrupt there becomes a SystemError.
    """
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)

    def compile_declared(*_: Any) -> Any:
        with global_compiler_lock:
            from replay_tutorial.buffers.runtime.numba_internals import compile_once

            compile_once(dispatcher)
        return dispatcher

    # Numba calls `compile` with the types of the arguments at the first call from Python, and then calls its
    # result. It also calls `compile` when it compiles a kernel that calls this one. Later calls don't use it.
    dispatcher.compile = compile_declared
    kernels.append(dispatcher)
    return dispatcher


def compile_now(*wanted: Callable[..., Any]) -> None:
    """Compile kernels before their first call, so that processes started later find them in the cache."""
    for each in wanted:
        each.compile()  # pyright: ignore[reportFunctionMemberAccess]
