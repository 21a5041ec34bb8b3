"""The cache of compiled kernels: what a kernel is compiled from, and the files with the machine code.

The name of a file contains a digest of everything that its kernel was compiled from: the code of the kernel
and of all functions that it calls, the constants that they use, and versions. An edit of any of these changes
the name, so that an outdated file is never found. The digest is computed from the functions in memory, not
from source files, so that it also covers notebooks, reloaded modules and packages in a zip file.

Left out: functions registered with Numba's `overload`, because the calling code doesn't refer to them.
"""

import enum
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import escape
from hashlib import sha256
from pathlib import Path
from types import CodeType, EllipsisType, ModuleType
from typing import Any, cast, get_args, get_origin

import numpy as np

from replay_tutorial.buffers.runtime.atomic_file import atomic_write

VERSIONS_KEPT = 8  # files per kernel and folder; older ones are deleted
CHECKSUM_BYTES = 4
used: set[Path] = set()  # folders in which this process has found or written kernels

PLAIN: Any = (bool, int, float, complex, str, bytes, type(None), EllipsisType, np.generic, np.dtype, np.ufunc)
VERSIONED = {"numpy", "numba", "llvmlite"}  # packages; the standard library comes with Python


class UnknownContentError(Exception):
    """A kernel uses an object whose content the digest can't include."""


def digest_of(kernel: Callable[..., Any], *environment: object) -> str:
    """Return a digest of everything that a kernel is compiled from.

    Args:
        kernel: A function compiled by Numba.
        environment: What else the machine code depends on, such as versions. Their `repr` is included.

    Raises:
        UnknownContentError: If a function uses something else than functions, classes, modules and constants.
    """
    digest, seen, waiting = sha256(repr(environment).encode()), set[Any](), [kernel]
    while waiting:
        if (thing := waiting.pop()) not in seen:
            seen.add(thing)
            content = Content(thing)
            digest.update(repr(content.parts).encode())
            waiting += content.references
    return digest.hexdigest()[:32]


class Content:
    """The content of one function or class.

    Attributes:
        parts: The content as nested tuples of constants, with functions and classes replaced by their names.
            Includes the module, which is imported when a kernel is loaded from the cache.
        references: These functions and classes.
    """

    def __init__(self, thing: Any) -> None:
        self.references: list[Any] = []
        self._names: set[str] = set()  # of variables and attributes
        self._modules: set[ModuleType] = set()
        self._thing = thing
        self.parts = self._class_parts(thing) if isinstance(thing, type) else self._function_parts(thing)

    def _class_parts(self, thing: Any) -> object:
        """Return the fields of a NamedTuple with their types, or the members of an enumeration."""
        members = [(each.name, each.value) for each in thing] if issubclass(thing, enum.Enum) else None
        fields = (getattr(thing, "_fields", None), list(inspect.get_annotations(thing).values()))
        return thing.__module__, thing.__qualname__, self._part((fields, members))

    def _function_parts(self, thing: Any) -> object:
        """Return a function's code and the variables that it uses; if it is compiled, also its signature."""
        function, signature = thing if inspect.isfunction(thing) else inspect.unwrap(thing), None
        if (options := getattr(thing, "targetoptions", None)) is not None:
            hints = inspect.get_annotations(function).values()
            hints = [compile(each, "", "eval") if isinstance(each, str) else each for each in hints]
            signature = self._part((options, hints))
        code = self._part((function.__code__, function.__defaults__, function.__kwdefaults__))
        closure = self._part([each.cell_contents for each in function.__closure__ or ()])
        return (
            thing.__module__,
            thing.__qualname__,
            signature,
            code,
            closure,
            self._variables_of(function.__globals__),
        )

    def _variables_of(self, space: dict[str, Any]) -> object:
        """Return the variables of a module that have one of the names in the code."""
        return [(name, self._part(space[name])) for name in sorted(self._names & space.keys())]

    def _part(self, value: Any) -> object:
        """Return the content of a value that a function refers to."""
        kind = type(value).__qualname__
        if isinstance(value, PLAIN):
            return kind, repr(value)
        if isinstance(value, CodeType):
            self._names.update(value.co_names)
            counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
            variables = (value.co_names, value.co_varnames, value.co_cellvars, value.co_freevars)
            return counts, value.co_code, value.co_exceptiontable, variables, self._part(value.co_consts)
        if isinstance(value, tuple | list):
            return kind, [self._part(each) for each in cast("Sequence[Any]", value)]
        if isinstance(value, slice):  # since Python 3.14, a constant
            part = cast("slice[Any, Any, Any]", value)
            return kind, self._part((part.start, part.stop, part.step))
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return sorted((repr(self._part(key)), self._part(each)) for key, each in items)
        if isinstance(value, set | frozenset):
            return sorted(repr(self._part(each)) for each in cast("set[Any]", value))
        if isinstance(value, np.ndarray):
            array = cast("np.ndarray[Any, Any]", value)
            return array.dtype.descr, array.shape, array.strides, array.tobytes()
        if get_origin(value) is not None:  # Annotated, tuple[int, float]
            return self._part((get_origin(value), get_args(value)))
        if isinstance(value, ModuleType):
            if is_versioned(value.__name__) or value in self._modules:
                return value.__name__
            self._modules.add(value)
            return value.__name__, self._variables_of(vars(value))
        name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None) or ""
        if name is not None and is_versioned(module):
            return module, name
        if name is not None and (isinstance(value, type) or inspect.isfunction(inspect.unwrap(value))):
            self.references.append(value)
            return name
        if type(value).__module__.startswith(("numba.core.types.", "typing")):
            return repr(value)
        raise UnknownContentError(f"{self._thing.__qualname__} uses {value!r}")


def is_versioned(module: str) -> bool:
    """Return whether a module can change only together with a version in the digest."""
    root = module.partition(".")[0]
    if root in VERSIONED:
        return True
    if root not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(root), "__file__", None)
    return file is None or file.startswith(sys.base_prefix)  # and not a file of the user with such a name


class KernelFile:
    """A file with the machine code of one kernel, in the first of several folders that works.

    The file starts with a checksum, so that a file that is empty, cut or damaged counts as absent.

    Args:
        stem: Name of the kernel.
        digest: Digest of what it is compiled from.
        folders: Where the file may be. It is read from the first folder that has it, and written to the first
            folder that is writable.
    """

    def __init__(self, stem: str, digest: str, folders: Sequence[Path]) -> None:
        self._stem = stem
        self._name = f"{stem}-{digest}.nbc"
        self._folders = folders

    def read(self) -> bytes | None:
        """Return the machine code, or None if no folder has it."""
        for folder in self._folders:
            with suppress(OSError):
                content = (folder / self._name).read_bytes()
                checksum, code = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
                if checksum == checksum_of(code):
                    used.add(folder)
                    return code
        return None

    def write(self, code: bytes) -> None:
        """Write the file, and delete the oldest files of the kernel in its folder.

        Raises:
            OSError: If no folder is writable; the error is the one of the last folder.
        """
        problem = OSError("the user has no home folder")
        for folder in self._folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with atomic_write(folder / self._name) as file:
                    file.write(checksum_of(code) + code)
            except OSError as error:
                problem = OSError(error.errno, error.strerror, str(folder))
                continue
            used.add(folder)
            with suppress(OSError):  # another process may delete them too
                files = sorted(folder.glob(f"{escape(self._stem)}-*.nbc"), key=os.path.getmtime)
                for old in files[:-VERSIONS_KEPT]:
                    old.unlink()
            return
        raise problem


def checksum_of(content: bytes) -> bytes:
    """Return the checksum of a file's content."""
    return zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "little")
