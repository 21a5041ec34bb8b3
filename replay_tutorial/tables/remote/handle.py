"""A server in another process of this machine, called as if it were in this one.

A thread that calls takes a connection, or makes one, and puts it back when it has its answer. So threads wait
for the server, and not for each other. If a connection ends in a call, the server has ended: nothing else on
one machine ends it. A call that is interrupted here, by Ctrl-C, leaves a connection on which an answer may
still come; it is dropped. The first connection makes no calls: it is held as long as the handle lives, and
when it ends, the server closes the handle's writers.

No call is made twice. A writer may send its last message again (`flush`): the server knows its number.
"""

import os
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing import AuthenticationError
from os import PathLike
from typing import Any, Self

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.tables.core.arguments import as_keys, as_updates
from replay_tutorial.tables.core.message import Message
from replay_tutorial.tables.core.rate_limiters import RateLimiter
from replay_tutorial.tables.core.sampled import Sample, TableInfo
from replay_tutorial.tables.core.waiting import POLL_INTERVAL, CallerGone, Closed
from replay_tutorial.tables.remote.codec import ERRORS, HELLO, RESULT_TYPES, pack, unpack
from replay_tutorial.tables.remote.local_socket import Connection, connect, read_key

RETRY_INTERVAL = 0.02  # seconds between two attempts to reach a server that is being started


class ServerLost(ConnectionError):
    """There is no server, or not the one that was there before. What it held is gone."""


class RemoteWriter:
    """A writer of a handle, and its last message; an equal message that is sent again has the same number.

    Attributes:
        number: No other writer has it.
        sequence: The number of its last message; 0 before the first one, and when it is closed.
        message: Its last message.
    """

    sequence = 0

    def __init__(self, dropped: deque[int]) -> None:
        """Begin; when nobody holds it any more, its number is put into `dropped`."""
        self.number = secrets.randbits(63)
        self.message: Message | None = None
        self._dropped = dropped

    def __del__(self) -> None:
        if self.sequence:
            self._dropped.append(self.number)


class RemoteServer:
    """A handle on a server in another process, with the methods of `Server`; see there.

    Any number of threads may share one. It can be passed to another process, where it gets connections of its
    own. Its calls raise what the server raises, and `ServerLost` if the server has ended.

    Writers and datasets take it as they take a server: `Client(RemoteServer("/tmp/replay.sock"))`.

    Attributes:
        address: Where the server listens.
        fields: The columns, by name.
    """

    def __init__(self, address: str, *, timeout: float = 5.0) -> None:
        """Connect to a server.

        Args:
            address: Where it listens: the path of a socket, or 127.0.0.1:PORT.
            timeout: Seconds to wait for a server that is just being started.

        Raises:
            AuthenticationError: If the server has another key.
            OSError: If there is no key.
            ServerLost: If there is no server.
            ValueError: If the address is none of this machine, or others can read the key.
        """
        self.address, self._timeout = address, timeout
        self._key = read_key()
        self._instance = ""  # the server's name for itself, so that no other one is taken for it
        self._closed = False
        self._dropped = deque[int]()  # writers that were dropped without `close`
        self._connections = set[weakref.ref[Connection]]()  # weak: what an interrupted call drops is closed
        # of this process, or a forked one: the first connection, the session, and connections nobody uses
        self._sessions: dict[int, tuple[Connection, str, list[Connection]]] = {}
        deadline = None
        while not self._sessions:
            try:
                self._sessions[os.getpid()] = self._start_session()
            except ServerLost:
                # counted from the first failure: on a busy machine a handshake may have used its whole limit
                deadline = deadline or time.monotonic() + timeout
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_INTERVAL)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RemoteServer, timeout=self._timeout), (self.address,)

    def _start_session(self) -> tuple[Connection, str, list[Connection]]:
        """Begin a session."""
        return *self._connect(""), []

    def _connect(self, session: str) -> tuple[Connection, str]:
        """Make a connection of a session, or of a new one; return also the session's name."""
        try:
            connection = connect(self.address)
            self._connections.add(weakref.ref(connection, self._connections.discard))
            connection.authenticate(self._key, first=False)
            connection.send(pack(HELLO, (self._instance, session)))
            outcome, values = unpack(*connection.receive(), RESULT_TYPES[HELLO])
        except AuthenticationError as error:
            raise AuthenticationError(
                f"The server at {self.address} has another key, or a process without it "
                f"listens there: {error}."
            ) from None
        except (OSError, EOFError) as error:
            self._check_open()
            raise ServerLost(
                f"There is no server at {self.address} ({error!r}). Start it, and make a new handle."
            ) from None
        self._check_open()  # `close` may not have seen the connection
        if outcome == "error":
            raise ServerLost(f"{values[1]} Make a new handle on {self.address}, and new writers.")
        ((self._instance, session, columns),) = values
        self.fields = Fields({name: {"dtype": c.dtype, "shape": c.shape[1:]} for name, c in columns.items()})
        return connection, session

    def _acquire(self) -> tuple[Connection, list[Connection]]:
        """Take a connection that nobody uses; return also where to put it back."""
        self._check_open()
        process = os.getpid()
        # if two threads of a forked process begin at once, one of them has begun in vain
        _, session, idle = self._sessions.get(process) or self._sessions.setdefault(
            process, self._start_session()
        )
        try:
            return idle.pop(), idle
        except IndexError:
            return self._connect(session)[0], idle

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("This handle was closed. Make another one.")

    def _call(self, name: str, *values: Any) -> Any:
        """Make a call, and return its result."""
        return self._exchange(name, pack(name, values))

    def _exchange(self, name: str, frame: bytes, should_cancel: Callable[[], bool] | None = None) -> Any:
        """Send the frame of a call, and return its result."""
        connection, idle = self._acquire()
        try:
            connection.send(frame)
            while should_cancel is not None and not connection.poll(POLL_INTERVAL):
                if should_cancel():
                    raise CallerGone
            outcome, back = unpack(*connection.receive(), RESULT_TYPES[name])
        except BaseException as error:
            connection.close()  # an answer may still come, for which nobody waits any more
            if not isinstance(error, (OSError, EOFError)):
                raise
            self._check_open()
            raise ServerLost(
                f"The server at {self.address} has ended ({error!r}); nobody knows if the call was carried "
                "out. Start it, and make a new handle and new writers."
            ) from None
        idle.append(connection)
        if outcome == "error":
            kind, text = back
            raise ERRORS[kind](text)
        return back[0]

    def open_writer(self) -> RemoteWriter:
        """Begin a writer; the server hears of it with its first message."""
        return RemoteWriter(self._dropped)

    def insert(self, writer: RemoteWriter, message: Message, timeout: float | None = None) -> list[int]:
        """Store a message's values, and insert its items."""
        while self._dropped:
            with suppress(IndexError):  # another thread may have been faster
                self._send_close(self._dropped.popleft())
        sequence = writer.sequence + (message is not writer.message)
        values = (writer.number, sequence, message.slices, message.items, message.keep_from, timeout)
        frame = pack("insert", values)  # one that can't be sent has no number
        writer.sequence, writer.message = sequence, message
        return self._exchange("insert", frame)

    def close_writer(self, writer: RemoteWriter) -> None:
        """Forget a writer, soon: this waits for no answer."""
        if writer.sequence:
            self._send_close(writer.number)
            writer.sequence = 0  # last: else a writer whose close was interrupted would begin at 1 again

    def _send_close(self, number: int) -> None:
        with suppress(Closed, OSError):  # then the server has forgotten it, or will
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
        """Draw items."""
        check_batch_size(batch_size)
        frame = pack("sample", (table, batch_size, timeout, partial))
        return self._exchange("sample", frame, should_cancel)

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then give others new priorities."""
        return self._call("mutate_priorities", table, as_updates(updates), as_keys(deletes))

    def reset(self, table: str) -> None:
        """Delete all items of a table."""
        self._call("reset", table)

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Let another limiter decide."""
        self._call("replace_limiter", table, limiter)

    def items(self, table: str) -> Sample:
        """Copy all items of a table."""
        return self._call("items", table)

    def info(self) -> dict[str, TableInfo]:
        """Describe all tables at one moment."""
        return self._call("info")

    def save(self, path: str | PathLike[str]) -> None:
        """Let the server write all tables to one file; a relative path is of this process's folder."""
        self._call("save", os.path.abspath(path))

    def load(self, path: str | PathLike[str]) -> None:
        """Let the server replace everything by what was saved."""
        self._call("load", os.path.abspath(path))

    def close(self) -> None:
        """Close the handle, and what its writers hold; calls of other threads raise `Closed`."""
        self._closed = True
        for connection in filter(None, [known() for known in list(self._connections)]):
            connection.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
