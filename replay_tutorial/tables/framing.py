"""Frames: how what is said lies in bytes.

    head       seconds that a call may wait; length of text, numbers, and of all       32 bytes
    text       JSON: what it is, and of each array the dtype and shape      filled up with spaces to 8 bytes
    numbers    int64[numbers]
    arrays     raw bytes, one after the other                               each filled up to 8 bytes

What differs from one call to the next stands in numbers and arrays, what stays the same in the text. So of
thousands of calls there are only a few texts, and each is made once, and read and checked once. Nothing is
unpickled: whoever sends a frame chooses numbers and words, and never what is run.

Left out: what is said (`call_forms`).
"""

import json
import math
import struct
from array import array as packed
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Words = tuple[Any, ...]  # of strings, numbers, None, and words
Key = TypeVar("Key")
Value = TypeVar("Value")

HEAD = struct.Struct("=dQQQ")
MOST_BYTES = 1 << 28  # of a frame
MOST_TEXT = 1 << 18  # of these, the text
LARGEST = 1 << 62  # bytes of an array, if an axis of length 0 had length 1
DTYPES = "?bBhHiIlLqQefdgFDG"  # NumPy's letters of bools and numbers
MOST_REMEMBERED = 1 << 8  # texts,
LONGEST_REMEMBERED = 1 << 12  # and bytes of one


class BadFrame(ValueError):
    """Bytes that are no frame, or a frame that is no call."""


class Frame(NamedTuple):
    """A frame as it came.

    Attributes:
        timeout: Seconds that the call may wait.
        text: What it is.
        numbers: Its numbers.
        body: All behind the head.
        start: Where in it the arrays begin.
    """

    timeout: float
    text: bytes
    numbers: list[int]
    body: bytearray
    start: int


def pack(words: Words, numbers: list[int], arrays: Sequence[Array], timeout: float | None = None) -> bytes:
    """Lay out as bytes what is said.

    Raises:
        OverflowError: If a number is too large.
        TypeError: If one is no integer.
        ValueError: If it says too much at once.
    """
    text = TEXTS.get(words) or text_of(words)
    pieces: list[Any] = [b"", text, packed("q", numbers)]
    size = len(text) + 8 * len(numbers)
    for array in arrays:
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        pieces.append(array if array.flags.c_contiguous else array.tobytes())
        size += (nbytes := array.nbytes)
        if pad := -nbytes % 8:
            pieces.append(bytes(pad))
            size += pad
    pieces[0] = HEAD.pack(math.inf if timeout is None else timeout, len(text), len(numbers), size)
    return b"".join(pieces)


def unpack(head: tuple[float, int, int, int], body: bytearray) -> Frame:
    """Find text and numbers behind a head.

    Raises:
        BadFrame: If they are not there.
    """
    timeout, length, count, _ = head
    start = length + 8 * count
    if length > MOST_TEXT or length % 8 or start > len(body):
        raise BadFrame(f"A frame of {len(body):,} bytes has no text of {length:,}, and {count:,} numbers.")
    numbers = memoryview(body)[length:start].cast("q").tolist()
    return Frame(timeout, bytes(body[:length]), numbers, body, start)


TEXTS: dict[Words, bytes] = {}  # those that are known


def text_of(words: Words) -> bytes:
    """Write a text."""
    text = json.dumps(words, separators=(",", ":")).encode()
    if len(text) > MOST_TEXT - 8:
        raise ValueError(f"A text of {len(text):,} bytes is too long: make fewer kinds of items in one call.")
    return keep(TEXTS, words, text := text + b" " * (-len(text) % 8), len(text))


def keep(known: dict[Key, Value], key: Key, value: Value, length: int) -> Value:
    """Remember what was made of a text of this length, or became one, unless it is long."""
    if length <= LONGEST_REMEMBERED:
        if len(known) >= MOST_REMEMBERED:
            known.clear()
        known[key] = value
    return value


def words_of(text: bytes) -> Any:
    """Read a text.

    Raises:
        BadFrame: If it is none.
    """
    try:
        return as_tuples(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"The text of a frame is no JSON of lists: {error}.") from None


def as_tuples(value: Any) -> Any:
    """Turn lists into tuples, and refuse objects."""
    if isinstance(value, list):
        return tuple([as_tuples(one) for one in cast("list[Any]", value)])
    if isinstance(value, dict):
        raise BadFrame("there is an object")
    return value


def expect(holds: bool, what: str) -> None:
    """Refuse what is not as it must be.

    Raises:
        BadFrame: If it does not hold.
    """
    if not holds:
        raise BadFrame(f"This is no call of a client, and no answer: {what}.")


def words_in(word: Any, count: int | None = None) -> Words:
    """Return what must be a list, of so many words."""
    fits = isinstance(word, tuple) and count in (None, len(cast(Words, word)))
    expect(fits, f"{word!r:.80} stands where a list of {count or 'some'} words must be")
    return cast(Words, word)


class Specs:
    """What a text says of the arrays behind it: of each the shape, the dtype, and where it begins."""

    def __init__(self) -> None:
        """Begin with none."""
        self._arrays: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
        self._size = 0  # bytes

    def add(self, word: Any) -> None:
        """Take a dtype and a shape; only numbers and bools are taken, and no Python objects.

        Raises:
            BadFrame: If it is none.
        """
        name, shape = words_in(word, 2)
        lengths = words_in(shape)
        fits = isinstance(name, str) and len(name) == 1 and name in DTYPES and 1 <= len(lengths) <= 32
        expect(fits and all(type(n) is int and n >= 0 for n in lengths), f"{word!r:.80} is no array")
        dtype: np.dtype[Any] = np.dtype(name)
        # counted without zeros, so that NumPy can make the array, too
        fits = math.prod(max(n, 1) for n in lengths) * dtype.itemsize <= LARGEST
        expect(fits, f"there is no array of shape {lengths!r:.80}")
        self._arrays.append((lengths, dtype, self._size))
        nbytes = math.prod(lengths) * dtype.itemsize
        self._size += nbytes + -nbytes % 8

    def arrays_of(self, frame: Frame) -> list[Array]:
        """Return the arrays of a frame, as views of its bytes."""
        left = len(frame.body) - frame.start
        expect(left == self._size, f"it has {left:,} bytes of arrays; its text says {self._size:,}")
        return [np.ndarray(shape, dtype, frame.body, frame.start + at) for shape, dtype, at in self._arrays]
