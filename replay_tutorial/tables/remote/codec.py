"""The wire format: calls and results as frames of JSON and raw arrays.

    head       length of the text, and length of everything after the head                       16 bytes
    text       JSON: name of the call, values, and dtype and shape of each array
    arrays     raw bytes, in the order of the text           text and arrays are each padded to 8 bytes

    sample("replay", 32)    ["sample", ["replay", 32, null, false], []]
    result                  ["answer", [[[0, ...], {"obs": 0}, null, []]], [["l", [32]], ..., ["f", [32, 3]]]]

A frame contains data only; nothing is unpickled. It must be one of `CALLS` with arguments of the declared
types. A NamedTuple or a Sample is encoded as the list of its fields, and each array as 0. The server itself
checks the values.
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
from replay_tutorial.tables.core.message import ColumnSlice, NewItems
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.results import Sample, TableInfo
from replay_tutorial.tables.core.waiting import Closed
from replay_tutorial.tables.core.writer_state import UnknownWriter

Array = npt.NDArray[Any]


class BadFrame(ValueError):
    """Invalid frame: malformed bytes, or not one of the expected calls."""


HEAD = struct.Struct("=QQ")
MAX_CALL_BYTES = 1 << 28  # maximum length of a call
MAX_TEXT_BYTES = 1 << 20  # maximum length of its text; decoding takes twenty times this memory
INT64 = range(-(1 << 63), 1 << 63)  # valid integers in the text
DTYPES = {letter: np.dtype(letter) for letter in "?bBhHiIlLqQefdgFDG"}  # bools and numbers

HELLO = "hello 6"  # includes the version of the protocol
CALLS: dict[str, tuple[Any, Any]] = {  # name → types of the arguments, type of the result
    HELLO: (tuple[str, str], tuple[str, str, dict[str, Array]]),
    "insert": (tuple[int, int, Sequence[ColumnSlice], Sequence[NewItems], int, float | None], Array),
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
GREETING = {HELLO: ARGUMENT_TYPES.pop(HELLO)}  # must be the first call of a connection
RESULT_TYPES = {
    name: {"answer": tuple[gives], "error": tuple[str, str]} for name, (_, gives) in CALLS.items()
}
# errors that are sent to the client, which raises the first matching class
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(CapacityError, UnknownWriter, Closed, BadFrame, TimeoutError, KeyError, IndexError, TypeError),
        *(ValueError, MemoryError, OverflowError, OSError, RuntimeError),
    )
}
LIMITERS = {kind.__name__: kind for kind in (RateLimiter, MinSize, SampleToInsertRatio, Queue, Stack)}


def pack(name: str, values: Iterable[Any]) -> bytes:
    """Encode a call, or a reply named "answer" or "error"; raise TypeError or ValueError if that fails."""
    arrays: list[Array] = []
    array_types: list[Any] = []

    def replaced(value: Any) -> Any:
        """Return the JSON representation of a value that the json module does not support."""
        if isinstance(value, np.ndarray) and (array := cast(Array, value)).dtype.char in DTYPES:
            arrays.append(np.ascontiguousarray(array, array.dtype.newbyteorder("=")))
            array_types.append((array.dtype.char, array.shape))
            return 0
        if isinstance(value, np.generic):
            return cast(Any, value).item()
        if isinstance(value, frozenset):
            return sorted(cast("frozenset[str]", value))
        if isinstance(value, Sample):
            return value.info, value.data, value.lengths, value.squeezed
        if isinstance(value, RateLimiter):
            if type(value) in LIMITERS.values():
                return type(value).__name__, *astuple(value)
            if name not in CALLS:  # `info` describes a limiter of the program's own class by the four numbers
                return RateLimiter.__name__, *astuple(value)[:4]
        raise TypeError(
            f"{value!r:.80} can't be sent; only numbers, strings, arrays and {[*LIMITERS]} are supported."
        )

    # `array_types` is encoded last, after `replaced` has filled it
    text = json.dumps([name, [*values], array_types], default=replaced, separators=(",", ":")).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise ValueError(
            f"The text of the call has {len(text):,} bytes; the limit is {MAX_TEXT_BYTES:,}. Send fewer "
            "kinds of items in one call."
        )
    pieces: list[Any] = [text, bytes(-len(text) % 8)]
    for array in arrays:
        pieces += [array, bytes(-array.nbytes % 8)]
    size = sum(memoryview(piece).nbytes for piece in pieces)
    if size > MAX_CALL_BYTES and name in CALLS:
        raise ValueError(
            f"The call has {size:,} bytes; the limit is {MAX_CALL_BYTES:,}. Send less data in one call."
        )
    return b"".join([HEAD.pack(len(text), size), *pieces])


def unpack(length: int, body: memoryview, known: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Decode a frame whose text has `length` bytes, or raise BadFrame; arrays are views of its bytes.

    `known` contains the permitted names, each with the types of its values.
    """
    if length > min(MAX_TEXT_BYTES, len(body)):
        raise BadFrame(
            f"The text has {length:,} bytes in a frame of {len(body):,}; the limit is {MAX_TEXT_BYTES:,}."
        )
    try:
        name, values, array_types = json.loads(bytes(body[:length]))
        return name, decoder_for(known[name])(values, decode_arrays(array_types, body, length + -length % 8))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise BadFrame(f"The frame is not one of {[*known]}: {error!r:.200}.") from None
    except (RecursionError, StopIteration):
        raise BadFrame("The frame is nested too deeply, or arrays are missing.") from None


def decode_arrays(array_types: Any, body: memoryview, start: int) -> Iterator[Array]:
    """Return the arrays of a frame, which follow each other and must end with the frame."""
    arrays: list[Array] = []
    for letter, shape in array_types:
        if {*map(type, shape)} != {int}:
            raise ValueError(f"{reprlib.repr(shape)} is not a valid shape")
        arrays.append(np.ndarray(shape, DTYPES[letter], body, start))
        start += arrays[-1].nbytes + -arrays[-1].nbytes % 8
    if start != len(body):
        raise ValueError(f"the frame has {len(body):,} bytes, but its text declares {start:,}")
    return iter(arrays)


PLAIN = {None: (NoneType,), bool: (bool,), str: (str,), int: (int,), float: (float, int)}


@cache
def decoder_for(kind: Any) -> Callable[[Any, Iterator[Array]], Any]:
    """Return a function that decodes values of this type and raises an error for others."""
    origin, parameters = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return lambda value, _: checked_type(value, PLAIN[kind])
    if origin is np.ndarray:
        return lambda _, arrays: next(arrays)
    if NoneType in parameters:
        decode = decoder_for(parameters[0])
        return lambda value, arrays: None if value is None else decode(value, arrays)
    if origin is dict:
        decode = decoder_for(parameters[1])
        return lambda value, arrays: {name: decode(element, arrays) for name, element in value.items()}
    if origin in (Sequence, frozenset) or Ellipsis in parameters:
        decode, container = decoder_for(parameters[0]), cast(Any, list if origin is Sequence else origin)
        return lambda value, arrays: container(
            [decode(element, arrays) for element in checked_type(value, (list,))]
        )
    construct: Callable[..., Any] = lambda *fields: fields
    types = parameters
    if origin is None:  # a NamedTuple, or a dataclass
        construct, types = kind, tuple(get_type_hints(kind).values())
    if kind is RateLimiter:
        construct, types = decode_limiter, (str, *types)
    decoders = [decoder_for(element) for element in types]
    return lambda value, arrays: construct(
        *[
            decode_field(element, arrays)
            for decode_field, element in zip(decoders, checked_type(value, (list,)), strict=True)
        ]
    )


def checked_type(value: Any, types: tuple[type, ...]) -> Any:
    """Return a decoded JSON value after checking its type; integers must fit into 64 bits."""
    if type(value) not in types or (type(value) is int and value not in INT64):
        raise TypeError(f"{reprlib.repr(value)} must be one of {types} and fit into 64 bits")
    return value


def decode_limiter(kind: str, *numbers: Any) -> RateLimiter:
    """Create a limiter from its class name and its four numbers, without the checks of a subclass."""
    limiter = object.__new__(LIMITERS[kind])
    RateLimiter.__init__(limiter, *numbers)
    return limiter
