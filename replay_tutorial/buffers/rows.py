"""Copying, comparing and sampling the rows of a ring, and checks of integer arguments.

Rows are copied with the C library's `memcpy`, which moves up to 64 bytes per instruction. A Numba loop over
the words of a row is two to five times slower, because the compiler can't know that the rows don't overlap.
Both the ring of one process (`ring`) and the shared ring (`shared`) use these functions.

Built in chapter 01, *Uniform replay*.
"""

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.cast import as_array
from replay_tutorial.buffers.runtime.jit import (
    Bytes,
    Integers,
    cgutils,
    intrinsic,
    jitable,
    kernel,
    types,
    writable,
)


def address(context: Any, builder: Any, array_type: Any, array: Any, row: Any, element: Any) -> Any:
    """Generate code for the address of `array[row, element]`."""
    made = context.make_array(array_type)(context, builder, array)
    place = builder.add(builder.mul(row, builder.extract_value(made.shape, 1)), element)
    return builder.gep(made.data, [place], source_etype=context.get_value_type(array_type.dtype))


@intrinsic
def copy_part(
    typing_context: Any, target: Any, place: Any, to: Any, source: Any, slot: Any, start: Any, length: Any
) -> Any:
    """Copy `source[slot, start : start + length]` to `target[place, to : to + length]`.

    Both must be contiguous arrays of the same dtype that don't overlap.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, place, to, source, slot, start, length = arguments
        written = address(context, builder, signature.args[0], target, place, to)
        read = address(context, builder, signature.args[3], source, slot, start)
        cgutils.raw_memcpy(builder, written, read, length, signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    integers = [types.int64] * 3
    return types.void(target, *integers[:2], source, *integers), build


@jitable
def copy_row(target: Any, place: int, source: Any, slot: int) -> None:
    """Copy `source[slot]` to `target[place]`; the rows must have the same length."""
    copy_part(target, place, 0, source, slot, 0, source.shape[1])


@jitable
def copy_rows(target: Any, place: int, source: Any, slot: int, count: int) -> None:
    """Copy `count` consecutive rows of `source` from `slot` on to `target` from `place` on."""
    copy_part(target, place, 0, source, slot, 0, count * source.shape[1])


@jitable
def bytes_differ(some: Any, others: Any) -> bool:
    """Return whether two arrays of bytes of the same length differ."""
    different = np.uint8(0)
    for byte in range(len(some)):  # without a branch, so that the compiler vectorizes it
        different |= some[byte] ^ others[byte]
    return different != 0


@kernel
def take_rows(rows: Bytes, slots: Integers, copies: Bytes) -> None:
    """Copy the rows in `slots` to `copies`."""
    for i in range(len(slots)):
        copy_row(copies, i, rows, slots[i])


@kernel
def take_runs(rows: Bytes, slots: Integers, copies: Bytes) -> None:
    """Copy the rows in `slots` to `copies`, with one call for each run of consecutive slots."""
    first = 0
    for i in range(1, len(slots) + 1):
        if i == len(slots) or slots[i] != slots[i - 1] + 1:
            copy_part(copies, first, 0, rows, slots[first], 0, (i - first) * rows.shape[1])
            first = i


@kernel
def take_parts(rows: Bytes, slots: Integers, start: int, copies: Bytes, length: int) -> None:
    """Copy `length` bytes of each row in `slots`, beginning at byte `start`."""
    for i in range(len(slots)):
        copy_part(copies, i, 0, rows, slots[i], start, length)


def random_below(limit: int, count: int, rng: np.random.Generator) -> Integers:
    """Return uniform random integers from 0 to limit - 1: int64[count].

    This takes a third of the time of `rng.integers`. The relative bias is at most limit / 2^53. Every
    result is below the limit, because the limit times the largest double below 1 is.
    """
    uniforms = rng.random(count)
    uniforms *= limit
    return uniforms.astype(np.int64)


MAX_COUNT = 1 << 48  # bytes in the address space of a process; kernels can add a few such numbers


CHECKED_FROM = 1 << 26  # bytes; smaller buffers aren't compared with the memory, which takes 0.5 ms


def check_memory(size: int) -> None:
    """Warn if `size` bytes exceed the free memory; raise MemoryError if they exceed that of the machine."""
    if size >= CHECKED_FROM:
        from replay_tutorial.buffers.runtime.machine_memory import compare_with_memory

        compare_with_memory(size)


def check_batch_size(batch_size: int) -> None:
    """Raise ValueError if batch_size is out of range."""
    size = batch_size if type(batch_size) is int else checked_integer("batch_size", batch_size)
    if not 1 <= size < MAX_COUNT:
        raise ValueError(f"batch_size must be at least 1 and below 2**48, not {batch_size}.")


def checked_integer(name: str, value: Any) -> int:
    """Convert a Python or NumPy integer to an int; raise TypeError for anything else, including bool."""
    try:
        if type(value) is not bool:
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be an integer, not {value!r:.60}.")


def checked_flag(name: str, value: Any) -> bool:
    """Convert a Python or NumPy bool to a bool; raise TypeError for anything else, such as "no"."""
    if type(value) not in (bool, np.bool_):
        raise TypeError(f"{name} must be True or False, not {value!r:.60}.")
    return bool(value)


def checked_at_least(name: str, value: Any, least: int, limit: float = MAX_COUNT) -> int:
    """Convert an integer of at least `least`, and below a limit."""
    if (checked := checked_integer(name, value)) < least:
        raise ValueError(f"{name} must be at least {least}, not {value}.")
    if checked >= limit:
        raise ValueError(f"{name} must be below 2**{math.log2(limit):.0f}, not {value}.")
    return checked


def as_integers(name: str, values: npt.ArrayLike, too_large: type[Exception] = IndexError) -> Integers:
    """Convert one integer or several to int64[n]; raise TypeError for anything else.

    `too_large` is the error for an integer that int64 can't hold.
    """
    array: Any = values if type(values) is np.ndarray else as_array(name, values)
    if array.dtype.kind not in "iu" and not all(type(value) is int for value in array.flat):
        raise TypeError(f"{name} must be integers, not {array.dtype} ({values!r:.60}).")
    if array.dtype.kind in "uO" and len(wrong := array[(array < -(2**63)) | (array >= 2**63)]):
        raise too_large(f"{name} must be int64, which can't hold {wrong[0]}.")
    return writable(np.ascontiguousarray(array, np.int64).reshape(-1))


def indexes_of(part: slice, stored: Integers) -> Integers:
    """Return the stored indexes in a slice; `stored` is in ascending order."""
    start, stop, step = part.indices(int(stored[-1]) + 1 if len(stored) else 0)
    if step != 1:
        raise ValueError(f"A slice of rows must have step 1, not {step}; pass an array of indexes.")
    return stored[slice(*np.searchsorted(stored, (start, stop)))]


def unknown_index_error(indexes: Integers, next_index: int) -> IndexError:
    """Return the error for the first index that has not been assigned to any row."""
    wrong = indexes[(indexes < 0) | (indexes >= next_index)][0]
    return IndexError(f"No row with index {wrong} has been added; the next index is {next_index}.")


def checked_number(name: str, value: Any) -> float:
    """Convert a real number to a float; an integer that overflows becomes infinity."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r:.60}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast(int, value) > 0 else -math.inf


def checked_share(name: str, value: Any) -> float:
    """Convert a real number in [0, 1] to a float."""
    if not 0.0 <= (checked := checked_number(name, value)) <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], not {value}.")
    return checked


def checked_environment(environment: Any, environments: int) -> int:
    """Return the number of an environment as an int; raise IndexError if there is none with this number."""
    if not 0 <= (checked := checked_integer("environment", environment)) < environments:
        raise IndexError(f"environment must be between 0 and {environments - 1}, not {environment}.")
    return checked


def chosen_environments(environment: Any, environments: int) -> Iterable[int]:
    """Return the numbers of all environments if `environment` is None, otherwise this one, checked."""
    if environment is None:
        return range(environments)
    return (checked_environment(environment, environments),)


def checked_size(capacity: float) -> int:
    """Convert the argument `capacity` to an int; a float such as 1e6 is accepted if it is integral."""
    if isinstance(capacity, bool) or not isinstance(capacity, (int, float, np.integer, np.floating)):
        raise TypeError(f"capacity must be an integer, not {capacity!r}.")
    if not (capacity >= 1 and float(capacity).is_integer()):
        raise ValueError(f"capacity must be an integer of at least 1, not {capacity}.")
    return int(capacity)
