"""The wire format: typed calls and replies as MessagePack, and large arrays as frames of their own.

    frame 0     a `Request`, or (number, error, value) of a reply; arrays as (dtype, shape, bytes)
    frames 1…   the bytes of arrays of at least 64 kB, sent and received without copies; instead of the bytes,
                frame 0 holds the number of the frame

A message contains data only; nothing is unpickled. msgspec checks that a request is one of the calls below
with arguments of the declared types. The server itself checks the values.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import zmq

from replay_tutorial.buffers.runtime.interrupts import defer_sigint
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.tables.core.cells import CapacityError
from replay_tutorial.tables.core.message import ColumnSlice, NewItems
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.results import Sample, TableInfo
from replay_tutorial.tables.core.waiting import Closed, ServerLost
from replay_tutorial.tables.core.writer_state import MAX_STEPS, UnknownWriter

VERSION = 8  # of the protocol
MAX_CALL_BYTES = 1 << 28  # maximum size of a call, and of each frame
MAX_TEXT_BYTES = 1 << 23  # maximum size of frame 0 of a call; decoding takes up to twenty times this memory
MAX_FRAMES = 1000
MAX_ERROR_LENGTH = 2000  # characters
OWN_FRAME_BYTES = 1 << 16  # size from which an array has a frame of its own
DTYPES = {letter: np.dtype(letter) for letter in "?bBhHiIlLqQefdgFDG"}  # bools and numbers
Natural = Annotated[int, msgspec.Meta(ge=0)]


class BadFrame(ValueError):
    """Invalid message: malformed bytes, or not one of the expected calls."""


class Call(msgspec.Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """A call of the server."""


class Insert(Call):
    """Insert a message; the messages of a writer are numbered from 1, and 1 starts the writer."""

    writer: int
    sequence: Annotated[int, msgspec.Meta(ge=1)]
    slices: list[ColumnSlice]
    items: list[NewItems]
    keep_from: Annotated[int, msgspec.Meta(ge=0, le=MAX_STEPS)]
    timeout: float | None


class Unanswered(Call):
    """A call without a reply."""


class CloseWriter(Unanswered):
    """Close a writer."""

    writer: int


class Draw(Call):
    """Sample items."""

    table: str
    batch_size: int
    timeout: float | None
    partial: bool


class Mutate(Call):
    """Delete items and update priorities."""

    table: str
    keys: Integers
    priorities: Floats
    deletes: Integers


class ReplaceLimiter(Call):
    """Replace the rate limiter of a table by one of the class `kind`."""

    table: str
    kind: str
    limiter: RateLimiter


class Do(Call):
    """Call a method with a table or a path."""

    method: Literal["reset", "save", "load"]
    argument: str


class ReadItems(Call):
    """Return all items of a table."""

    table: str


class Info(Call):
    """Return for each table the class of its limiter, and its state."""


class Cancel(Unanswered):
    """Report which calls are still pending, so that the server cancels the others."""


class Bye(Unanswered):
    """End the session."""


AnyCall = Insert | CloseWriter | Draw | Mutate | ReplaceLimiter | Do | ReadItems | Info | Cancel | Bye


class Request(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A call of a session, whose calls are numbered from 1."""

    token: bytes  # of the session, from the greeting
    number: Natural
    pending: Annotated[list[Natural], msgspec.Meta(max_length=10_000)]  # calls that the client still awaits
    call: AnyCall


class Greeting(msgspec.Struct, array_like=True):
    """What the server sends first on each new connection, as a reply of the number 0."""

    version: int
    token: bytes = b""  # identifies the session in this server
    columns: list[tuple[str, str, tuple[int, ...]]] = []  # name, dtype and shape


# errors that are sent to the client, which raises the first matching class
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(CapacityError, UnknownWriter, Closed, BadFrame, ServerLost, TimeoutError, KeyError, IndexError),
        *(TypeError, ValueError, MemoryError, OverflowError, OSError, RuntimeError),
    )
}
LIMITERS = {kind.__name__: kind for kind in (RateLimiter, MinSize, SampleToInsertRatio, Queue, Stack)}


class Frames(threading.local):
    """Frames 1… of the message that this thread encodes or decodes; None after an array has used it."""

    others: list[Any]


FRAMES = Frames()


def write_value(value: Any) -> Any:
    """Encode what msgspec doesn't know: arrays, and NumPy's scalars."""
    if not isinstance(value, np.ndarray):
        return value.item()
    array: npt.NDArray[Any] = value
    if array.dtype.char not in DTYPES:
        raise TypeError(f"An array of {array.dtype} can't be sent; only bools and numbers are supported.")
    array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    if array.nbytes < OWN_FRAME_BYTES:
        return array.dtype.char, array.shape, array.tobytes()
    FRAMES.others.append(array)
    return array.dtype.char, array.shape, len(FRAMES.others)


def read_array(kind: Any, value: Any) -> npt.NDArray[Any]:
    """Decode an array; raise ValueError if it is invalid."""
    letter, shape, data = value
    if isinstance(data, int):
        number, data = data - 1, FRAMES.others[data - 1].buffer
        FRAMES.others[number] = None
        array: npt.NDArray[Any] = np.require(np.ndarray(shape, DTYPES[letter], data), requirements=["A", "W"])
    else:
        array = np.ndarray(shape, DTYPES[letter], bytearray(data))
    if array.nbytes != len(data):
        raise ValueError(
            f"an array of {letter} and shape {shape!r:.60} has {array.nbytes} bytes, not {len(data)}"
        )
    return array


ENCODER = msgspec.msgpack.Encoder(enc_hook=write_value)
REQUESTS = msgspec.msgpack.Decoder(Request, dec_hook=read_array)
REPLIES = msgspec.msgpack.Decoder(tuple[int, str | None, msgspec.Raw])
RESULTS: dict[type, msgspec.msgpack.Decoder[Any]] = {
    call: msgspec.msgpack.Decoder(result, dec_hook=read_array)
    for call, result in {
        Insert: list[int],
        Draw: Sample,
        Mutate: int,
        ReadItems: Sample,
        Info: dict[str, tuple[str, TableInfo]],
        Greeting: Greeting,
        str: str,
    }.items()
}


def pack(message: Any) -> list[Any]:
    """Return the frames of a message; raise TypeError if an array does not hold numbers."""
    FRAMES.others = []
    return [ENCODER.encode(message), *FRAMES.others]


def pack_request(request: Request) -> list[Any]:
    """Encode a request; raise TypeError or ValueError if that fails."""
    frames = pack(request)
    if len(frames[0]) > MAX_TEXT_BYTES or len(frames) > MAX_FRAMES:
        raise ValueError(
            f"The call has {len(frames) - 1:,} large arrays and {len(frames[0]):,} other bytes; the limits "
            f"are {MAX_FRAMES - 1:,} and {MAX_TEXT_BYTES:,}. Send fewer kinds of items in one call."
        )
    if (size := sum(memoryview(frame).nbytes for frame in frames)) > MAX_CALL_BYTES:
        raise ValueError(
            f"The call has {size:,} bytes; the limit is {MAX_CALL_BYTES:,}. Send less data in one call."
        )
    return frames


def unpack_request(frames: Sequence[zmq.Frame]) -> Request:
    """Decode a request, or raise BadFrame."""
    try:
        if len(frames) > MAX_FRAMES or len(frames[0]) > MAX_TEXT_BYTES:
            raise ValueError(f"more than {MAX_FRAMES} frames, or {MAX_TEXT_BYTES} bytes")
        FRAMES.others = list(frames[1:])
        request = REQUESTS.decode(frames[0].buffer)
        if any(frame is not None for frame in FRAMES.others):
            raise ValueError("a frame belongs to no array")
    except (ValueError, TypeError, LookupError, RecursionError, AttributeError, OverflowError) as error:
        raise BadFrame(f"The message is not a call: {error!r:.200}.") from None
    return request


def pack_reply(number: int, result: Any) -> list[Any]:
    """Encode the result of a call, or its error; the number 0 stands for a call that was not decoded."""
    error = None
    if isinstance(result, BaseException):
        error = next((name for name, kind in ERRORS.items() if isinstance(result, kind)), "RuntimeError")
        text = str(result.args[0] if isinstance(result, KeyError) else result) or type(result).__name__
        result = text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}..."
    return pack((number, error, result))


def unpack_reply(kind: type, frames: Sequence[zmq.Frame], value: msgspec.Raw) -> Any:
    """Decode the result of a call of this class."""
    FRAMES.others = list(frames[1:])
    return RESULTS[kind].decode(value) if kind in RESULTS else None


def limiter_of(kind: str, limiter: RateLimiter) -> RateLimiter:
    """Return a limiter with the same numbers, of the class of this name."""
    made = object.__new__(LIMITERS.get(kind, RateLimiter))
    vars(made).update(vars(limiter))
    return made


def send(socket: zmq.Socket[bytes], frames: Sequence[Any]) -> None:
    """Send a message; copying a small frame is faster than sharing it."""
    if len(frames) == 1:
        socket.send(frames[0])
        return
    with defer_sigint():  # half a message would become the beginning of the next one
        socket.send(frames[0], zmq.SNDMORE)
        with suppress(zmq.Again):  # the connection is lost: ZeroMQ drops all frames up to the last one
            for frame in frames[1:-1]:
                socket.send(frame, zmq.SNDMORE, copy=type(frame) is bytes)
        socket.send(frames[-1], copy=type(frames[-1]) is bytes)


def receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame]:
    """Receive the rest of a message; frames after MAX_FRAMES are dropped."""
    frames = [socket.recv(copy=False)]
    while frames[-1].more:
        frame = socket.recv(copy=False)
        frames[MAX_FRAMES:] = [frame]
    return frames
