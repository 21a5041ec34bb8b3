"""The endpoint: receives the calls of other processes, carries them out, and replies.

One thread does all this. A call that must wait is a generator (see `core.waiting`): it waits in the queue of
its table while the thread carries out other calls, and continues when the queue wakes it.

A *session* is a client process: its connections, its writers and its calls. Calls are numbered, and each call
lists those that the client still awaits. So the server keeps the replies of these only, and a call that is
repeated on a new connection is not carried out twice. A session ends when all its connections are lost: at
once on one machine, otherwise after `GRACE_SECONDS`. A waiting call is cancelled when its connection is lost.
"""

# pyright: reportPrivateUsage=false

import functools
import logging
import math
import os
import secrets
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from replay_tutorial.tables.core.message import Message
from replay_tutorial.tables.core.waiting import (
    POLL_INTERVAL,
    Call,
    Cancelled,
    ServerLost,
    Waiter,
    deadline_of,
)
from replay_tutorial.tables.core.writer_state import UnknownWriter, WriterState
from replay_tutorial.tables.remote import codec
from replay_tutorial.tables.remote.addresses import (
    OWNERS,
    check_free,
    is_gone,
    make_key,
    open_socket,
    parse_address,
)
from replay_tutorial.tables.server import Server

GRACE_SECONDS = 60.0  # that a session of another host outlives its connections
CLOSE_TIMEOUT = 1.0  # seconds that `close` waits for replies that are being sent
LOG_INTERVAL = 10.0  # seconds between log lines about rejected connections
SESSION_BYTES = 16  # of the ID of a connection
REJECTED = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
)

log = logging.getLogger("replay_tutorial")


@dataclass(slots=True, eq=False)
class RunningCall:
    """A call that waits, or has been answered."""

    lane: bytes  # the ID of its connection
    number: int
    steps: Call[Any] | None = None  # None if it has been answered
    deadline: float = math.inf
    waiter: Waiter | None = None  # None if it has not waited
    reply: list[Any] | None = None


@dataclass(slots=True, eq=False)
class Session:
    """A client process: its connections, its writers by number, and its calls by number."""

    token: bytes = field(default_factory=lambda: secrets.token_bytes(8))
    lanes: dict[bytes, int] = field(default_factory=dict[bytes, int])  # connections, and their descriptors
    writers: dict[int, WriterState] = field(default_factory=dict[int, WriterState])
    calls: dict[int, RunningCall] = field(default_factory=dict[int, RunningCall])
    newest: int = 0  # number of the newest call
    pending: list[int] = field(default_factory=list[int])  # as listed by the newest call
    lost_at: float = math.inf  # when the last connection was lost


def is_accepted(client_public: bytes, _: str, public: bytes) -> bool:
    """Return whether a client has the key; called by ZeroMQ's authenticator."""
    return public == client_public


class Endpoint:
    """Lets other processes call a server.

    Example:
        >>> from replay_tutorial.tables import Endpoint, Server, Table
        >>> server = Server([Table.queue("rollouts", 9)], {"obs": {"shape": 3}}, capacity=100)
        >>> with Endpoint(server, "127.0.0.1:0") as endpoint:
        ...     print(endpoint.address.partition(":")[0])
        127.0.0.1

    Attributes:
        address: Address at which the endpoint listens.
        is_local: Whether only processes of this machine can connect.
        client_key: Key that clients on other hosts need; None if the address is a path.
    """

    client_key: str | None = None

    def __init__(self, server: Server, address: str) -> None:
        """Start listening.

        Args:
            server: The server. This process can still call it, and it stays open when the endpoint is closed.
            address: Path of a socket, or HOST:PORT of a network interface; port 0 selects a free port.

        Raises:
            OSError: If the endpoint can't listen at this address.
            ValueError: If the address or the key is invalid, or other users can read the key.
        """
        self._server, self._process = server, os.getpid()
        columns = server.fields.fields.values()
        self._columns = [(column.name, column.dtype.char, column.shape) for column in columns]
        self._sessions: dict[bytes, Session] = {}
        self._lanes: dict[int, bytes] = {}  # by descriptor
        self._new: list[int] = []  # descriptors of connections since the last tick
        self._woken = deque[tuple[Session, RunningCall]]()  # waiting calls to resume
        self._tick_at = 0.0
        self._closed = False
        self._rejected, self._logged_at = 0, -LOG_INTERVAL
        self._context = zmq.Context(2)  # I/O threads, so that a client can't flood all of them
        self._router = open_socket(
            self._context,
            zmq.ROUTER,
            linger=round(1000 * CLOSE_TIMEOUT),
            router_mandatory=1,  # sending to a lost connection raises EHOSTUNREACH
            router_handover=1,  # a client that reconnects replaces its lost connection
            maxmsgsize=codec.MAX_CALL_BYTES,  # of one frame
            sndtimeo=0,
        )
        self._gate: ThreadAuthenticator | None = None
        url, self.is_local = parse_address(address)
        self._router.ipv6 = "[" in url
        self._monitor = self._router.get_monitor_socket(REJECTED | zmq.Event.DISCONNECTED)
        try:
            self._bind(url)
        except (zmq.ZMQError, OSError, ValueError) as error:
            self._terminate()
            if isinstance(error, zmq.ZMQError):
                raise OSError(error.errno, f"Can't listen: {error.strerror}", address) from None
            raise
        bound = cast(bytes, self._router.LAST_ENDPOINT).rstrip(b"\0").decode()
        self.address = (
            url[6:] if url.startswith("ipc:") else f"{url[6 : url.rindex(':')]}:{bound.rpartition(':')[2]}"
        )
        # other threads wake up the receiving thread with a message to its own socket
        self._wake_id, self._wake_lock = secrets.token_bytes(8), threading.Lock()
        self._router.bind("inproc://wake")
        self._waker = open_socket(self._context, zmq.DEALER, routing_id=self._wake_id, linger=0, sndtimeo=0)
        self._waker.connect("inproc://wake")
        OWNERS.add(self)
        self._thread = threading.Thread(target=self._serve, name="tables serve", daemon=True)
        self._thread.start()

    def _bind(self, url: str) -> None:
        if url.startswith("ipc:"):
            check_free(url.removeprefix("ipc://"))
            before = os.umask(0o177)  # only this user may open the socket
            try:
                self._router.bind(url)
            finally:
                os.umask(before)
            return
        keys = make_key()
        self.client_key = keys.client_key
        self._gate = ThreadAuthenticator(self._context)
        self._gate.start()
        accepts = functools.partial(is_accepted, keys.client_public)
        self._gate.configure_curve_callback("*", SimpleNamespace(callback=accepts))
        self._router.curve_server, self._router.curve_secretkey = True, keys.server_secret
        self._router.bind(url)

    def _serve(self) -> None:
        """Receive and carry out calls until the endpoint is closed."""
        while not self._closed:
            if (left := self._tick_at - time.monotonic()) <= 0.0:
                self._tick()
                left = self._tick_at - time.monotonic()
            self._router.setsockopt(zmq.RCVTIMEO, 0 if self._woken else max(0, math.ceil(1000 * left)))
            with suppress(zmq.Again):
                lane, frames = self._router.recv(), codec.receive(self._router)
                self._receive(lane, frames)
            self._resume()
        self._resume()
        for session_id in list(self._sessions):
            self._end(session_id)

    def _receive(self, lane: bytes, frames: list[zmq.Frame]) -> None:
        """Carry out a call, answer it again, or reject it."""
        if lane == self._wake_id:
            return
        if not len(frames[0]):  # ZeroMQ announces a new connection
            self._greet(lane, frames[0].get(zmq.SRCFD))
            return
        try:
            request = codec.unpack_request(frames)
        except (codec.BadFrame, MemoryError) as error:
            self._send(lane, codec.pack_reply(0, error))
            return
        number, session = request.number, self._sessions.get(lane[:SESSION_BYTES])
        if session is None or request.token != session.token:
            lost = ServerLost(
                "The server doesn't know this handle: the server was restarted or has another endpoint, "
                "or the handle was not reachable for a minute. The writers of the handle were closed."
            )
            self._send(lane, codec.pack_reply(number, lost))
            return
        if number > session.newest:
            session.newest, session.pending = number, request.pending
            for abandoned in session.calls.keys() - set(request.pending):
                self._cancel(session, session.calls.pop(abandoned))
        match request.call:
            case codec.Cancel():
                pass
            case codec.Bye():
                self._end(lane[:SESSION_BYTES])
            case codec.CloseWriter(writer):
                if writer in session.writers:
                    self._server._close_writer(session.writers.pop(writer))
            case _ if number < session.newest and number not in session.pending:
                pass  # it was sent before it was abandoned, but arrives now
            case _ if (call := session.calls.get(number)) is not None:  # it is repeated
                call.lane = lane
                if call.reply is not None:
                    self._send(lane, call.reply)
            case _:
                session.calls[number] = call = RunningCall(lane, number)
                call.steps = self._steps(session, call, request.call)
                self._advance(session, call)

    def _steps(self, session: Session, call: RunningCall, request: codec.AnyCall) -> Call[Any]:
        """Carry out a call."""
        server = self._server
        match request:
            case codec.Insert():
                call.deadline = deadline_of(request.timeout)
                return (yield from server._inserting(*self._message(session, request)))
            case codec.Draw():
                call.deadline = deadline_of(request.timeout)
                most = codec.MAX_CALL_BYTES
                return (yield from server._sampling(request.table, request.batch_size, request.partial, most))
            case codec.Mutate():
                return server.mutate_priorities(
                    request.table, (request.keys, request.priorities), request.deletes
                )
            case codec.ReplaceLimiter():
                server.replace_limiter(request.table, codec.limiter_of(request.kind, request.limiter))
            case codec.ReadItems():
                return server.items(request.table, most_bytes=codec.MAX_CALL_BYTES)
            case codec.Info():
                return {name: (type(t.rate_limiter).__name__, t) for name, t in server.info().items()}
            case codec.Do():
                getattr(server, request.method)(request.argument)
            case _:
                pass

    def _message(self, session: Session, request: codec.Insert) -> tuple[WriterState, Message]:
        """Return the writer and the message of a call; a repeated one is the same object."""
        sequence, writers = request.sequence, session.writers
        if request.writer not in writers:
            if sequence != 1:
                raise UnknownWriter(f"The writer of message {sequence} was closed. Create a new writer.")
            writers[request.writer] = self._server._open_writer()
        writer = writers[request.writer]
        if (last := writer.message) is not None and sequence <= last.sequence:
            if sequence < last.sequence:
                raise ValueError(f"Message {sequence} of a writer arrived after {last.sequence}.")
            return writer, last
        writer.check_open()
        for part in request.slices:
            writer.check_slice(part)
        return writer, Message(request.slices, request.items, request.keep_from, sequence)

    def _advance(self, session: Session, call: RunningCall, error: Exception | None = None) -> None:
        """Run a call until it has to wait or ends, and answer it; `error` is raised in it if it waits."""
        steps = call.steps
        assert steps is not None
        if call.waiter is not None and is_gone(session.lanes.get(call.lane, -1)):
            error = Cancelled()
        try:
            waiter = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            self._reply(session, call, end.value)
        except BaseException as raised:  # noqa: BLE001 - of any kind, from a hook or a selector
            self._reply(session, call, raised)
        else:
            if call.waiter is not waiter:
                call.waiter, waiter.on_wake = waiter, lambda: self._wake(session, call)
                if waiter.woken.is_set():
                    self._woken.append((session, call))
            if time.monotonic() >= call.deadline:
                self._advance(session, call, TimeoutError())
            else:
                self._tick_at = min(self._tick_at, call.deadline, waiter.warn_at)

    def _reply(self, session: Session, call: RunningCall, result: Any) -> None:
        call.steps = call.waiter = None  # the waiter refers to the call, which would keep its reply
        if isinstance(result, Cancelled) and self._closed:
            result = ServerLost("The endpoint was closed.")
        if isinstance(result, Cancelled):
            session.calls.pop(call.number, None)  # if the client repeats it, it is carried out
        else:
            try:
                call.reply = codec.pack_reply(call.number, result)
            except MemoryError as error:
                call.reply = codec.pack_reply(call.number, error)
            self._send(call.lane, call.reply)

    def _cancel(self, session: Session, call: RunningCall) -> None:
        if call.steps is not None:
            self._advance(session, call, Cancelled())

    def _resume(self) -> None:
        """Continue the calls that were woken before; they may wake others."""
        for _ in range(len(self._woken)):
            session, call = self._woken.popleft()
            if call.steps is not None:
                self._advance(session, call)

    def _wake(self, session: Session, call: RunningCall) -> None:
        """Continue a call soon; called with the lock of the server."""
        self._woken.append((session, call))
        if threading.current_thread() is not self._thread:
            self._interrupt()

    def _interrupt(self) -> None:
        """Wake up the receiving thread."""
        with self._wake_lock, suppress(zmq.Again):  # then the queue is full, and it is awake
            if not self._waker.closed:
                self._waker.send(b"")

    def _send(self, lane: bytes, frames: list[Any]) -> None:
        """Send a message unless the client is gone or does not read."""
        try:
            self._router.send(lane, zmq.SNDMORE)
            codec.send(self._router, frames)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise

    def _greet(self, lane: bytes, descriptor: int) -> None:
        """Greet a client on a new connection."""
        self._handle_events()  # of an earlier connection with this descriptor
        session = self._sessions.setdefault(lane[:SESSION_BYTES], Session())
        session.lanes[lane], session.lost_at = descriptor, math.inf
        self._lanes[descriptor] = lane
        self._new.append(descriptor)
        self._send(lane, codec.pack_reply(0, codec.Greeting(codec.VERSION, session.token, self._columns)))

    def _handle_events(self) -> None:
        """Count rejected connections, and remove lost ones."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            if event["event"] != zmq.Event.DISCONNECTED:
                self._rejected += self.client_key is not None  # a path needs no key
            else:
                self._disconnect(event["value"])

    def _disconnect(self, descriptor: int) -> None:
        """Cancel the waiting calls of a lost connection."""
        lane = self._lanes.pop(descriptor, b"")
        session = self._sessions.get(lane[:SESSION_BYTES])
        if session is not None and session.lanes.get(lane) == descriptor:
            del session.lanes[lane]
            for call in [call for call in session.calls.values() if call.lane == lane]:
                self._cancel(session, call)
            if not session.lanes:
                session.lost_at = time.monotonic()

    def _tick(self) -> None:
        """Handle events and timeouts, end sessions without a client, and log rejections."""
        self._handle_events()
        while self._new:  # their loss may have been reported before they were announced
            if is_gone(descriptor := self._new.pop()):
                self._disconnect(descriptor)
        now = time.monotonic()
        self._tick_at = now + POLL_INTERVAL
        grace = 0.0 if self.is_local else GRACE_SECONDS
        for session_id, session in list(self._sessions.items()):
            if now - session.lost_at >= grace:
                self._end(session_id)
                continue
            for call in list(session.calls.values()):
                if call.steps is not None and call.waiter is not None:
                    due = min(call.deadline, call.waiter.warn_at)
                    if now >= due:
                        self._advance(session, call)
                    else:
                        self._tick_at = min(self._tick_at, due)
        if self._rejected and now - self._logged_at >= LOG_INTERVAL:
            log.warning("Rejected %d connections without the key of this server.", self._rejected)
            self._rejected, self._logged_at = 0, now

    def _end(self, session_id: bytes) -> None:
        """End a session: cancel its waiting calls, and close its writers."""
        if (session := self._sessions.pop(session_id, None)) is not None:
            for call in list(session.calls.values()):
                self._cancel(session, call)
            for writer in session.writers.values():
                self._server._close_writer(writer)

    def close(self) -> None:
        """Close all connections and cancel waiting calls, whose clients raise `ServerLost`.

        Results get one second to be sent. In a forked child, this does nothing.
        """
        if not self._closed and self._process == os.getpid():
            self._closed = True
            self._interrupt()
            self._thread.join()
            with self._wake_lock:
                self._waker.close()
            self._terminate()
            if self.client_key is None:
                Path(self.address).unlink(missing_ok=True)  # the socket

    def _terminate(self) -> None:
        self._router.disable_monitor()  # first: an event without a receiver would block ZeroMQ
        self._monitor.close()
        self._router.close()
        if self._gate is not None:
            self._gate.stop()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
