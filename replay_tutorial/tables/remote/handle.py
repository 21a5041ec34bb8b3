"""A handle to a server in another process on this machine, with the same methods as the server.

A call uses an idle connection or opens a new one, so threads wait for the server but not for each other. If a
connection ends during a call, the server has exited or closed its endpoint, because nothing else on one
machine closes it. After an interrupted call a result may still arrive, so its connection is closed. The first
connection makes no calls; it lives as long as the handle, and when it ends the server closes the handle's
writers.

No call is carried out twice. A writer may send its last message again (`flush`), which the server recognises
by its number.
"""

import functools
import os
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import AuthenticationError
from os import PathLike
from typing import Any, Self

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.tables.core.arguments import as_keys, as_updates, check_names
from replay_tutorial.tables.core.message import Message
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.results import Sample, TableInfo
from replay_tutorial.tables.core.waiting import POLL_INTERVAL, Cancelled, Closed
from replay_tutorial.tables.remote.codec import ERRORS, HELLO, RESULT_TYPES, BadFrame, pack, unpack
from replay_tutorial.tables.remote.local_socket import Connection, connect, parse_address, read_key

RETRY_INTERVAL = 0.02  # seconds between attempts to connect


class ServerLost(ConnectionError):
    """No server is reachable at this address, or another endpoint listens there now."""


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
    """A handle to a server in another process on this machine, with the methods of `Server`.

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
            address: Path of a socket, or 127.0.0.1:PORT.
            timeout: Seconds to keep trying while the server is starting.

        Raises:
            AuthenticationError: If the server has another key.
            ConnectionError: If the server runs an incompatible version of this package.
            OSError: If there is no key.
            ServerLost: If no server is reachable.
            ValueError: If the address does not belong to this machine, or other users can read the key.
        """
        is_path = isinstance(parse_address(address), str)
        self.address = os.path.abspath(address) if is_path else address  # the process may change its folder
        self._timeout = timeout
        self._key = b""
        self._instance = ""  # ID of the endpoint, used to detect that another one listens there
        self._closed = False
        self._dropped = deque[int]()  # numbers of writers that were garbage-collected before `close`
        self._connections = set[weakref.ref[Connection]]()  # weak, so that dropped connections are closed
        # process ID → first connection, session ID, idle connections; a forked child adds its own entry
        self._sessions: dict[int, tuple[Connection, str, list[Connection]]] = {}
        deadline = None
        while not self._sessions:
            try:
                self._key = self._key or read_key()
                self._sessions[os.getpid()] = self._start_session()
            except (FileNotFoundError, ServerLost):  # the first server on a machine creates the key
                # starts at the first failure, because one handshake can exceed the timeout on a busy machine
                deadline = deadline or time.monotonic() + timeout
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_INTERVAL)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(RemoteServer, timeout=self._timeout), (self.address,)

    def _start_session(self) -> tuple[Connection, str, list[Connection]]:
        """Open the first connection of a session."""
        return *self._connect(""), []

    def _connect(self, session_id: str) -> tuple[Connection, str]:
        """Open a connection for a session, or for a new session; return it and the session's ID."""
        try:
            connection = connect(self.address)
            self._connections.add(weakref.ref(connection, self._connections.discard))
            connection.authenticate(self._key, is_server=False)
            connection.send(pack(HELLO, (self._instance, session_id)))
            outcome, values = unpack(*connection.receive(), RESULT_TYPES[HELLO])
        except AuthenticationError as error:
            raise AuthenticationError(
                f"The server at {self.address} has a different key, or a process without the key "
                f"listens there: {error}."
            ) from None
        except (OSError, EOFError) as error:
            self._check_open()
            raise ServerLost(
                f"There is no server at {self.address} ({error!r}). Start it and create a new handle."
            ) from None
        self._check_open()  # `close` may have run before the connection was registered
        if outcome == "error" and values[0] == BadFrame.__name__:
            raise ConnectionError(
                f"The server at {self.address} runs an incompatible version of this package. Use "
                "the same version in all processes."
            )
        if outcome == "error":
            raise ServerLost(f"{values[1]} Create a new handle to {self.address}, and new writers.")
        ((self._instance, session_id, columns),) = values
        self.fields = Fields({name: {"dtype": c.dtype, "shape": c.shape[1:]} for name, c in columns.items()})
        return connection, session_id

    def _acquire(self) -> tuple[Connection, list[Connection]]:
        """Return an idle connection or a new one, and the list to which to return it."""
        self._check_open()
        process = os.getpid()
        # if two threads of a forked process start a session at the same time, one of the two is unused
        _, session_id, idle = self._sessions.get(process) or self._sessions.setdefault(
            process, self._start_session()
        )
        try:
            return idle.pop(), idle
        except IndexError:
            return self._connect(session_id)[0], idle

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("This handle was closed. Create a new one.")

    def _call(self, name: str, *values: Any) -> Any:
        """Make a call and return its result."""
        return self._exchange(name, pack(name, values))

    def _exchange(self, name: str, frame: bytes, should_cancel: Callable[[], bool] | None = None) -> Any:
        """Send the frame of a call and return the result."""
        connection, idle = self._acquire()
        try:
            connection.send(frame)
            while should_cancel is not None and not connection.poll(POLL_INTERVAL):
                if should_cancel():
                    raise Cancelled
            outcome, back = unpack(*connection.receive(), RESULT_TYPES[name])
        except BaseException as error:
            connection.close()  # the result of an abandoned call may still arrive on it
            if not isinstance(error, (OSError, EOFError)):
                raise
            self._check_open()
            raise ServerLost(
                f"The server at {self.address} has exited or closed its endpoint ({error!r}); the call may "
                "or may not have been carried out. Restart it, and create a new handle and new writers."
            ) from None
        idle.append(connection)
        if outcome == "error":
            kind, text = back
            raise ERRORS[kind](text)
        return back[0]

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
        timeout = None if timeout is None else float(timeout)  # the server could not decode other types
        values = (writer.number, sequence, message.slices, message.items, message.keep_from, timeout)
        frame = pack("insert", values)  # first: if this fails, the message does not use up a number
        writer.sequence, writer.message = sequence, message
        return self._exchange("insert", frame).tolist()

    def _close_writer(self, writer: RemoteWriter) -> None:
        """Close a writer without waiting for the server."""
        if writer.sequence:
            self._send_close(writer.number)
            writer.sequence = 0  # last: a writer whose closing was interrupted must not restart at 1

    def _send_close(self, number: int) -> None:
        with suppress(Closed, OSError):  # in these cases the server closes the writer with the session
            connection, idle = self._acquire()
            connection.send(pack("close_writer", (number,)))
            idle.append(connection)

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
        frame = pack("sample", (table, batch_size, timeout, partial))
        return self._exchange("sample", frame, should_cancel)

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then update priorities; see `Server.mutate_priorities`."""
        return self._call("mutate_priorities", table, as_updates(updates), as_keys(deletes))

    def reset(self, table: str) -> None:
        """Delete all items of a table; see `Server.reset`."""
        self._call("reset", table)

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Replace the rate limiter of a table; see `Server.replace_limiter`."""
        self._call("replace_limiter", table, limiter)

    def items(self, table: str) -> Sample:
        """Return a copy of all items of a table; see `Server.items`."""
        return self._call("items", table)

    def info(self) -> dict[str, TableInfo]:
        """Return a snapshot of the state of every table; see `Server.info`."""
        return self._call("info")

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
        for connection in filter(None, [known() for known in list(self._connections)]):
            connection.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
