"""The endpoint: receives the calls of other processes, carries them out, and replies.

One thread receives all calls from a ROUTER socket and carries out each one at once, if it need not wait. A
call that the rate limiter does not admit is passed to a thread that waits, so it doesn't block others.

The ID of a connection is that of its session and the number of its *lane*. A lane makes one call at a time;
the server keeps its last reply, so a call that is repeated after the network was cut is not carried out
twice. Lane 0 makes no calls: its connection shows that the client is there. When it is lost, the session ends
and its writers are closed; at once on one machine, otherwise after `GRACE_SECONDS`. A waiting call is
cancelled when its own connection is lost.
"""

# pyright: reportPrivateUsage=false

import functools
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Self, cast

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from replay_tutorial.tables.core.results import Sample
from replay_tutorial.tables.core.waiting import POLL_INTERVAL, Cancelled, ServerLost, deadline_of
from replay_tutorial.tables.core.writer_state import WriterState
from replay_tutorial.tables.remote import codec
from replay_tutorial.tables.remote.addresses import (
    OWNERS,
    check_free,
    is_gone,
    make_key,
    open_socket,
    parse_address,
)
from replay_tutorial.tables.remote.checks import checked_message, read_message
from replay_tutorial.tables.remote.codec import Array, BadFrame, Request
from replay_tutorial.tables.server import Server

GRACE_SECONDS = 60.0  # that a session of another host outlives its connections
MAX_WAITING = 1000  # calls
CLOSE_TIMEOUT = 1.0  # seconds that `close` waits for replies that are being sent
LOG_INTERVAL = 10.0  # seconds between log lines about rejected connections
FAILED = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
)

log = logging.getLogger("replay_tutorial")


@dataclass(slots=True, eq=False)
class Lane:
    """The last call of a lane, and its reply."""

    connection: bytes
    descriptor: int = -1  # of its socket
    number: int = 0
    is_waiting: bool = False
    is_repeated: bool = False  # whether the waiting call arrived again
    is_cancelled: bool = False
    reply: list[Any] | None = None


@dataclass(slots=True, eq=False)
class Session:
    """The lanes and the writers of a client, by number."""

    lanes: dict[bytes, Lane] = field(default_factory=dict[bytes, Lane])
    abandoned: set[bytes] = field(default_factory=set[bytes])
    writers: dict[int, WriterState] = field(default_factory=dict[int, WriterState])
    lost_at: float | None = None  # when lane 0 lost its connection


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
        self._sessions: dict[bytes, Session] = {}
        self._jobs = SimpleQueue[Callable[[], None] | None]()  # calls that wait; None ends a thread
        self._threads, self._idle = 0, threading.Semaphore(0)  # number of their threads, and of idle ones
        self._finished = deque[tuple[Session, Lane, Request, list[Array], Any]]()  # calls that have waited
        self._closed = False
        self._rejected, self._logged_at = 0, -LOG_INTERVAL
        self._context = zmq.Context()
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
        self._monitor = self._router.get_monitor_socket(FAILED)
        # a thread that has waited wakes up the receiving thread with a message to its own socket
        self._wake_id, self._wake_lock = secrets.token_bytes(8), threading.Lock()
        self._router.bind("inproc://wake")
        self._waker = open_socket(self._context, zmq.DEALER, routing_id=self._wake_id, linger=0)
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
        accepts = SimpleNamespace(callback=functools.partial(is_accepted, keys.client_public))
        self._gate.configure_curve_callback("*", accepts)
        self._router.curve_server, self._router.curve_secretkey = True, keys.server_secret
        self._router.bind(url)

    def _serve(self) -> None:
        """Receive and carry out calls until the endpoint is closed."""
        tick, stop_at = 0.0, None
        while stop_at is None or (self._running and time.monotonic() < stop_at):
            try:
                connection, frames = self._router.recv(), codec.receive(self._router)
                if connection != self._wake_id:
                    self._receive(connection, frames)
            except zmq.Again:
                pass
            while self._finished:
                self._finish(*self._finished.popleft())
            if self._closed and stop_at is None:
                stop_at = time.monotonic() + CLOSE_TIMEOUT
            if time.monotonic() >= tick:
                self._check_connections()
                tick = time.monotonic() + POLL_INTERVAL
        for session in list(self._sessions):
            self._end(session)

    @property
    def _running(self) -> int:
        return sum(lane.is_waiting for session in self._sessions.values() for lane in session.lanes.values())

    def _receive(self, connection: bytes, frames: list[Any]) -> None:
        """Carry out a call, answer it again, or reject it."""
        try:
            request, arrays = codec.unpack_request(frames, connection)
        except BadFrame as error:
            self._send(connection, codec.pack_error(0, error))
            return
        session_id = connection[: codec.SESSION_BYTES]
        if request.name == "hello":
            self._sessions.setdefault(session_id, Session())
        session = self._sessions.get(session_id)
        if session is None:
            lost = ServerLost(
                "The server doesn't know this handle: it was restarted, or its endpoint is another one, or "
                "the handle was not reachable for a minute. The writers of the handle were closed."
            )
            self._send(connection, codec.pack_error(request.number, lost))
            return
        for number in request.abandoned:
            session.abandoned.add(other := codec.lane_id(session_id, number))
            if other in session.lanes:
                session.lanes.pop(other).is_cancelled = True
        if connection in session.abandoned:
            return  # it was sent before it was abandoned, but arrives now
        lane = session.lanes.setdefault(connection, Lane(connection))
        lane.descriptor, lane.is_repeated = frames[0].get(zmq.SRCFD), lane.is_waiting
        if request.number == lane.number and lane.reply is not None:
            self._send(connection, lane.reply)
        elif request.number > lane.number:
            lane.number, lane.reply = request.number, None
            self._carry_out(session, lane, request, arrays)

    def _carry_out(self, session: Session, lane: Lane, request: Request, arrays: list[Array]) -> None:
        """Carry out a call at once if it need not wait, otherwise in a thread."""
        lane.is_cancelled = False
        if request.name == "bye":
            self._end(lane.connection)
            return
        try:
            result, wait = self._attempt(session, lane, request, arrays)
            if wait is not None and not self._idle.acquire(blocking=False):
                self._start_thread()
        except Exception as error:  # noqa: BLE001 - hooks may raise anything
            result, wait = error, None
        if wait is None:
            if request.name != "close_writer":
                self._reply(lane, result)
            return
        lane.is_waiting = True

        def job() -> None:
            try:
                result = wait()
            except Exception as error:  # noqa: BLE001 - hooks may raise anything
                result = error
            self._finished.append((session, lane, request, arrays, result))
            self._wake()

        self._jobs.put(job)

    def _start_thread(self) -> None:
        """Start a thread that carries out waiting calls, one after another."""

        def run() -> None:
            while (job := self._jobs.get()) is not None:
                job()
                self._idle.release()

        if self._threads >= MAX_WAITING:
            raise RuntimeError(f"The limit of {MAX_WAITING} waiting calls is reached.")
        threading.Thread(target=run, name="tables wait", daemon=True).start()
        self._threads += 1

    def _attempt(
        self, session: Session, lane: Lane, request: Request, arrays: list[Array]
    ) -> tuple[Any, Callable[[], Any] | None]:
        """Carry out a call without waiting; return its result, or a function that waits for it."""
        server, arguments = self._server, request.arguments
        options: dict[str, Any] = {
            "should_cancel": lambda: lane.is_cancelled or self._closed or is_gone(lane.descriptor)
        }
        match request.name:
            case "hello":
                columns = server.fields.fields.values()
                return [(column.name, column.dtype.char, column.shape) for column in columns], None
            case "insert":
                *_, timeout = arguments
                deadline_of(timeout)
                options["check"] = checked_message
                writer, message = read_message(server, session.writers, arguments, arrays)
                try:
                    return server._insert(writer, message, 0.0, **options), None
                except TimeoutError:
                    if timeout == 0.0:
                        raise
                return None, lambda: server._insert(writer, message, timeout, **options)
            case "close_writer":
                if (writer := session.writers.pop(arguments[0], None)) is not None:
                    server._close_writer(writer)
                return None, None
            case "sample":
                table, batch_size, timeout, partial = arguments
                deadline_of(timeout)
                options["most_bytes"] = codec.MAX_CALL_BYTES
                drawn: list[Sample] = []
                try:
                    drawn.append(server.sample(table, batch_size, 0.0, True, **options))
                except TimeoutError:
                    if timeout == 0.0:
                        raise
                if drawn and (partial or timeout == 0.0 or len(drawn[0]) == batch_size):
                    return drawn[0], None
                return None, lambda: server.sample(*arguments, drawn=drawn, **options)
            case "mutate_priorities":
                keys, priorities, deletes = arrays
                return server.mutate_priorities(arguments[0], (keys, priorities), deletes), None
            case "replace_limiter":
                table, limiter = arguments
                return server.replace_limiter(table, codec.make_limiter(*limiter)), None
            case "items":
                return server.items(*arguments, most_bytes=codec.MAX_CALL_BYTES), None
            case name:  # reset, info, save, load
                return getattr(server, name)(*arguments), None

    def _finish(
        self, session: Session, lane: Lane, request: Request, arrays: list[Array], result: Any
    ) -> None:
        """Reply to a call that has waited."""
        lane.is_waiting, is_repeated, lane.is_repeated = False, lane.is_repeated, False
        if not isinstance(result, Cancelled):
            self._reply(lane, result)
        elif self._closed:
            self._reply(lane, ServerLost("The endpoint was closed."))
        elif is_repeated:
            self._carry_out(session, lane, request, arrays)
        else:
            lane.number -= 1  # if the client repeats the call, it is carried out

    def _reply(self, lane: Lane, result: Any) -> None:
        pack = codec.pack_error if isinstance(result, Exception) else codec.pack_reply
        lane.reply = pack(lane.number, result)
        self._send(lane.connection, lane.reply)

    def _send(self, connection: bytes, frames: list[Any]) -> bool:
        """Send a message; return whether the connection exists."""
        try:
            codec.send(self._router, [connection, *frames])
        except zmq.Again:
            return True  # the client does not read
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def _check_connections(self) -> None:
        """Cancel waiting calls of lost connections, end sessions without a client, and log rejections."""
        now = time.monotonic()
        for session_id, session in list(self._sessions.items()):
            for lane in session.lanes.values():
                if lane.is_waiting and not self._send(lane.connection, [b""]):
                    lane.is_cancelled = True
            if self._send(codec.lane_id(session_id, 0), [b""]):
                session.lost_at = None
            elif now - (session.lost_at or now) >= (0.0 if self.is_local else GRACE_SECONDS):
                self._end(session_id)
            else:
                session.lost_at = session.lost_at or now
        while self._monitor.poll(0):
            recv_monitor_message(self._monitor)
            self._rejected += self.client_key is not None  # a path needs no key
        if self._rejected and now - self._logged_at >= LOG_INTERVAL:
            log.warning("Rejected %d connections without the key of this server.", self._rejected)
            self._rejected, self._logged_at = 0, now

    def _end(self, connection: bytes) -> None:
        """End the session of a connection: cancel its waiting calls, and close its writers."""
        if (session := self._sessions.pop(connection[: codec.SESSION_BYTES], None)) is not None:
            for lane in session.lanes.values():
                lane.is_cancelled = True
            for writer in session.writers.values():
                self._server._close_writer(writer)

    def _wake(self) -> None:
        with self._wake_lock:
            if not self._waker.closed:
                self._waker.send(b"")

    def close(self) -> None:
        """Close all connections and cancel waiting calls, whose clients raise `ServerLost`.

        Calls that have finished get one second to send their results. In a forked child, this does nothing.
        """
        if not self._closed and self._process == os.getpid():
            self._closed = True
            self._wake()
            self._thread.join()
            for _ in range(self._threads):
                self._jobs.put(None)
            with self._wake_lock:
                self._waker.close()
            self._router.disable_monitor()
            self._monitor.close()
            self._terminate()
            if self.client_key is None:
                Path(self.address).unlink(missing_ok=True)  # the socket

    def _terminate(self) -> None:
        self._router.close()
        if self._gate is not None:
            self._gate.stop()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
