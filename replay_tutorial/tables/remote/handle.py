"""A handle to a server in another process, with the same methods as the server.

A call uses an idle *lane*, a connection of its own, or opens a new one, so threads wait for the server but
not for each other. ZeroMQ reconnects a lane that lost its connection; the handle then repeats the call, which
the server recognises by its number. On one machine a connection is lost only if the server exits, so calls
raise `ServerLost` at once. An abandoned call may still be answered, so its lane is closed.
"""

import functools
import itertools
import math
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from os import PathLike
from typing import Any, Self, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.tables.core.arguments import as_keys, as_updates, check_names
from replay_tutorial.tables.core.message import Message
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.results import Sample, TableInfo
from replay_tutorial.tables.core.waiting import POLL_INTERVAL, Cancelled, Closed, ServerLost
from replay_tutorial.tables.remote import codec
from replay_tutorial.tables.remote.addresses import (
    KEY_VARIABLE,
    OWNERS,
    check_owner,
    open_socket,
    parse_address,
    read_key,
)
from replay_tutorial.tables.remote.checks import pack_message
from replay_tutorial.tables.remote.codec import Request

RECONNECT_SECONDS = 60.0  # how long a call waits for the connection to another host
CONNECT_SECONDS = 5.0  # how long it waits for a further connection to a running server of this machine
POLL_MS = round(1000 * POLL_INTERVAL)
E = zmq.Event
REJECTED = E.HANDSHAKE_FAILED_AUTH | E.HANDSHAKE_FAILED_PROTOCOL | E.HANDSHAKE_FAILED_NO_DETAIL


@functools.cache
def context_of(process: int) -> zmq.Context[zmq.Socket[bytes]]:
    """Return the ZeroMQ context of this process; a forked child must not use its parent's."""
    return zmq.Context()


class Lane:
    """A connection that makes one call at a time; `number` is that of its last call."""

    def __init__(self, url: str, number: int, **options: Any) -> None:
        """Start to connect."""
        self.lane, self.number, self._process = number, 0, os.getpid()
        self.socket = open_socket(context_of(self._process), zmq.DEALER, **options)
        self._monitor = self.socket.get_monitor_socket(REJECTED | E.DISCONNECTED | E.CONNECT_RETRIED)
        self.socket.connect(url)

    def is_connected(self) -> bool:
        """Return whether there is a connection now."""
        return not self.socket.closed and bool(cast(int, self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def events(self) -> int:
        """Return the events of the connection since the last call."""
        events = 0
        while self._monitor.poll(0):
            events |= recv_monitor_message(self._monitor)["event"]
        return events

    def close(self) -> None:
        """Close the connection; a forked child keeps that of its parent."""
        if self._process == os.getpid() and not self.socket.closed:
            self.socket.disable_monitor()  # first: an event without a receiver would block ZeroMQ
            self._monitor.close()
            self.socket.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # the constructor was interrupted
            self.close()


class Session:
    """The connections of one process."""

    def __init__(self, url: str) -> None:
        """Start to connect lane 0."""
        self._url, self._id = url, secrets.token_bytes(codec.SESSION_BYTES)
        # immediate: a lost connection is not writable
        self._options = dict[str, Any](ipv6="[" in url, immediate=1, linger=0, sndtimeo=0)
        self._options |= {"connect_timeout": 3_000, "reconnect_ivl": 50, "reconnect_ivl_max": 1_000}
        if url.startswith("ipc:"):
            check_owner(url.removeprefix("ipc://"))
        else:
            keys = read_key()
            self._options["curve_serverkey"] = keys.server_public
            self._options["curve_publickey"] = keys.client_public
            self._options["curve_secretkey"] = keys.client_secret
        self.lock = threading.Lock()
        self.is_new = True  # whether the server has not replied yet
        self.numbers = itertools.count()  # of lanes
        self.idle: list[Lane] = []
        self.abandoned: set[int] = set()
        self.first = self.acquire()

    def acquire(self) -> Lane:
        """Return an idle lane or a new one."""
        with suppress(IndexError):
            return self.idle.pop()
        number = next(self.numbers)
        # No thread reads what the server sends to lane 0 to check whether it is connected. If that filled the
        # queue, ZeroMQ would stop reading, miss the heartbeats, and end the connection.
        options = self._options | {"conflate": number == 0}  # keep only the newest message
        return Lane(self._url, number, routing_id=codec.lane_id(self._id, number), **options)

    def close(self) -> None:
        """Close all connections that no call uses."""
        lane = self.first
        with suppress(IndexError):  # preferred, because lane 0 may lose what is sent before it is closed
            lane = self.idle.pop()
        with self.lock:
            with suppress(zmq.ZMQError):  # not connected, or closed before
                lane.socket.linger = 500  # milliseconds, for the last message
                codec.send(lane.socket, codec.pack_request(Request(lane.number + 1, [], "bye", ())))
            lane.close()
            self.first.close()
        while self.idle:
            self.idle.pop().close()


def close_own(sessions: dict[int, Session]) -> None:
    """Close the session of this process, if there is one."""
    if (session := sessions.pop(os.getpid(), None)) is not None:
        session.close()


class RemoteWriter:
    """A writer of a handle, with its last message; sending the same message again keeps its number."""

    sequence = 0  # number of the last message; 0 before the first message and after closing

    def __init__(self, dropped: deque[int]) -> None:
        """Create a writer; garbage collection appends its number to `dropped`."""
        self.number = secrets.randbits(63)  # unique
        self.message: Message | None = None
        self._dropped = dropped

    def __del__(self) -> None:
        if self.sequence:
            self._dropped.append(self.number)


class RemoteServer:
    """A handle to a server in another process, with the methods of `Server`.

    Several threads can share one handle. A handle can be pickled and passed to another process, which opens
    its own connections. Calls raise the errors of the server, and `ServerLost` if the server has exited.

    Clients, writers and datasets accept a handle instead of a server, as in
    `Client(RemoteServer("/tmp/replay.sock"))`.

    Attributes:
        address: Address of the server.
        fields: The columns, keyed by name.
    """

    def __init__(self, address: str, *, timeout: float = 5.0) -> None:
        """Connect to a server.

        Args:
            address: Path of a socket, or HOST:PORT.
            timeout: Seconds to keep trying while the server is starting.

        Raises:
            AuthenticationError: If the server has another key.
            ConnectionError: If the server runs an incompatible version of this package.
            OSError: If there is no key.
            ServerLost: If no server is reachable.
            ValueError: If the address or the key is invalid, or other users can read the key.
        """
        self._url, self._is_local = parse_address(address)
        self.address = self._url.partition("://")[2]
        self._timeout = timeout
        self._closed = False
        self._dropped = deque[int]()  # numbers of writers that were garbage-collected before `close`
        self._sessions: dict[int, Session] = {}  # by process ID; a forked child adds its own
        OWNERS.add(self)
        self._finalizer = weakref.finalize(self, close_own, self._sessions)
        deadline = time.monotonic() + timeout
        while not self._sessions:
            try:
                self._session()
            except FileNotFoundError:  # the first server on a machine creates the key
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL_INTERVAL)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(RemoteServer, timeout=self._timeout), (self.address,)

    def _session(self) -> Session:
        """Return the session of this process, after starting it if necessary."""
        if (session := self._sessions.get(os.getpid())) is None:
            session = Session(self._url)
            try:
                frames = self._pack(session, session.first, "hello", (codec.VERSION,))
                error, columns, _ = self._exchange(session, session.first, frames)
            except BaseException:
                session.close()
                raise
            if error is not None:
                session.close()
                raise ConnectionError(
                    f"The server at {self.address} runs an incompatible version of this package. Use the "
                    "same version in all processes."
                )
            session.is_new = False
            self.fields = Fields({name: {"dtype": d, "shape": shape} for name, d, shape in columns})
            if (other := self._sessions.setdefault(os.getpid(), session)) is not session:  # of another thread
                session.close()
                return other
        return session

    def _pack(
        self, session: Session, lane: Lane, name: str, arguments: Sequence[Any], arrays: Sequence[Any] = ()
    ) -> list[Any]:
        """Encode the next call of a lane."""
        lane.number += 1
        return codec.pack_request(Request(lane.number, list(session.abandoned), name, arguments), arrays)

    def _call(
        self,
        name: str,
        *arguments: Any,
        arrays: Sequence[Any] = (),
        should_cancel: Callable[[], bool] | None = None,
        on_packed: Callable[[], None] | None = None,
    ) -> Any:
        """Make a call and return its value and arrays; `on_packed` is called before the call is sent."""
        self._check_open()
        session = self._session()
        lane = session.acquire()
        known = set(session.abandoned)
        try:
            frames = self._pack(session, lane, name, arguments, arrays)
            if on_packed is not None:
                on_packed()
            error, value, result = self._exchange(session, lane, frames, should_cancel)
        except BaseException:
            session.abandoned.add(lane.lane)
            lane.close()
            raise
        session.idle.append(lane)
        session.abandoned -= known
        if error is not None:
            raise codec.ERRORS[error](value)
        return codec.read_sample(value, result) if result else value

    def _exchange(
        self, session: Session, lane: Lane, frames: list[Any], should_cancel: Callable[[], bool] | None = None
    ) -> tuple[str | None, Any, list[Any]]:
        """Send a call, and again after a lost connection; return the error, value and arrays of the reply."""
        is_sent, lost_at, was_refused, started_at = False, math.inf, False, time.monotonic()
        while True:
            self._check_open()
            with suppress(zmq.Again):
                if not is_sent:
                    codec.send(lane.socket, frames)
                    is_sent = True
                reply = codec.receive(lane.socket)
                if len(reply[0]):  # otherwise the server has checked whether the client is there
                    (number, error, value), arrays = codec.unpack(reply, codec.REPLIES)
                    if number in (0, lane.number):  # otherwise of a call that was repeated
                        return error, value, arrays
                elif lane is session.first:
                    is_sent = False  # the check may have replaced the reply in the queue: ask again
            if should_cancel is not None and should_cancel():
                raise Cancelled
            events = lane.events()
            # also a relay ends a handshake, if its server is starting
            may_retry = time.monotonic() - started_at < self._timeout and not events & E.HANDSHAKE_FAILED_AUTH
            if session.is_new and events & REJECTED and not may_retry:
                raise AuthenticationError(
                    f"The server at {self.address} has a different key, or a process without the key listens "
                    f"there. Set {KEY_VARIABLE} to the key that the server prints."
                )
            was_refused |= bool(events & E.CONNECT_RETRIED)
            is_sent &= not events & E.DISCONNECTED
            if is_sent or lane.socket.poll(POLL_MS if not session.is_new else 20, zmq.POLLOUT):
                lost_at = math.inf
                continue
            lost_at = min(lost_at, time.monotonic())
            if time.monotonic() - lost_at >= self._patience(session, was_refused):
                self._check_open()
                raise ServerLost(
                    f"There is no server at {self.address}. Start it and create a new handle."
                    if session.is_new
                    else f"The server at {self.address} has exited, closed its endpoint, or can't be "
                    "reached; the call may or may not have been carried out. Restart it, and create a new "
                    "handle and new writers."
                )

    def _patience(self, session: Session, was_refused: bool) -> float:
        """Return how many seconds to wait for a connection."""
        if session.is_new:
            return self._timeout if was_refused else self._timeout + CONNECT_SECONDS
        if not self._is_local:
            return RECONNECT_SECONDS
        with session.lock:
            return CONNECT_SECONDS if session.first.is_connected() else 0.0

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("This handle was closed. Create a new one.")

    def _open_writer(self) -> RemoteWriter:
        """Start a writer; its first message creates it on the server."""
        return RemoteWriter(self._dropped)

    def _insert(self, writer: RemoteWriter, message: Message, timeout: float | None = None) -> list[int]:
        """Store the values of a message and insert its items; see `Server._insert`."""
        while self._dropped:
            with suppress(IndexError):  # another thread may have removed the last element
                self._send_close(self._dropped.popleft())
        for new in message.items:  # the server could not decode others
            check_names((new.table, *(part.name for part in new.layout)))
        sequence = writer.sequence + (message is not writer.message)

        def use_sequence() -> None:  # only if the message could be encoded
            writer.sequence, writer.message = sequence, message

        arguments, arrays = pack_message(writer.number, sequence, message, as_timeout(timeout))
        return self._call("insert", *arguments, arrays=arrays, on_packed=use_sequence)

    def _close_writer(self, writer: RemoteWriter) -> None:
        """Close a writer without waiting for the server."""
        if writer.sequence:
            self._send_close(writer.number)
            writer.sequence = 0  # last: a writer whose closing was interrupted must not restart at 1

    def _send_close(self, number: int) -> None:
        with suppress(Closed, OSError):  # in these cases the server closes the writer with the session
            self._check_open()
            session = self._session()
            lane = session.acquire()
            frames = self._pack(session, lane, "close_writer", (number,))
            with suppress(zmq.Again):
                lane.socket.poll(POLL_MS, zmq.POLLOUT)
                codec.send(lane.socket, frames)
            session.idle.append(lane)

    def sample(
        self,
        table: str,
        batch_size: int,
        timeout: float | None = None,
        partial: bool = False,
        *,
        should_cancel: Callable[[], bool] | None = None,
    ) -> Sample:
        """Sample items; see `Server.sample`."""
        check_batch_size(batch_size)
        arguments = (table, int(batch_size), as_timeout(timeout), bool(partial))
        return self._call("sample", *arguments, should_cancel=should_cancel)

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then update priorities; see `Server.mutate_priorities`."""
        return self._call("mutate_priorities", table, arrays=[*as_updates(updates), as_keys(deletes)])

    def reset(self, table: str) -> None:
        """Delete all items of a table; see `Server.reset`."""
        self._call("reset", table)

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Replace the rate limiter of a table; see `Server.replace_limiter`."""
        self._call("replace_limiter", table, codec.pack_limiter(limiter))

    def items(self, table: str) -> Sample:
        """Return a copy of all items of a table; see `Server.items`."""
        return self._call("items", table)

    def info(self) -> dict[str, TableInfo]:
        """Return a snapshot of the state of every table; see `Server.info`."""
        return codec.read_info(self._call("info"))

    def save(self, path: str | PathLike[str]) -> None:
        """Save all tables to a file, written by the server; see `Server.save`.

        A relative path refers to the working directory of this process.
        """
        self._call("save", os.path.abspath(path))

    def load(self, path: str | PathLike[str]) -> None:
        """Replace the content of all tables with that of a saved file; see `Server.load`.

        A relative path refers to the working directory of this process.
        """
        self._call("load", os.path.abspath(path))

    def close(self) -> None:
        """Close the handle and its writers; calls of other threads raise `Closed`."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_timeout(timeout: float | None) -> float | None:
    """Return a timeout of any number type as a float."""
    return None if timeout is None else float(timeout)
