"""A handle to a server in another process, with the same methods as the server.

A call uses an idle *lane*, a connection of its own, or opens a new one, so threads wait for the server but
not for each other. The server greets each new connection. After a greeting, an unanswered call is sent again,
because ZeroMQ may have lost it with the previous connection. On one machine a connection is lost
only if the server exits, so calls raise `ServerLost` at once.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from os import PathLike
from typing import Any, Self, cast

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.tables.core.arguments import as_keys, as_updates, check_names
from replay_tutorial.tables.core.message import Message
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.results import Sample, TableInfo
from replay_tutorial.tables.core.waiting import POLL_INTERVAL, Cancelled, Closed, ServerLost, deadline_of
from replay_tutorial.tables.remote import codec
from replay_tutorial.tables.remote.addresses import (
    KEY_VARIABLE,
    OWNERS,
    check_owner,
    open_socket,
    parse_address,
    read_key,
)

RECONNECT_SECONDS = 60.0  # how long a call waits for the connection to another host
CONNECT_SECONDS = 5.0  # how long it waits for a further connection to a running server of this machine
E = zmq.Event
REJECTED = E.HANDSHAKE_FAILED_AUTH | E.HANDSHAKE_FAILED_PROTOCOL | E.HANDSHAKE_FAILED_NO_DETAIL
ShouldCancel = Callable[[], bool] | None


class Lane(zmq.Socket[bytes]):
    """A connection, which carries one call at a time."""

    def __del__(self) -> None:
        self.close()  # without a warning if the call that used it was interrupted


@functools.cache
def context_of(process: int) -> zmq.Context[Any]:
    """Return the ZeroMQ context of this process; a forked child must not use its parent's."""
    return zmq.Context()


class Session:
    """The connections of one process to a server, and its calls, which are numbered from 1."""

    columns: Sequence[tuple[str, str, tuple[int, ...]]] = ()

    def __init__(self, url: str, is_local: bool, timeout: float, options: dict[str, Any]) -> None:
        """Prepare a session; `options` are those of its sockets."""
        self.arguments = url, is_local, timeout, options
        self._url, self._is_local, self._timeout, self._options = self.arguments
        self._id, self._token = secrets.token_bytes(16), b""  # token: b"" before the first greeting
        self._lock, self._numbers, self._pending = threading.RLock(), itertools.count(1), set[int]()
        self._lanes, self._idle = list[Lane](), list[Lane]()
        self.is_closed = False

    def _socket(self, **options: Any) -> Lane:
        options = {**self._options, **options, "routing_id": self._id + secrets.token_bytes(8)}
        return cast(Lane, open_socket(context_of(os.getpid()), zmq.DEALER, Lane, **options))

    def connect(self, should_cancel: ShouldCancel = None) -> None:
        """Open a further lane and wait for the greeting."""
        lane = self._socket(rcvtimeo=20)
        monitor, events, begin = lane.get_monitor_socket(REJECTED | E.CONNECT_RETRIED), 0, time.monotonic()

        def patience() -> float:
            nonlocal events
            while monitor.poll(0):
                events |= recv_monitor_message(monitor)["event"]
            # before the timeout, a relay whose server is starting may have closed the connection
            if events & (REJECTED if time.monotonic() - begin >= self._timeout else E.HANDSHAKE_FAILED_AUTH):
                raise AuthenticationError(
                    f"The server at {self._url} has a different key, or a process without the key listens "
                    f"there. Set {KEY_VARIABLE} to the key that the server prints."
                )
            is_refused = bool(events & E.CONNECT_RETRIED)  # no process listens there
            return (self._patience() if self._token else self._timeout) + CONNECT_SECONDS * (not is_refused)

        try:
            lane.connect(self._url)
            _, _, value, frames = next(self._messages(lane, patience, should_cancel))
            greeting: codec.Greeting = codec.unpack_reply(codec.Greeting, frames, value)
            if greeting.version != codec.VERSION:
                raise msgspec.ValidationError
            self._token, self.columns = self._token or greeting.token, greeting.columns
            lane.rcvtimeo = round(1000 * POLL_INTERVAL)
            self._lanes.append(lane)  # also if it is not idle: the session lasts as long as its connections
        except msgspec.MsgspecError:
            raise ConnectionError(
                f"The server at {self._url} runs an incompatible version of this package. Use the same "
                "version in all processes."
            ) from None
        finally:
            lane.disable_monitor()  # first: an event without a receiver would block ZeroMQ
            monitor.close()
            if lane not in self._lanes:
                lane.close()
        self._release(lane)

    def _messages(
        self, lane: Lane, patience: Callable[[], float], should_cancel: ShouldCancel
    ) -> Iterator[tuple[int, str | None, Any, list[zmq.Frame]]]:
        """Yield the messages of a lane; raise ServerLost if it has no connection for `patience()` seconds."""
        lost_at = math.inf
        while True:
            try:
                frames = codec.receive(lane)
            except zmq.Again:
                now = time.monotonic()
                is_connected = cast(int, lane.getsockopt(zmq.EVENTS)) & zmq.POLLOUT
                lost_at = math.inf if is_connected else min(lost_at, now)
            else:
                lost_at = math.inf
                yield *codec.REPLIES.decode(frames[0].buffer), frames
                continue
            if self.is_closed:
                raise Closed("This handle was closed. Create a new one.")
            if should_cancel is not None and should_cancel():
                raise Cancelled
            if now - lost_at >= patience():
                raise ServerLost(
                    f"The server at {self._url} has exited, closed its endpoint, or can't be reached; the "
                    "call may or may not have been carried out. Restart it, and create a new handle and new "
                    "writers."
                    if self._token
                    else f"There is no server at {self._url}. Start it and create a new handle."
                )

    def _patience(self) -> float:
        """Return how many seconds a call waits for its lost connection."""
        return 0.0 if self._is_local else RECONNECT_SECONDS

    def _pack(self, call: codec.AnyCall) -> tuple[int, list[Any]]:
        """Number and encode a call, and add it to the pending ones."""
        with self._lock:
            number = next(self._numbers)
            if not isinstance(call, codec.Unanswered):
                self._pending.add(number)
            pending = [*self._pending]
        try:
            return number, codec.pack_request(codec.Request(self._token, number, pending, call))
        except BaseException:
            self._pending.discard(number)
            raise

    def _acquire(self, should_cancel: ShouldCancel = None) -> Lane:
        """Return an idle lane or a new one."""
        while True:
            if self.is_closed:
                raise Closed("This handle was closed. Create a new one.")
            with suppress(IndexError):
                lane = self._idle.pop()
                while lane.getsockopt(zmq.RCVMORE):  # the rest of a message, if Ctrl-C came in the middle
                    lane.recv()
                return lane
            self.connect(should_cancel)

    def _release(self, lane: Lane) -> None:
        self._idle.append(lane)
        while self.is_closed and self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def call(
        self,
        call: codec.AnyCall,
        should_cancel: ShouldCancel = None,
        on_packed: Callable[[], None] = lambda: None,
    ) -> Any:
        """Make a call and return its result; `on_packed` is called before the call is sent."""
        lane, number, is_answered = self._acquire(should_cancel), 0, True
        try:
            number, frames = self._pack(call)
            on_packed()
            is_answered = False
            self._send(lane, frames)
            for replied, error, value, reply in self._messages(lane, self._patience, should_cancel):
                if replied == 0 and error is None:  # a greeting on a new connection
                    self._send(lane, frames)
                elif replied in (0, number):  # otherwise of an earlier call
                    is_answered = True
                    if error is not None:
                        raise codec.ERRORS[error](codec.unpack_reply(str, reply, value))
                    return codec.unpack_reply(type(call), reply, value)
        finally:
            self._pending.discard(number)
            if not is_answered:
                self._send(lane, self._pack(codec.Cancel())[1])
            self._release(lane)

    @staticmethod
    def _send(lane: Lane, frames: list[Any]) -> None:
        """Send a message, unless the connection is lost."""
        with suppress(zmq.Again):
            codec.send(lane, frames)

    def post(self, call: codec.AnyCall) -> None:
        """Make a call that is not answered."""
        lane = self._acquire()
        try:
            self._send(lane, self._pack(call)[1])
        finally:
            self._release(lane)

    def close(self) -> None:
        """End the session; the threads that use lanes close these."""
        self.is_closed = True
        if not self._token:
            return
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = self._socket(immediate=0)  # sends the message when it has connected
            lane.connect(self._url)
        lane.linger = 500  # milliseconds
        self._send(lane, self._pack(codec.Bye())[1])
        self._release(lane)


def close_own(sessions: list[Session]) -> None:
    """Close the session of this process."""
    sessions[-1].close()


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
        url, is_local = parse_address(address)
        self.address = url.partition("://")[2]
        self._timeout = timeout
        self._dropped = deque[int]()  # numbers of writers that were garbage-collected before `close`
        deadline = time.monotonic() + timeout
        while True:
            try:
                options = client_options(url)
                break
            except FileNotFoundError:  # the first server on a machine creates the key
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL_INTERVAL)
        # The last one is that of this process. A forked child must keep those of its parents: they can't be
        # closed there.
        session = Session(url, is_local, timeout, options)
        session.connect()
        self.fields = Fields({name: {"dtype": d, "shape": shape} for name, d, shape in session.columns})
        self._sessions = [session]
        OWNERS.add(self)
        self._finalizer = weakref.finalize(self, close_own, self._sessions)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(RemoteServer, timeout=self._timeout), (self.address,)

    def start_session(self) -> None:
        """Start a new session, in a forked child."""
        self._sessions.append(Session(*self._sessions[-1].arguments))

    def _call(self, call: codec.AnyCall, **options: Any) -> Any:
        return self._sessions[-1].call(call, **options)

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

        call = codec.Insert(
            writer.number,
            sequence,
            [*message.slices],
            [*message.items],
            message.keep_from,
            checked_timeout(timeout),
        )
        return self._call(call, on_packed=use_sequence)

    def _close_writer(self, writer: RemoteWriter) -> None:
        """Close a writer without waiting for the server."""
        if writer.sequence:
            self._send_close(writer.number)
            writer.sequence = 0  # last: a writer whose closing was interrupted must not restart at 1

    def _send_close(self, number: int) -> None:
        with suppress(Closed, OSError):  # in these cases the server closes the writer with the session
            self._sessions[-1].post(codec.CloseWriter(number))

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
        call = codec.Draw(table, int(batch_size), checked_timeout(timeout), bool(partial))
        return self._call(call, should_cancel=should_cancel)

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then update priorities; see `Server.mutate_priorities`."""
        return self._call(codec.Mutate(table, *as_updates(updates), as_keys(deletes)))

    def reset(self, table: str) -> None:
        """Delete all items of a table; see `Server.reset`."""
        self._call(codec.Do("reset", table))

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Replace the rate limiter of a table; see `Server.replace_limiter`."""
        if codec.LIMITERS.get(kind := type(limiter).__name__) is not type(limiter):
            raise TypeError(f"{limiter!r:.80} can't be sent; only {[*codec.LIMITERS]} are supported.")
        self._call(codec.ReplaceLimiter(table, kind, limiter))

    def items(self, table: str) -> Sample:
        """Return a copy of all items of a table; see `Server.items`."""
        return self._call(codec.ReadItems(table))

    def info(self) -> dict[str, TableInfo]:
        """Return a snapshot of the state of every table; see `Server.info`."""
        return {
            name: info._replace(rate_limiter=codec.limiter_of(kind, info.rate_limiter))
            for name, (kind, info) in self._call(codec.Info()).items()
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Save all tables to a file, written by the server; see `Server.save`.

        A relative path refers to the working directory of this process.
        """
        self._call(codec.Do("save", os.path.abspath(path)))

    def load(self, path: str | PathLike[str]) -> None:
        """Replace the content of all tables with that of a saved file; see `Server.load`.

        A relative path refers to the working directory of this process.
        """
        self._call(codec.Do("load", os.path.abspath(path)))

    def close(self) -> None:
        """Close the handle and its writers; calls of other threads raise `Closed`."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def checked_timeout(timeout: float | None) -> float | None:
    """Return a timeout of any number type as a float; raise ValueError if it is invalid."""
    deadline_of(timeout)
    return None if timeout is None else float(timeout)


def client_options(url: str) -> dict[str, Any]:
    """Return the options of sockets that connect to a server."""
    # immediate: a lost connection is not writable. probe_router: announces each new connection
    options: dict[str, Any] = {"ipv6": "[" in url, "immediate": 1, "probe_router": 1, "linger": 0}
    options |= {"sndtimeo": 0, "connect_timeout": 3_000, "reconnect_ivl": 50, "reconnect_ivl_max": 1_000}
    if url.startswith("ipc:"):
        check_owner(url.removeprefix("ipc://"))
        return options
    keys = read_key()
    public, secret = keys.client_public, keys.client_secret
    return options | {
        "curve_serverkey": keys.server_public,
        "curve_publickey": public,
        "curve_secretkey": secret,
    }


def start_sessions() -> None:
    """Give each handle a session of its own in a forked child."""
    for owner in list(OWNERS):
        if isinstance(owner, RemoteServer):
            owner.start_session()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=start_sessions)
