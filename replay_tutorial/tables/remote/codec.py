"""The wire format: calls and replies as MessagePack and raw arrays.

    frame 0     length of the text (8 bytes), text, arrays below 64 kB, each padded to 8 bytes
    frames 1…   one larger array each, sent and received without copies

    the text    a `Request`, or (number, error, value, array types) of a reply

A message contains data only; nothing is unpickled. msgspec checks that a request is one of `CALLS` with
arguments of the declared types. The server itself checks the values.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt
import zmq

from replay_tutorial.tables.core.cells import CapacityError
from replay_tutorial.tables.core.message import Layout
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.results import Sample, SampleInfo, TableInfo
from replay_tutorial.tables.core.waiting import Closed, ServerLost
from replay_tutorial.tables.core.writer_state import UnknownWriter

Array = npt.NDArray[Any]
MAX_AXES = 64  # of an array, as in NumPy
ArrayTypes = list[  # dtype and shape of each array
    tuple[str, Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_AXES)]]
]
Natural = Annotated[int, msgspec.Meta(ge=0)]

VERSION = 7  # of the protocol
MAX_CALL_BYTES = 1 << 28  # maximum size of a call, and of each frame
MAX_TEXT_BYTES = 1 << 20  # maximum size of the text of a call; decoding takes twenty times this memory
MAX_FRAMES = 1000
MAX_ERROR_LENGTH = 2000  # characters
SESSION_BYTES, LANE_BYTES = 16, 8  # of the ID of a connection
OWN_FRAME_BYTES = 1 << 16  # size from which an array has a frame of its own
DTYPES = {letter: np.dtype(letter) for letter in "?bBhHiIlLqQefdgFDG"}  # bools and numbers


class BadFrame(ValueError):
    """Invalid message: malformed bytes, or not one of the expected calls."""


CALLS: dict[str, Any] = {  # name → types of the arguments, without arrays
    "hello": tuple[int],  # the version; starts a session, or shows that its client is still there
    "bye": tuple[()],  # ends the session; not answered
    # writer, sequence, (column, first step) of each slice, (table, whether there are priorities, parts) of
    # each item, keep_from, timeout. Arrays: the values of each slice, the priorities and steps of each item.
    "insert": tuple[int, int, list[tuple[str, int]], list[tuple[str, bool, Layout]], int, float | None],
    "close_writer": tuple[int],  # not answered
    "sample": tuple[str, int, float | None, bool],
    "mutate_priorities": tuple[str],  # arrays: keys, priorities, deleted keys
    "reset": tuple[str],
    "replace_limiter": tuple[str, tuple[str, float, int, float, float]],
    "items": tuple[str],
    "info": tuple[()],
    "save": tuple[str],
    "load": tuple[str],
}


class Request(NamedTuple):
    """A call of one lane of a session; a lane makes one call at a time, and numbers its calls from 1."""

    number: int
    abandoned: list[int]  # lanes whose last call may still wait on the server
    name: str
    arguments: Any  # first undecoded, because their types depend on the name


# errors that are sent to the client, which raises the first matching class
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(CapacityError, UnknownWriter, Closed, BadFrame, ServerLost, TimeoutError, KeyError, IndexError),
        *(TypeError, ValueError, MemoryError, OverflowError, OSError, RuntimeError),
    )
}
LIMITERS = {kind.__name__: kind for kind in (RateLimiter, MinSize, SampleToInsertRatio, Queue, Stack)}
REQUESTS = msgspec.msgpack.Decoder(tuple[int, list[Natural], str, msgspec.Raw, ArrayTypes])
ARGUMENTS = {name: msgspec.msgpack.Decoder(types) for name, types in CALLS.items()}
REPLIES = msgspec.msgpack.Decoder(tuple[int, str | None, Any, ArrayTypes])
TEXT = msgspec.msgpack.Encoder(enc_hook=lambda value: value.item())  # NumPy's scalars


def pack(fields: Sequence[Any], arrays: Sequence[Array]) -> list[Any]:
    """Return the frames of a text, whose last field becomes the types of the arrays, and of the arrays.

    Raises:
        TypeError: If an array does not hold numbers.
    """
    types: ArrayTypes = []
    small: list[bytes] = []
    large: list[Array] = []
    for array in arrays:
        if array.dtype.char not in DTYPES:
            raise TypeError(f"An array of {array.dtype} can't be sent; only bools and numbers are supported.")
        array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        types.append((array.dtype.char, array.shape))
        if array.nbytes >= OWN_FRAME_BYTES:
            large.append(array)
        else:
            small += [array.tobytes(), bytes(-array.nbytes % 8)]
    text = TEXT.encode((*fields, types))
    return [b"".join([len(text).to_bytes(8, "little"), text, bytes(-len(text) % 8), *small]), *large]


def unpack(
    frames: Sequence[Any], decoder: Any, most_text: int = MAX_CALL_BYTES
) -> tuple[list[Any], list[Array]]:
    """Return the fields of a text without the last one, and the arrays; raise ValueError if it is invalid."""
    first = frames[0].buffer
    length, start, others = int.from_bytes(first[:8], "little"), 8, iter(frames[1:])
    if length > min(most_text, len(first) - 8):
        raise ValueError(f"The text has {length:,} bytes in {len(first):,}; the limit is {most_text:,}")
    *fields, types = decoder.decode(first[8 : 8 + length])
    body = np.array(first[8 + length + -length % 8 :], np.uint8)  # copied, so that it is aligned and writable
    start, arrays = 0, list[Array]()
    for letter, shape in types:
        if letter not in DTYPES or min(shape, default=0) < 0:
            raise ValueError(f"there are no arrays of {letter:.9} and shape {shape!r:.60}")
        size = math.prod(shape) * DTYPES[letter].itemsize
        if size < OWN_FRAME_BYTES:
            arrays.append(np.ndarray(shape, DTYPES[letter], body, start))
            start += size + -size % 8
        else:
            frame = np.frombuffer(next(others).buffer, DTYPES[letter]).reshape(shape)
            arrays.append(np.require(frame, requirements=["A", "W"]))
    if start != len(body) or next(others, None) is not None:
        raise ValueError("the frames contain more than these arrays")
    return fields, arrays


def send(socket: zmq.Socket[bytes], frames: Sequence[Any]) -> None:
    """Send a message; copying a small frame is faster than sharing it."""
    for frame in frames[:-1]:
        socket.send(frame, zmq.SNDMORE, copy=type(frame) is bytes)
    socket.send(frames[-1], copy=type(frames[-1]) is bytes)


def receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame]:
    """Receive the rest of a message; frames after MAX_FRAMES are dropped."""
    frames = [socket.recv(copy=False)]
    while frames[-1].more:
        frame = socket.recv(copy=False)
        frames[MAX_FRAMES:] = [frame]
    return frames


def pack_request(request: Request, arrays: Sequence[Array] = ()) -> list[Any]:
    """Encode a request; raise TypeError or ValueError if that fails."""
    frames = pack(request, arrays)
    length = int.from_bytes(frames[0][:8], "little")
    if length > MAX_TEXT_BYTES or len(frames) > MAX_FRAMES:
        raise ValueError(
            f"The text of the call has {length:,} bytes; the limit is {MAX_TEXT_BYTES:,}. Send fewer "
            "kinds of items in one call."
        )
    if (size := sum(memoryview(frame).nbytes for frame in frames)) > MAX_CALL_BYTES:
        raise ValueError(
            f"The call has {size:,} bytes; the limit is {MAX_CALL_BYTES:,}. Send less data in one call."
        )
    return frames


def number_of_arrays(request: Request) -> int:
    """Return the number of arrays that the arguments of a call refer to."""
    if request.name == "insert":
        _, _, slices, items, *_ = request.arguments
        return len(slices) + sum(1 + given for _, given, _ in items)
    return 3 if request.name == "mutate_priorities" else 0


def lane_id(session: bytes, lane: int) -> bytes:
    """Return the ID of the connection of a lane."""
    return session + lane.to_bytes(LANE_BYTES, "big")


def unpack_request(frames: Sequence[Any], connection: bytes) -> tuple[Request, list[Array]]:
    """Decode a request and its arrays, or raise BadFrame; msgspec's errors are ValueErrors."""
    try:
        if len(connection) != SESSION_BYTES + LANE_BYTES or len(frames) > MAX_FRAMES:
            raise ValueError(f"more than {MAX_FRAMES} frames, or a connection without a lane")
        (number, abandoned, name, arguments), arrays = unpack(frames, REQUESTS, MAX_TEXT_BYTES)
        request = Request(number, abandoned, name, ARGUMENTS[name].decode(arguments))
        if name == "hello" and request.arguments != (VERSION,):
            raise ValueError(f"the version of the protocol must be {VERSION}")
        if len(arrays) != number_of_arrays(request):
            raise ValueError(f"{len(arrays)} arrays don't match the call")
        return request, arrays
    except (
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        RecursionError,
        StopIteration,
    ) as error:  # msgspec's errors are ValueErrors
        raise BadFrame(f"The message is not one of {[*CALLS]}: {error!r:.200}.") from None


def pack_reply(number: int, result: Any) -> list[Any]:
    """Encode the result of a call."""
    arrays: list[Array] = []
    if isinstance(result, Sample):
        lengths = result.lengths
        arrays = [*result.info, *result.data.values(), *(lengths or {}).values()]
        result = [*result.data], lengths and [*lengths], sorted(result.squeezed)
    elif isinstance(result, dict):
        infos: dict[str, TableInfo] = result
        result = {
            name: info._replace(rate_limiter=pack_limiter(info.rate_limiter, is_described=True))
            for name, info in infos.items()
        }
    return pack((number, None, result), arrays)


def pack_error(number: int, error: Exception) -> list[Any]:
    """Encode an error; the call number 0 stands for a call that could not be decoded."""
    kind = next((name for name, kind in ERRORS.items() if isinstance(error, kind)), RuntimeError.__name__)
    text = str(error.args[0] if isinstance(error, KeyError) else error)
    text = text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}..."
    return pack((number, kind, text), ())


def read_sample(value: Any, arrays: list[Array]) -> Sample:
    """Return the sample of a reply."""
    names, with_lengths, squeezed = value
    count = len(SampleInfo._fields)
    data = dict(zip(names, arrays[count:], strict=False))
    lengths = with_lengths and dict(zip(with_lengths, arrays[count + len(names) :], strict=True))
    return Sample(SampleInfo._make(arrays[:count]), data, lengths, frozenset(squeezed))


def read_info(value: Any) -> dict[str, TableInfo]:
    """Return the state of the tables of a reply."""
    infos = {name: TableInfo._make(fields) for name, fields in value.items()}
    return {
        name: info._replace(rate_limiter=make_limiter(*cast(Any, info.rate_limiter)))
        for name, info in infos.items()
    }


def pack_limiter(limiter: RateLimiter, *, is_described: bool = False) -> Any:
    """Return the class and the four numbers of a limiter.

    Raises:
        TypeError: If it is of the program's own class, unless the numbers are only a description.
    """
    kind = type(limiter)
    if kind not in LIMITERS.values():
        if not is_described:
            raise TypeError(f"{limiter!r:.80} can't be sent; only {[*LIMITERS]} are supported.")
        kind = RateLimiter
    return kind.__name__, *astuple(limiter)[:4]


def make_limiter(kind: str, *numbers: Any) -> RateLimiter:
    """Create a limiter from its class name and its four numbers, without the checks of a subclass."""
    limiter = object.__new__(LIMITERS[kind])
    RateLimiter.__init__(limiter, *numbers)
    return limiter
