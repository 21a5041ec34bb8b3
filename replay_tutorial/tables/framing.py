"""Frames: how a call, or its answer, lies in bytes.

    head     number of the call, seconds it may wait, length of the text, of all behind the head    32 bytes
    text     JSON: what it is, and of each array the dtype and shape      filled up with spaces to 8 bytes
    arrays   raw bytes, one after the other                               each filled up to 8 bytes

What differs from one call to the next stands in the arrays, what stays the same in the text. So of thousands
of calls there are only a few texts, and each is made once, and read and checked once. Nothing is unpickled:
whoever sends a frame chooses numbers and words, and never what is run.

Left out: what the calls are (`call_forms`).
"""

import json
import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Form = tuple[Any, ...]  # of strings, numbers and forms

HEAD = struct.Struct("=QdQQ")
MOST_BYTES = 1 << 28  # of a call
HELLO: Form = ("hello", 1)  # with the version of what is said
MOST_TEXT = 1 << 18  # the text alone
LARGEST = 1 << 62  # bytes of an array, if an axis of length 0 had length 1
REMEMBERED = 1 << 12  # bytes; longer texts are not kept
DTYPES = "?bBhHiIlLqQefdgFDG"  # NumPy's letters of bools and numbers


class BadFrame(ValueError):
    """Bytes that are no frame, or a frame that is no call."""


class Outline(NamedTuple):
    """What a text says.

    Attributes:
        form: What the frame is.
        arrays: Of each array its shape, dtype, and the byte where it begins, behind the text.
        end: Bytes behind the text.
    """

    form: Form
    arrays: tuple[tuple[tuple[int, ...], np.dtype[Any], int], ...]
    end: int


class Frame(NamedTuple):
    """A frame that has been read.

    Attributes:
        number: Of the call.
        timeout: Seconds that it may wait; None for as long as it takes.
        form: What it is.
        arrays: Views of the frame's bytes.
    """

    number: int
    timeout: float | None
    form: Form
    arrays: list[Array]


def pack(number: int, form: Form, arrays: Sequence[Array], timeout: float | None = None) -> bytes:
    """Lay a call or an answer out as bytes.

    Raises:
        ValueError: If it says too much at once.
    """
    text, padding, length = text_of((form, tuple([(array.dtype.char, array.shape) for array in arrays])))
    pieces: list[Any] = [HEAD.pack(number, math.nan if timeout is None else timeout, len(text), length), text]
    for array, pad in zip(arrays, padding, strict=True):
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        pieces.append(array if array.flags.c_contiguous else array.tobytes())
        pieces.append(pad)
    return b"".join(pieces)


def unpack(head: tuple[int, float, int, int], body: bytearray) -> Frame:
    """Read what lies behind a head.

    Args:
        head: The head, unpacked.
        body: Text and arrays.

    Raises:
        BadFrame: If it is no frame.
    """
    number, timeout, length, _ = head
    if length > min(len(body), MOST_TEXT):
        raise BadFrame(f"A text of {length:,} bytes can't be: the frame has {len(body):,}.")
    form, arrays, end = outline_of(bytes(body[:length]))
    if length + end != len(body):
        raise BadFrame(f"The frame has {len(body) - length:,} bytes of arrays; its text says {end:,}.")
    views = [np.ndarray(shape, dtype, body, length + start) for shape, dtype, start in arrays]
    return Frame(number, None if math.isnan(timeout) else timeout, form, views)


@lru_cache(256)
def text_of(words: Form) -> tuple[bytes, tuple[bytes, ...], int]:
    """Write a text; return also what each array is filled up with, and the length of all behind the head."""
    text = json.dumps(words, separators=(",", ":")).encode()
    if len(text) > MOST_TEXT - 8:
        raise ValueError(f"A text of {len(text):,} bytes is too long: make fewer kinds of items in one call.")
    text += b" " * (-len(text) % 8)
    sizes = [math.prod(shape) * np.dtype(char).itemsize for char, shape in words[1]]
    padding = [bytes(-size % 8) for size in sizes]
    return text, tuple(padding), len(text) + sum(sizes) + sum(map(len, padding))


def outline_of(text: bytes) -> Outline:
    """Read a text; one that has been read before is known."""
    return known_outline(text) if len(text) <= REMEMBERED else read_outline(text)


def read_outline(text: bytes) -> Outline:
    """Read a text.

    Raises:
        BadFrame: If it is not as `pack` writes it.
    """
    try:
        words = as_tuples(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"The text of a frame is no JSON: {error}.") from None
    form, specs = parts_of(words, 2)
    arrays: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
    end = 0
    for spec in parts_of(specs):
        shape, dtype = checked_spec(spec)
        arrays.append((shape, dtype, end))
        size = math.prod(shape) * dtype.itemsize
        end += size + -size % 8
    if not parts_of(form):
        raise BadFrame("A form says at least what it is.")
    return Outline(form, tuple(arrays), end)


known_outline = lru_cache(256)(read_outline)


def as_tuples(value: Any) -> Any:
    """Turn lists into tuples, and refuse objects."""
    if isinstance(value, list):
        return tuple([as_tuples(one) for one in value])  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        raise BadFrame("The text of a frame holds lists, and no objects.")
    return value


def parts_of(value: Any, count: int | None = None) -> Form:
    """Return what must be a tuple, of so many parts.

    Raises:
        BadFrame: If it is not.
    """
    if not isinstance(value, tuple) or count not in (None, len(cast(Form, value))):
        raise BadFrame(f"A frame says {value!r:.80}, where a list of {count or 'some'} parts must be.")
    return cast(Form, value)


def checked_spec(spec: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return an array's shape and dtype; only numbers and bools are taken, and no Python objects."""
    name, shape = parts_of(spec, 2)
    lengths = parts_of(shape)
    fits = isinstance(name, str) and len(name) == 1 and name in DTYPES and len(lengths) <= 32
    if not fits or not all(type(length) is int and length >= 0 for length in lengths):
        raise BadFrame(f"An array is a dtype of numbers and a shape, not {spec!r:.80}.")
    dtype: np.dtype[Any] = np.dtype(name)
    # counted without zeros, so that NumPy can make the array, too
    if math.prod(max(length, 1) for length in lengths) * dtype.itemsize > LARGEST:
        raise BadFrame(f"There is no array of shape {lengths!r:.80}.")
    return lengths, dtype
