"""Rows of a ring: which are drawn, and how they are copied.

A row is copied whole by the system's `memcpy`, which moves up to 64 bytes with one instruction. A loop over
the row's words is the same in Numba, and two to five times slower: it can't know that the rows don't overlap.
Every ring draws and copies so, that of one process (`ring`) and that of many (`shared`).

Left out: rows that are not whole words of eight bytes; `fields` pads them.
"""

import math
import operator
from numbers import Real
from typing import Any, cast

import numpy as np

from replay_tutorial.buffers.jit import Bytes, Integers, cgutils, intrinsic, jitable, kernel, types


def address(context: Any, builder: Any, array_type: Any, array: Any, row: Any, element: Any) -> Any:
    """Build the address of `array[row, element]`."""
    made = context.make_array(array_type)(context, builder, array)
    place = builder.add(builder.mul(row, builder.extract_value(made.shape, 1)), element)
    return builder.gep(made.data, [place], source_etype=context.get_value_type(array_type.dtype))


@intrinsic
def copy_part(
    typing_context: Any, target: Any, place: Any, to: Any, source: Any, slot: Any, start: Any, length: Any
) -> Any:
    """Copy `source[slot, start : start + length]` to `target[place, to : to + length]`.

    Both are contiguous arrays of one dtype that don't overlap.
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
    """Copy `source[slot]` to `target[place]`: rows of the same length."""
    copy_part(target, place, 0, source, slot, 0, source.shape[1])


@kernel
def take_rows(rows: Bytes, slots: Integers, copies: Bytes) -> None:
    """Copy the rows in slots."""
    for i in range(len(slots)):
        copy_row(copies, i, rows, slots[i])


@kernel
def take_parts(rows: Bytes, slots: Integers, start: int, copies: Bytes, length: int) -> None:
    """Copy a part of the rows in slots: `length` bytes, from `start` on."""
    for i in range(len(slots)):
        copy_part(copies, i, 0, rows, slots[i], start, length)


def random_below(limit: int, count: int, rng: np.random.Generator) -> Integers:
    """Draw whole numbers from 0 to limit - 1, each as likely: int64[count].

    A third of the time of `rng.integers`. One number is likelier than another by limit / 2^53 at most, and
    even the largest double below 1 times the limit stays below the limit.
    """
    return (rng.random(count) * limit).astype(np.int64)


def check_batch_size(batch_size: int, threads: int = 1) -> None:
    """Refuse a batch size below 1 or above any memory, and fewer than 1 thread to copy the batch."""
    if not 1 <= checked_integer("batch_size", batch_size) < 1 << 48:  # bytes that a process can address
        raise ValueError(f"sample({batch_size}): a batch holds at least 1 transition, fewer than 2**48.")
    if threads != 1 and checked_integer("threads", threads) < 1:
        raise ValueError(f"threads must be at least 1, not {threads}.")


def checked_integer(name: str, value: Any) -> int:
    """Return an argument that is an integer, of Python or of NumPy; a bool is none."""
    try:
        if type(value) is not bool:
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be an integer, not {value!r:.60}.")


def checked_number(name: str, value: Any) -> float:
    """Return an argument that is a real number; one beyond all floats is infinite."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r:.60}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast(int, value) > 0 else -math.inf


def checked_size(size: float) -> int:
    """Read the number of transitions that a buffer keeps."""
    if isinstance(size, bool) or not isinstance(size, (int, float, np.integer, np.floating)):
        raise TypeError(f"size must be an integer, not {size!r}.")
    if not (size >= 1 and float(size).is_integer()):
        raise ValueError(f"size must be a whole number of transitions, at least 1, not {size}.")
    return int(size)
