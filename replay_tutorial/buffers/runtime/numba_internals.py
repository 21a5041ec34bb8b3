"""Compilation of a kernel for its annotations, or its load from the cache: all that uses Numba's internals.

Any version of Numba may change them, so `pyproject.toml` admits only versions that pass
`tests/buffers/test_numba_internals.py`, where each of these has a test:

- `compile`: `jit.kernel` replaces this method of a kernel, and says when Numba calls it.
- `overloads` and `disable_compile`: the compilations of a kernel, and the end of them.
- `_reduce`, `_rebuild` and `serialize`: a compilation as bytes.
- `refresh`, `insert_user_function` and `add_overload`: what Numba does with a compilation from its own cache.
- `has_dynamic_globals`: whether machine code contains the address of an array.
- `magic_tuple`: the processor for which Numba generates machine code.
- `_unique_ids`: the numbers in the names of functions in machine code.
- `global_compiler_lock`: held by the thread that compiles, and in `jit` by a thread that forks.
- `appdirs`: the user's cache folder.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import itertools
import logging
import os
import pickle
import secrets
import sys
import time
from multiprocessing import parent_process
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import llvmlite
import numba
import numpy as np
from numba.core import bytecode, compiler, serialize
from numba.core import config as numba_config
from numba.core.compiler_lock import global_compiler_lock
from numba.misc import appdirs

from replay_tutorial.buffers.runtime.interrupts import defer_sigint
from replay_tutorial.buffers.runtime.kernel_cache import KernelFile, UnknownContentError, digest_of, used

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
SCALARS: dict[Any, Any] = {
    int: numba.int64,
    float: numba.float64,
    bool: numba.boolean,
    np.uint64: numba.uint64,
    type(None): numba.void,
}

config: Any = numba_config
types: Any = numba.types
compiled: Any = compiler.CompileResult

# Numba counts the functions of each process from 1. The numbers must differ if a process loads two versions
# of a function, which two other processes have compiled.
functions: Any = bytecode.FunctionIdentity
functions._unique_ids = itertools.count(next(functions._unique_ids) + secrets.randbits(48))

# What happened in this process.
spent = {"seconds": 0.0}  # on compilation
logged: set[str] = set()  # messages


def compile_once(kernel: Any) -> None:
    """Compile a kernel for its declared types or load it from the cache, unless that has been done."""
    with defer_sigint(), global_compiler_lock:
        if kernel.signatures:
            return
        *arguments, result = (numba_type(hint) for hint in hints_of(kernel.py_func))
        signature = result(*arguments)
        file = file_of(kernel, signature)
        code = None if file is None else file.read()
        if code is not None:
            load(kernel, code)
            return
        before, start = spent["seconds"], time.perf_counter()
        type(kernel).compile(kernel, signature)
        # It may have compiled other kernels, which this one calls. Their time is included.
        spent["seconds"] = before + time.perf_counter() - start
        kernel.disable_compile()
        if file is not None:
            save(file, kernel.overloads[signature.args])
        if spent["seconds"] > WARN_AFTER_SECONDS:
            log_once(COMPILING)


def compile_all(kernels: list[Any]) -> list[str]:
    """Compile kernels in advance; return the folders of their caches."""
    logged.add(COMPILING)  # it recommends calling this function
    for kernel in kernels:
        compile_once(kernel)
    return sorted(map(str, used))


def file_of(kernel: Any, signature: Any) -> KernelFile | None:
    """Return the file that caches a kernel, or None if it can't be cached."""
    function = kernel.py_func
    settings = [getattr(config, name) for name in CODE_SETTINGS]
    processor = kernel.targetctx.codegen().magic_tuple()
    try:
        if function.__module__ not in sys.modules:
            raise UnknownContentError(f"{function.__qualname__} was defined outside a module")
        digest = digest_of(kernel, VERSIONS, settings, processor, signature)
    except UnknownContentError as error:
        log_once(NOT_CACHED, error)
        return None
    stem = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
    return KernelFile(stem, digest, cache_folders(function.__code__.co_filename))


def load(kernel: Any, code: bytes) -> None:
    """Add machine code from the cache to a kernel."""
    context = kernel.targetctx
    context.refresh()
    result = compiled._rebuild(context, *pickle.loads(code))
    context.insert_user_function(result.entry_point, result.fndesc, [result.library])
    kernel.add_overload(result)
    kernel.disable_compile()


def save(file: KernelFile, result: Any) -> None:
    """Write the machine code of a kernel to the cache."""
    if result.library.has_dynamic_globals:
        log_once(NOT_CACHED, f"{result.fndesc.qualname} uses an array of more than a megabyte")
        return
    try:
        file.write(serialize.dumps(result._reduce()))
    except OSError as error:
        log_once(NO_FOLDER, error)
        logged.add(COMPILING)  # it says that kernels are cached


def cache_folders(source: str) -> list[Path]:
    """Return the folders in which the kernels of a source file may be cached, in order of preference."""
    if config.CACHE_DIR:
        return [Path(str(config.CACHE_DIR), FOLDER)]
    user: Any = appdirs.AppDirs(FOLDER, False)
    beside, of_user = Path(source).parent / "__pycache__", Path(user.user_cache_dir)
    # Without a home folder, `of_user` is a folder named `~` in the current one.
    return [*([beside] if os.path.isfile(source) else []), *([of_user] if of_user.is_absolute() else [])]


def log_once(message: str, reason: object = None) -> None:
    """Log a warning once per program: not in child processes."""
    if message not in logged and parent_process() is None:
        logging.getLogger("replay_tutorial").warning(message.format(reason))
    logged.add(message)


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
            return types.Tuple(list(map(numba_type, hints_of(declared))))
        return declared
    if get_origin(hint) is tuple:
        return types.Tuple(list(map(numba_type, get_args(hint))))
    return types.NamedTuple(list(map(numba_type, hints_of(hint))), hint)
