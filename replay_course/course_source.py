"""The source of a module that defines a class or a function of a notebook, with everything that it uses.

The names that the source uses are looked up in the notebook. An imported object becomes an import, another
class or function of the notebook is copied, too, and a number or a text becomes an assignment.
"""

import ast
import builtins
import importlib
import inspect
import linecache
import symtable
import textwrap
from collections.abc import Generator, Mapping
from types import FunctionType, ModuleType
from typing import Any


class NotStorable(Exception):
    """The object, or something that it uses, can't be written to a module."""


def module_source(name: str, thing: Any) -> str:
    """Return the source of a module that defines `thing` as `name`.

    Raises:
        NotStorable: If the source can't be found, or uses an object that a module can't import.
    """
    function = next(functions_of(thing), None)
    found = Definitions({} if function is None else function.__globals__)
    found.add(name, thing)
    text = "\n".join(sorted(found.imports)) + "\n\n\n" + "\n\n\n".join(found.definitions) + "\n"
    text = text.lstrip()
    try:
        exec(text, {"__name__": "my_replay"})  # noqa: S102 - what the reader has just run
    except Exception as error:
        raise NotStorable(f"as a module, it fails with {type(error).__name__}: {error}") from error
    return text


class Definitions:
    """Imports, and the definitions that need each other, the needed ones first."""

    def __init__(self, notebook: Mapping[str, Any]) -> None:
        self.notebook = notebook
        self.imports: list[str] = []
        self.definitions: list[str] = []
        self.names = set[str]()

    def add(self, name: str, thing: Any) -> None:
        """Define a name, and everything that its definition uses."""
        if name in self.names:
            return
        self.names.add(name)
        thing = getattr(thing, "py_func", thing) if is_own(thing) else thing
        if isinstance(thing, ModuleType):
            own = thing.__name__ == name
            self.imports.append(f"import {thing.__name__}" + ("" if own else f" as {name}"))
        elif is_importable(thing):
            own = thing.__qualname__ == name
            line = f"from {thing.__module__} import {thing.__qualname__}"
            self.imports.append(line + ("" if own else f" as {name}"))
        elif isinstance(thing, FunctionType | type):
            source = source_of(thing)
            for used in sorted(used_names(source) & {*self.notebook}):
                self.add(used, self.notebook[used])
            self.definitions.append(source)
            if thing.__name__ != name:
                self.definitions.append(f"{name} = {thing.__name__}")
        elif is_literal(thing):
            self.definitions.append(f"{name} = {thing!r}")
        else:
            raise NotStorable(
                f"it uses `{name}`, an object of type {type(thing).__name__} that only this notebook has. "
                "Create it inside the class or the function, or pass it as an argument."
            )


def is_own(thing: Any) -> bool:
    """Return whether a class or a function is defined in the notebook."""
    return getattr(thing, "__module__", None) == "__main__"


def is_importable(thing: Any) -> bool:
    """Return whether `from thing.__module__ import thing.__qualname__` imports this object."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or is_own(thing):
        return False
    return getattr(importlib.import_module(module), name, None) is thing


def is_literal(thing: Any) -> bool:
    """Return whether `repr` of a value is an expression for it."""
    try:
        return bool(ast.literal_eval(repr(thing)) == thing)
    except (SyntaxError, ValueError):
        return False


def functions_of(thing: Any) -> Generator[FunctionType]:
    """Yield a function, or the functions of a class."""
    for value in [thing] if isinstance(thing, FunctionType) else [*vars(thing).values()]:
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        value = inspect.unwrap(getattr(value, "py_func", value))
        if isinstance(value, FunctionType):
            yield value


def source_of(thing: Any) -> str:
    """Return the source of a class or a function from the cell that defines it.

    `inspect.getsource` finds no class of a notebook before Python 3.13.
    """
    files = [function.__code__.co_filename for function in functions_of(thing)]
    cells = [name for name, entry in reversed(linecache.cache.items()) if len(entry) > 1 and entry[1] is None]
    for file in files or cells:
        lines = linecache.getlines(file)
        for node in reversed(ast.parse("".join(lines)).body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == thing.__name__:
                first = min(each.lineno for each in [node, *node.decorator_list])
                return textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip()
    raise NotStorable(f"the source of {thing.__name__} wasn't found. Define it in a cell, at the top level.")


def used_names(source: str) -> set[str]:
    """Return the global names that a source uses, without Python's own."""

    def in_scope(scope: symtable.SymbolTable) -> set[str]:
        top = scope.get_type() == "module"
        used = {
            symbol.get_name()
            for symbol in scope.get_symbols()
            if symbol.is_referenced() and (not symbol.is_assigned() if top else symbol.is_global())
        }
        return used.union(*map(in_scope, scope.get_children()))

    return in_scope(symtable.symtable(source, "cell", "exec")) - {*vars(builtins)}
