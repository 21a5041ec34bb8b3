"""Checks and conversions of arguments that `Server`, `RemoteServer`, clients and writers share.

Names and arguments of Reverb raise an error that names the equivalent here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.cast import as_array, widened
from replay_tutorial.buffers.fields import flatten
from replay_tutorial.buffers.runtime.jit import Floats, Integers, writable

P = ParamSpec("P")
T = TypeVar("T")


class ByColumn(dict[str, T]):
    """A value for each column; an unknown column raises a KeyError that names the others."""

    noun = "column"

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"There is no {self.noun} {name!r}; the {self.noun}s are {list(self)}.")


class ByTable(ByColumn[T]):
    """A value for each table; an unknown table raises a KeyError that names the others."""

    noun = "table"


def check_mapping(data: Any, columns: Iterable[str]) -> None:
    """Raise TypeError unless the values of a step are passed as a mapping from column name to value."""
    if type(data) is not dict and not isinstance(data, Mapping):
        named = ", ".join(f"{name!r}: ..." for name in columns)
        raise TypeError(f"Values must be passed by column, as {{{named}}}, not as {type(data).__name__}.")


def check_names(names: Iterable[Any]) -> None:
    """Raise an error unless the names of tables, columns or parts are strings that can be sent."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"The name of a table or part must be a string, not {name!r:.60}.")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"The name {name!r:.60} contains half of a surrogate pair, which UTF-8 lacks."
            ) from None


def flat_columns(data: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """Join nested names by "/", except in values of `columns`; raise KeyError if a column is passed twice."""
    check_mapping(data, columns)
    pairs: list[tuple[str, Any]] = []
    for name, value in data.items():
        pairs += [(name, value)] if name in columns else flatten({name: value})
    if len(flat := dict(pairs)) < len(pairs):
        raise KeyError(f"A column is passed twice, nested and by its joined name: {sorted(flat)}.")
    return flat


def as_priorities(priorities: Any, count: int) -> Floats:
    """Convert priorities to float64[count]; raise TypeError or ValueError; their range is not checked."""
    array = widened(as_array("priorities", priorities))
    if array.shape == (count,) and array.dtype == np.float64 and array.flags.carray:
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"Priorities must be real numbers, not {array.dtype} ({priorities!r:.60}).")
    if array.shape != (count,):
        raise ValueError(f"Priorities must have the shape ({count},), one per item, not {array.shape}.")
    return writable(np.ascontiguousarray(array, np.float64))


def as_updates(updates: Mapping[int, float] | tuple[Any, Any]) -> tuple[Integers, Floats]:
    """Convert a mapping from key to priority, or a pair (keys, priorities), to two arrays."""
    pair = (list(updates), list(updates.values())) if isinstance(updates, Mapping) else updates
    if len(pair) != 2:
        raise ValueError(f"updates must be a mapping or a pair (keys, priorities), not {len(pair)} values.")
    keys = as_keys(pair[0])
    return keys, as_priorities(pair[1], len(keys))


def as_keys(keys: Any) -> Integers:
    """Convert keys to int64[n]; raise TypeError or ValueError if they are not integers in one dimension."""
    array: npt.NDArray[Any] = np.asarray(keys if hasattr(keys, "__array__") else list(keys))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"Keys must be integers, as returned by `sample`, not {array.dtype}.")
    if array.ndim != 1:
        raise ValueError(f"Keys must be a one-dimensional array, not one of shape {array.shape}.")
    return writable(np.ascontiguousarray(array, np.int64))


def explain_reverb_arguments(**remedies: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that raises TypeError with a hint for keyword arguments of Reverb's call."""

    def decorate(call: Callable[P, T]) -> Callable[P, T]:
        @wraps(call)
        def explaining(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs.keys() & remedies.keys():
                where = call.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{where}() has no argument {name!r}: {remedies[name]}")
            return call(*args, **kwargs)

        return explaining

    return decorate


class ReverbName:
    """Class attribute for a name of Reverb's class; reading it raises AttributeError with a hint.

    With `__getattr__`, all attributes would be read more slowly, and type checkers would accept any name.
    """

    def __init__(self, hint: str) -> None:
        """`hint` says what to use instead."""
        self._hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"A {owner.__name__} has no {self._name!r}: {self._hint}")
