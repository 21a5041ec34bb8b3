"""The interface to Numba: the decorator `kernel` and the array types of kernels.

Numba compiles a Python function to machine code, which is cached on disk (`kernel_cache.py`). The annotations
of a kernel are its signature, so that it is compiled exactly once, at its first call. An argument of another
type is an error instead of a second compilation in the middle of a training run.

Parallel loops (`prange`) are not used: most kernels are memory-bound, and Ape-X already uses the other cores.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# (Numba and llvmlite are not annotated; only this file imports them)

import itertools
import logging
import math
import os
import pickle
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import llvmlite
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir as llvm
from numba import extending
from numba.core import bytecode, compiler, serialize
from numba.core import cgutils as code_generation
from numba.core import config as numba_config
from numba.core import types as numba_types
from numba.core.compiler_lock import global_compiler_lock
from numba.misc import appdirs

from replay_tutorial.buffers.runtime.interrupts import defer_sigint
from replay_tutorial.buffers.runtime.kernel_cache import KernelFile, UnknownContentError, digest_of

FOLDER = "replay_tutorial"  # in the user's cache folder and in NUMBA_CACHE_DIR
WARN_AFTER_SECONDS = 1.0
COMPILING = (
    "replay_tutorial is compiling its kernels, which happens once per machine; "
    "run `python -m replay_tutorial warm-up` to compile them in advance"
)
NO_FOLDER = (
    "Compiled kernels can't be cached on disk ({}), so every process compiles them again. "
    "Set NUMBA_CACHE_DIR to a writable folder."
)
NOT_CACHED = "A kernel isn't cached on disk, so every process compiles it again: {}."
VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
# Settings of Numba that change the machine code, from environment variables such as NUMBA_BOUNDSCHECK.
CODE_SETTINGS = ("BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE", "USING_SVML")

config: Any = numba_config

# The name of a function in machine code contains a number that Numba counts from 1 in each process. The
# numbers must differ if a process loads two versions of a function, which two other processes have compiled.
function_numbers: Any = bytecode.FunctionIdentity
function_numbers._unique_ids = itertools.count(secrets.randbits(48))

# In a kernel, these convert a number to the type.
int64: Any = numba.int64
uint64: Any = numba.uint64

# Decorator of small functions: compiled into each kernel that calls them, plain Python if called from Python.
jitable: Any = extending.register_jitable

# Decorator of functions that generate their own LLVM code.
intrinsic: Any = extending.intrinsic
types: Any = numba_types
ir: Any = llvm
cgutils: Any = code_generation

# Contiguous array types for the annotations of kernels, with Numba's type.
Integers = Annotated[npt.NDArray[np.int64], numba.int64[::1]]
Int32s = Annotated[npt.NDArray[np.int32], numba.int32[::1]]  # half the memory
Int32Matrix = Annotated[npt.NDArray[np.int32], numba.int32[:, ::1]]
Floats = Annotated[npt.NDArray[np.float64], numba.float64[::1]]
Flags = Annotated[npt.NDArray[np.bool_], numba.boolean[::1]]
Bytes = Annotated[npt.NDArray[np.uint8], numba.uint8[:, ::1]]  # usually [rows, bytes]
Words = Annotated[npt.NDArray[np.uint64], numba.uint64[:, ::1]]  # rows as 8-byte words, [rows, words]

SCALARS: dict[Any, Any] = {
    int: numba.int64,
    float: numba.float64,
    bool: numba.boolean,
    np.uint64: numba.uint64,
    type(None): numba.void,
}


def writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array, or a copy if it is read-only, because kernels are compiled for writable arrays."""
    return array if array.flags.writeable else array.copy()


# Total compilation time of this process, until a warning is logged, and the depth of nested compilations.
compiling = {"seconds": 0.0, "depth": 0.0}
warned: set[str] = set()  # messages of this process about the cache
kernels: list[Any] = []  # of all imported modules


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that compiles a function to machine code at its first call and caches it on disk.

    Kernels release the GIL. They assume valid arguments, which the class that owns the arrays has checked.
    The Python function remains available as `.py_func`.
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

    # Numba calls `_compile_for_args` at the first call from Python (and then calls its result), and `compile`
    # when it compiles a kernel that calls this one. Later calls use neither and so have no overhead.
    dispatcher._compile_for_args = dispatcher.compile = compile_declared
    kernels.append(dispatcher)
    return dispatcher


def count_compilation(seconds: float) -> None:
    """Add to the total compilation time; once it exceeds `WARN_AFTER_SECONDS`, log a single warning."""
    compiling["seconds"] += seconds
    if compiling["seconds"] > WARN_AFTER_SECONDS:
        compiling["seconds"] = -math.inf
        logging.getLogger("replay_tutorial").warning(COMPILING)


def compile_signature(dispatcher: Any) -> None:
    """Compile a kernel for the types that its annotations declare, and disable other signatures."""
    *arguments, result = (numba_type(hint) for hint in hints_of(dispatcher.py_func))
    dispatcher._cache = KernelCache(dispatcher)
    type(dispatcher).compile(dispatcher, result(*arguments))
    dispatcher.disable_compile()


class KernelCache:
    """The cache of one kernel, with the methods that Numba's dispatcher calls."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        self._file: KernelFile | None = None
        self.cache_path: str | None = None  # the folder of the file

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled kernel from the cache, or None if it has to be compiled."""
        context.refresh()
        function = self._dispatcher.py_func
        settings = [getattr(config, name) for name in CODE_SETTINGS]
        processor = context.codegen().magic_tuple()
        try:
            digest = digest_of(self._dispatcher, VERSIONS, settings, processor, signature)
        except UnknownContentError as error:
            warn_once(NOT_CACHED, error)
            return None
        stem = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._file = KernelFile(stem, digest, cache_folders(function.__code__.co_filename))
        if (found := self._file.read()) is None:
            return None
        folder, content = found
        self.cache_path = str(folder)
        result: Any = compiler.CompileResult
        return result._rebuild(context, *pickle.loads(content))

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compiled kernel to the cache."""
        if self._file is None:
            return
        if result.library.has_dynamic_globals:
            warn_once(NOT_CACHED, f"{result.fndesc.qualname} uses an array of more than a megabyte")
        elif result.fndesc.modname not in sys.modules:
            warn_once(NOT_CACHED, f"{result.fndesc.qualname} was defined outside a module")
        else:
            try:
                self.cache_path = str(self._file.write(serialize.dumps(result._reduce())))
            except OSError as error:
                warn_once(NO_FOLDER, error)
                compiling["seconds"] = -math.inf  # `COMPILING` says that kernels are cached


def cache_folders(source: str) -> list[Path]:
    """Return the folders in which the kernels of a source file may be cached, in order of preference."""
    if config.CACHE_DIR:
        return [Path(str(config.CACHE_DIR), FOLDER)]
    user: Any = appdirs.AppDirs(FOLDER, False)
    beside, of_user = Path(source).parent / "__pycache__", Path(user.user_cache_dir)
    # Without a home folder, `of_user` is a folder named `~` in the current one.
    return [*([beside] if os.path.isfile(source) else []), *([of_user] if of_user.is_absolute() else [])]


def warn_once(message: str, reason: object) -> None:
    """Log a warning that kernels can't be cached, once per program: not in child processes."""
    from multiprocessing import parent_process

    if message not in warned and parent_process() is None:
        logging.getLogger("replay_tutorial").warning(message.format(reason))
    warned.add(message)


def compile_now(*wanted: Callable[..., Any]) -> None:
    """Compile kernels before their first call, so that processes started later find them in the cache."""
    for each in wanted:
        each.compile()  # pyright: ignore[reportFunctionMemberAccess]


def compile_all() -> list[str]:
    """Compile the kernels of all imported modules; return the folders of their caches."""
    compiling["seconds"] = -math.inf  # no warning: it recommends calling this function
    compile_now(*kernels)
    return sorted({each.stats.cache_path for each in kernels} - {None})


if hasattr(os, "register_at_fork"):  # a child forked while another thread compiles would inherit a held lock
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


def hints_of(thing: Any) -> list[Any]:
    """Return the annotations of a function, with the return type last, or of a NamedTuple."""
    return list(get_type_hints(thing, include_extras=True).values())


def numba_type(hint: Any) -> Any:
    """Return Numba's type for an annotation.

    Kernels pass NamedTuples to each other. Python passes a plain tuple, annotated as
    `Annotated[tuple[Any, ...], It]`, which the kernel converts with `It(*plain)`. Unpacking ten arrays from a
    NamedTuple costs 0.7 µs more than passing them separately; unpacking a plain tuple costs 0.1 µs more.
    """
    if hint in SCALARS:
        return SCALARS[hint]
    if get_origin(hint) is Annotated:
        declared = get_args(hint)[1]
        if isinstance(declared, type):
            return numba_types.Tuple(list(map(numba_type, hints_of(declared))))
        return declared
    if get_origin(hint) is tuple:
        return numba_types.Tuple(list(map(numba_type, get_args(hint))))
    return numba_types.NamedTuple(list(map(numba_type, hints_of(hint))), hint)
