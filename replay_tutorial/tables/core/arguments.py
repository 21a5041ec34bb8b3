"""Checks and conversions of arguments that a server and its clients have in common."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats, Integers, writable


def check_mapping(data: Any, columns: Iterable[str]) -> None:
    """Refuse the values of a step that come without the names of their columns.

    Raises:
        TypeError: If they are not in a dict.
    """
    if type(data) is not dict and not isinstance(data, Mapping):
        named = ", ".join(f"{name!r}: ..." for name in columns)
        raise TypeError(f"Values are passed by column, as {{{named}}}, not as {type(data).__name__}.")


def as_priorities(priorities: Any, count: int) -> Floats:
    """Convert priorities to float64[count], whether or not each is in range.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If there are more or fewer.
    """
    array = np.asarray(priorities)
    if array.shape == (count,) and array.dtype == np.float64 and array.flags.carray:
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"Priorities are real numbers, not {array.dtype} ({priorities!r:.60}).")
    if array.shape != (count,):
        raise ValueError(f"There must be one priority for each of {count} items, not {array.shape}.")
    return writable(np.ascontiguousarray(array, np.float64))


def as_updates(updates: Mapping[int, float] | tuple[Any, Any]) -> tuple[Integers, Floats]:
    """Convert priorities by key, or keys and priorities, as `as_keys` and `as_floats` do."""
    pair = (list(updates), list(updates.values())) if isinstance(updates, Mapping) else updates
    keys = as_keys(pair[0])
    return keys, as_priorities(pair[1], len(keys))


def as_keys(keys: Any) -> Integers:
    """Convert keys to int64[n].

    Raises:
        TypeError: If they are not integers.
        ValueError: If they are not in one row.
    """
    array: npt.NDArray[Any] = np.asarray(keys if hasattr(keys, "__array__") else list(keys))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"Keys are integers, as `sample` gave them, not {array.dtype}.")
    if array.ndim != 1:
        raise ValueError(f"Keys stand in one row, not in an array of shape {array.shape}.")
    return writable(np.ascontiguousarray(array, np.int64))
