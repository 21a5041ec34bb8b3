"""What a client and a server say to each other, as bytes.

    head       bytes of the text, and of all behind the head                                     16 bytes
    text       JSON: what is called, the values, and of each array its dtype and shape
    arrays     their raw bytes, in the order of the text           text and arrays each filled up to 8 bytes

    sample("replay", 32)    ["sample", ["replay", 32, null, false], []]
    its answer              ["answer", [[[0, ...], {"obs": 0}, null, []]], [["l", [32]], ..., ["f", [32, 3]]]]

A frame holds numbers and strings, never code: nothing is unpickled. It must be one of `CALLS`, with arguments
of their types; a NamedTuple and a Sample are lists of their fields, and 0 stands for the next array. The
server itself checks what the values mean.
"""

import json
import reprlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import cache
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from replay_tutorial.tables.core.cells import CapacityError
from replay_tutorial.tables.core.message import ColumnSlice, NewItems, UnknownWriter
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.sampled import Sample, TableInfo
from replay_tutorial.tables.core.waiting import Closed

Array = npt.NDArray[Any]


class BadFrame(ValueError):
    """Bytes that are not a frame, or a frame that is not a call."""


HEAD = struct.Struct("=QQ")
MAX_CALL_BYTES = 1 << 28  # of a call
MAX_TEXT_BYTES = 1 << 20  # of these, the text: decoding it takes twenty times its size
INT64 = range(-(1 << 63), 1 << 63)  # all integers that a text may hold
DTYPES = {letter: np.dtype(letter) for letter in "?bBhHiIlLqQefdgFDG"}  # of bools and numbers

HELLO = "hello 6"  # with the version of the protocol
CALLS: dict[str, tuple[Any, Any]] = {  # types of the arguments, and of the result
    HELLO: (tuple[str, str], tuple[str, str, dict[str, Array]]),
    "insert": (tuple[int, int, Sequence[ColumnSlice], Sequence[NewItems], int, float | None], list[int]),
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
ARGUMENT_TYPES = {name: takes for name, (takes, _) in CALLS.items()}
GREETING = {HELLO: ARGUMENT_TYPES.pop(HELLO)}  # the first call of a connection, and no other
RESULT_TYPES = {
    name: {"answer": tuple[gives], "error": tuple[str, str]} for name, (_, gives) in CALLS.items()
}
ERRORS: dict[str, type[Exception]] = {  # of the server, that its client raises: the first that fits
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
    forms: list[Any] = []

    def replaced(value: Any) -> Any:
        """Return what stands in the text for a value that JSON does not know."""
        if isinstance(value, np.ndarray) and (array := cast(Array, value)).dtype.char in DTYPES:
            arrays.append(np.ascontiguousarray(array, array.dtype.newbyteorder("=")))
            forms.append((array.dtype.char, array.shape))
            return 0
        if isinstance(value, np.generic):
            return cast(Any, value).item()
        if isinstance(value, frozenset):
            return sorted(cast("frozenset[str]", value))
        if isinstance(value, Sample):
            return value.info, value.data, value.lengths, value.squeezed
        if isinstance(value, RateLimiter) and type(value) in LIMITERS.values():
            return type(value).__name__, *astuple(value)
        raise TypeError(f"{value!r:.80} can't be sent: only numbers, strings, arrays, and {[*LIMITERS]}.")

    # the list of forms is written last, when all arrays are in it
    text = json.dumps([name, [*values], forms], default=replaced, separators=(",", ":")).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise ValueError(f"A text of {len(text):,} bytes is too long: make fewer kinds of items in one call.")
    pieces: list[Any] = [text, bytes(-len(text) % 8)]
    for array in arrays:
        pieces += [array, bytes(-array.nbytes % 8)]
    size = sum(memoryview(piece).nbytes for piece in pieces)
    if size > MAX_CALL_BYTES and name in CALLS:
        raise ValueError(f"A call of {size:,} bytes is too long; {MAX_CALL_BYTES:,} may be. Send less.")
    return b"".join([HEAD.pack(len(text), size), *pieces])


def unpack(length: int, body: memoryview, known: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Decode a frame; arrays are views of its bytes.

    Args:
        length: Bytes of its text.
        body: Text and arrays.
        known: The names that it may hold, and the types of the values behind each.

    Raises:
        BadFrame: If it holds anything else.
    """
    if length > min(MAX_TEXT_BYTES, len(body)):
        raise BadFrame(
            f"A frame of {len(body):,} bytes has no text of {length:,}; {MAX_TEXT_BYTES:,} may be."
        )
    try:
        name, values, forms = json.loads(bytes(body[:length]))
        return name, decoder_for(known[name])(values, decode_arrays(forms, body, length + -length % 8))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise BadFrame(f"A frame is none of {[*known]}: {error!r:.200}.") from None
    except (RecursionError, StopIteration):
        raise BadFrame("A frame is nested too deeply, or lacks arrays.") from None


def decode_arrays(forms: Any, body: memoryview, start: int) -> Iterator[Array]:
    """Return the arrays of a frame, which lie one behind the other and end with it."""
    arrays: list[Array] = []
    for letter, shape in forms:
        if {*map(type, shape)} != {int}:
            raise ValueError(f"{reprlib.repr(shape)} is not a shape")
        arrays.append(np.ndarray(shape, DTYPES[letter], body, start))
        start += arrays[-1].nbytes + -arrays[-1].nbytes % 8
    if start != len(body):
        raise ValueError(f"{len(body):,} bytes came; the text speaks of {start:,}")
    return iter(arrays)


PLAIN = {None: (NoneType,), bool: (bool,), str: (str,), int: (int,), float: (float, int)}


@cache
def decoder_for(kind: Any) -> Callable[[Any, Iterator[Array]], Any]:
    """Return a function that makes a value of a type of its JSON and the arrays; it raises if that fails."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return lambda value, _: checked_type(value, PLAIN[kind])
    if origin is np.ndarray:
        return lambda _, arrays: next(arrays)
    if origin is list:  # of integers, sent as an array
        return lambda _, arrays: next(arrays).tolist()
    if NoneType in inner:
        some = decoder_for(inner[0])
        return lambda value, arrays: None if value is None else some(value, arrays)
    if origin is dict:
        each = decoder_for(inner[1])
        return lambda value, arrays: {name: each(one, arrays) for name, one in value.items()}
    if origin in (Sequence, frozenset) or Ellipsis in inner:
        every, many = decoder_for(inner[0]), cast(Any, list if origin is Sequence else origin)
        return lambda value, arrays: many([every(one, arrays) for one in checked_type(value, (list,))])
    make: Callable[..., Any] = make_tuple
    kinds = inner
    if origin is None:  # a NamedTuple, or a dataclass
        make, kinds = kind, tuple(get_type_hints(kind).values())
    if kind is RateLimiter:
        make, kinds = decode_limiter, (str, *kinds)
    readers = [decoder_for(one) for one in kinds]
    return lambda value, arrays: make(
        *[read(one, arrays) for read, one in zip(readers, checked_type(value, (list,)), strict=True)]
    )


def make_tuple(*fields: Any) -> tuple[Any, ...]:
    """Return fields as they are."""
    return fields


def checked_type(value: Any, types: tuple[type, ...]) -> Any:
    """Return a word that JSON made; refuse one of another type, and an integer of more than 64 bits."""
    if type(value) not in types or (type(value) is int and value not in INT64):
        raise TypeError(f"{reprlib.repr(value)} must be of {types}, in 64 bits")
    return value


def decode_limiter(kind: str, *numbers: Any) -> RateLimiter:
    """Make a limiter of its kind and its four numbers, however they were found."""
    limiter = object.__new__(LIMITERS[kind])
    RateLimiter.__init__(limiter, *numbers)
    return limiter
