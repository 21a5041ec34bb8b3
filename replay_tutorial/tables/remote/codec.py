"""What a client and the tables' server say to each other, as bytes.

    head       bytes of the text, and of all behind the head                                     16 bytes
    text       JSON: what is said, and in the place of each array its dtype and shape
    arrays     their raw bytes, in the order of the text           text and arrays each filled up to 8 bytes

    sample("replay", 32)    ["sample", "replay", 32, null, false]
    its answer              ["answer", [[["l", [32]], ...], {"obs": ["f", [32, 3]]}, null, []]]

Whoever sends a frame chooses numbers and words, and never what is run: nothing is unpickled. It must be one
of the calls below, with arguments of their types. A NamedTuple and a Sample are lists of their fields, whose
types are those of the annotations. What the values mean is checked by the server itself.

Left out: who calls (`handle`), and who answers (`endpoint`).
"""

import json
import reprlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import cache, partial
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from replay_tutorial.tables.core.cells import CapacityError
from replay_tutorial.tables.core.message import Message, UnknownWriter
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.sampled import Sample, TableInfo
from replay_tutorial.tables.core.waiting import Closed

Array = npt.NDArray[Any]
ARRAY = get_origin(Array)


class BadFrame(ValueError):
    """Bytes that are no frame, or a frame that is no call."""


HEAD = struct.Struct("=QQ")
MOST_BYTES = 1 << 28  # of a call
MOST_TEXT = 1 << 20  # of these, the text: what is made of it takes twenty times as much
INT64 = range(-(1 << 63), 1 << 63)  # all integers that may be said
DTYPES = {letter: np.dtype(letter) for letter in "?bBhHiIlLqQefdgFDG"}  # of bools and numbers

HELLO = "hello 4"  # with the version of what is said
CALLS: dict[str, tuple[Any, Any]] = {  # what may be called: types of arguments, and of what comes back
    HELLO: (tuple[str, str], tuple[str, str, dict[str, Array]]),
    "insert": (tuple[Message, float | None], Array),
    "close_writer": (tuple[int], None),
    "sample": (tuple[str, int, float | None, bool], Sample),
    "mutate_priorities": (tuple[str, tuple[Array, Array], Array], int),
    "reset": (tuple[str], None),
    "replace_limiter": (tuple[str, RateLimiter], None),
    "items": (tuple[str], Sample),
    "info": (tuple[()], dict[str, TableInfo]),
    "save": (tuple[str], None),
    "load": (tuple[str], None),
}
TAKES = {name: takes for name, (takes, _) in CALLS.items()}  # what a call may say
GREETING = {HELLO: TAKES.pop(HELLO)}  # what the first one may, and no other
GIVES = {name: {"answer": tuple[gives], "error": tuple[str, str]} for name, (_, gives) in CALLS.items()}
ERRORS: dict[str, type[Exception]] = {  # of the server, that its client is told; the first that fits
    kind.__name__: kind
    for kind in (
        *(CapacityError, UnknownWriter, Closed, BadFrame, TimeoutError, KeyError, IndexError, TypeError),
        *(ValueError, MemoryError, OverflowError, OSError, RuntimeError),
    )
}
LIMITERS = {kind.__name__: kind for kind in (RateLimiter, MinSize, SampleToInsertRatio, Queue, Stack)}


def pack(name: str, values: Iterable[Any]) -> bytes:
    """Make a frame of a call, or of an "answer" or "error"; refuse what can't be sent, or is too long."""
    arrays: list[Array] = []

    def apart(value: Any) -> Any:
        """Say what JSON has no word for."""
        if isinstance(value, np.ndarray) and (array := cast(Array, value)).dtype.char in DTYPES:
            arrays.append(np.ascontiguousarray(array, array.dtype.newbyteorder("=")))
            return array.dtype.char, array.shape
        if isinstance(value, np.generic):
            return cast(Any, value).item()
        if isinstance(value, frozenset):
            return sorted(cast("frozenset[str]", value))
        if isinstance(value, Sample):
            return value.info, value.data, value.lengths, value.squeezed
        if isinstance(value, RateLimiter) and type(value) in LIMITERS.values():
            return type(value).__name__, *astuple(value)
        raise TypeError(f"{value!r:.80} can't be sent: only numbers, words, arrays, and {[*LIMITERS]}.")

    text = json.dumps([name, *values], default=apart, separators=(",", ":")).encode()
    if len(text) > MOST_TEXT:
        raise ValueError(f"A text of {len(text):,} bytes is too long: make fewer kinds of items in one call.")
    pieces: list[Any] = [text, bytes(-len(text) % 8)]
    for array in arrays:
        pieces += [array, bytes(-array.nbytes % 8)]
    size = sum(memoryview(piece).nbytes for piece in pieces)
    return b"".join([HEAD.pack(len(text), size), *pieces])


def unpack(length: int, body: bytearray, known: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Put together what a frame says; arrays are views of its bytes.

    Args:
        length: Bytes of its text.
        body: Text and arrays.
        known: Names that it may say, and the types of what stands behind them. All else is a BadFrame.
    """
    if length > min(MOST_TEXT, len(body)):
        raise BadFrame(f"A frame of {len(body):,} bytes has no text of {length:,}; {MOST_TEXT:,} may be.")
    try:
        words = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"The text of a frame is no JSON: {error}.") from None
    match words:
        case [str(name), *values] if name in known:
            arrays = Arrays(body, length + -length % 8)
            heard = reader_of(known[name])(values, arrays)
        case _:
            raise BadFrame(f"{reprlib.repr(words)} is none of {[*known]}.")
    if arrays.at != len(body):
        raise BadFrame(f"A frame of {len(body):,} bytes came; its text speaks of {arrays.at:,}.")
    return name, heard


class Arrays:
    """The arrays of a frame, one after the other."""

    def __init__(self, body: bytearray, start: int) -> None:
        """Begin behind the text."""
        self._body = body
        self.at = start  # where the next one begins

    def take(self, word: Any) -> Array:
        """Return the next one, which is as its dtype and shape say."""
        match word:
            case [str(letter), [*shape]] if letter in DTYPES and {*map(type, shape)} == {int}:
                pass
            case _:
                raise BadFrame(f"{reprlib.repr(word)} is no dtype of numbers and a shape.")
        try:
            array: Array = np.ndarray(shape, DTYPES[letter], self._body, self.at)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadFrame(f"There is no array {reprlib.repr(word)} at byte {self.at:,}: {error}.") from None
        self.at += array.nbytes + -array.nbytes % 8
        return array


PLAIN = {None: (NoneType,), bool: (bool,), str: (str,), int: (int,), float: (float, int)}


@cache
def reader_of(kind: Any) -> Callable[[Any, Arrays], Any]:
    """Return what makes a value of a type of what JSON made of it, or refuses that as a BadFrame."""
    origin, inner = get_origin(kind), get_args(kind)
    types = PLAIN.get(kind, (dict if origin is dict else list,))  # of what JSON made

    def refuse(word: Any) -> Any:
        raise BadFrame(f"{reprlib.repr(word)} stands where {kind} must be, in 64 bits.")

    if kind in PLAIN:
        return lambda word, _: (
            word if type(word) in types and (type(word) is not int or word in INT64) else refuse(word)
        )
    if origin is ARRAY:
        return lambda word, arrays: arrays.take(word)
    if NoneType in inner:
        some = reader_of(inner[0])
        return lambda word, arrays: None if word is None else some(word, arrays)
    if origin is dict:
        each = reader_of(inner[1])
        return lambda word, arrays: (
            {name: each(word[name], arrays) for name in word} if type(word) in types else refuse(word)
        )
    if origin in (list, Sequence, frozenset) or Ellipsis in inner:
        every, many = reader_of(inner[0]), cast(Any, list if origin is Sequence else origin)
        return lambda word, arrays: (
            many([every(one, arrays) for one in word]) if type(word) in types else refuse(word)
        )
    make, kinds = cast(Any, origin), inner
    if kind is RateLimiter:
        make, kinds = limiter_of, (str, *get_type_hints(kind).values())
    elif origin is None:
        make, kinds = partial(of_fields, kind), tuple(get_type_hints(kind).values())
    readers = [reader_of(one) for one in kinds]
    return lambda word, arrays: (
        make([read(one, arrays) for read, one in zip(readers, word, strict=True)])
        if type(word) in types and len(word) == len(readers)
        else refuse(word)
    )


def of_fields(kind: Any, fields: list[Any]) -> Any:
    """Make a NamedTuple, or a Sample."""
    return kind(*fields)


def limiter_of(parts: list[Any]) -> RateLimiter:
    """Make a limiter of its kind and its four numbers, however they were found."""
    kind, *numbers = parts
    if kind not in LIMITERS:
        raise BadFrame(f"There is no limiter {kind!r:.80}; there are {[*LIMITERS]}.")
    limiter = RateLimiter.__new__(LIMITERS[kind])
    RateLimiter.__init__(limiter, *numbers)
    return limiter
