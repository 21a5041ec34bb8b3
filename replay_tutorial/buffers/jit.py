"""The one way in which this package compiles a function.

Numba turns a Python function over arrays into machine code, once, and keeps the result on disk beside
the source. Every kernel states its types, so that it is compiled exactly once: an argument of another
type is an error, never a second compilation in the middle of a training run.

Left out: parallel loops (`prange`). Most kernels wait for memory, and Ape-X uses the other cores already.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numba
from numba import njit

# Called inside of a kernel, they convert a number to the type.
int64: Any = numba.int64
uint64: Any = numba.uint64


def kernel(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function over arrays to machine code, cached on disk.

    Kernels assume valid input: the class that owns the arrays has checked it. They release the GIL.

    Args:
        signature: Numba's type string, such as `"void(float64[::1], int64[::1])"`; `[::1]` is a contiguous axis.

    Returns:
        A decorator. The compiled function keeps its source as `.py_func`.
    """

    def compile_cached(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(signature, cache=True, nogil=True, error_model="numpy")(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            warnings.warn(
                f"{error}; compiling {function.__name__} anew in every process. "
                "Set NUMBA_CACHE_DIR to a folder that can be written to.",
                RuntimeWarning,
                stacklevel=2,
            )
            return njit(signature, nogil=True, error_model="numpy")(function)

    return compile_cached
