"""The endpoint: accepts connections from other processes on this machine and carries out their calls.

Each connection has its own thread, which carries out one call at a time, so a waiting call does not block
other connections. While a call waits, the thread polls whether its client is still connected; the call of a
client that has exited is cancelled.

The connections of one handle form a *session*. The first connection starts and ends the session. A connection
ends only when one of the processes exits or closes it. When a session ends, its writers are closed.

A connection that fails to authenticate is closed, and an invalid call is answered with an error. Neither
affects other connections.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from typing import Any, Self

import numpy as np

from replay_tutorial.tables.core.waiting import Cancelled, Closed
from replay_tutorial.tables.remote.codec import (
    ARGUMENT_TYPES,
    ERRORS,
    GREETING,
    MAX_CALL_BYTES,
    BadFrame,
    pack,
    unpack,
)
from replay_tutorial.tables.remote.local_socket import Connection, listen, make_key, stop_listening
from replay_tutorial.tables.remote.session import Session
from replay_tutorial.tables.server import Server

MAX_CONNECTIONS = 1000
MAX_UNAUTHENTICATED = 64  # further connections that have not authenticated yet
# When such a connection may be closed in favour of a new one. Authentication takes milliseconds.
UNAUTHENTICATED_SECONDS = 1.0
MAX_ERROR_LENGTH = 2000  # characters
ACCEPT_TIMEOUT = 0.2  # seconds
CLOSE_TIMEOUT = 1.0  # seconds that `close` waits for results that are being sent

log = logging.getLogger("replay_tutorial")


class Endpoint:
    """Lets other processes on this machine call a server.

    Example:
        >>> from replay_tutorial.tables import Endpoint, Server, Table
        >>> server = Server([Table.queue("rollouts", 9)], {"obs": {"shape": 3}}, capacity=100)
        >>> with Endpoint(server, "127.0.0.1:0") as endpoint:
        ...     print(endpoint.address.partition(":")[0])
        127.0.0.1

    Attributes:
        address: Address at which the endpoint listens.
    """

    def __init__(self, server: Server, address: str) -> None:
        """Start listening.

        Args:
            server: The server. This process can still call it, and it stays open when the endpoint is closed.
            address: Path of a socket, or 127.0.0.1:PORT; port 0 selects a free port.

        Raises:
            OSError: If the endpoint can't listen at this address.
            ValueError: If the address does not belong to this machine, the key is too short, or other users
                can read it.
        """
        self._server = server
        self._key = make_key()
        self._instance = secrets.token_hex(8)
        self._sessions: dict[str, Session] = {}
        self._threads: dict[Connection, threading.Thread] = {}
        self._closed = False
        self._listening, self.address = listen(address)
        self._listening.settimeout(ACCEPT_TIMEOUT)  # so that the thread notices `close`
        self._listener = threading.Thread(target=self._accept_connections, name="tables listen", daemon=True)
        self._listener.start()

    def _accept_connections(self) -> None:
        while not self._closed:
            self._limit_unauthenticated()
            try:
                connection = Connection(self._listening.accept()[0])
            except TimeoutError:
                continue
            except OSError as error:
                log.warning("Can't accept a connection: %s", error)  # for example, too many open files
                time.sleep(ACCEPT_TIMEOUT)
                continue
            thread = threading.Thread(
                target=self._serve_connection, args=(connection,), name="tables client", daemon=True
            )
            self._threads[connection] = thread
            try:
                if sum(known.is_authenticated for known in list(self._threads)) >= MAX_CONNECTIONS:
                    raise RuntimeError(f"the limit of {MAX_CONNECTIONS} connections is reached")
                thread.start()
            except RuntimeError as error:  # also raised if the system can't start another thread
                log.warning("Rejected a connection: %s", error)
                del self._threads[connection]
                connection.close()

    def _limit_unauthenticated(self) -> None:
        """Wait while too many connections are unauthenticated, and close the oldest after a second."""
        while not self._closed:
            unauthenticated = [
                connection for connection in list(self._threads) if not connection.is_authenticated
            ]
            if len(unauthenticated) < MAX_UNAUTHENTICATED:
                return
            if time.monotonic() - unauthenticated[0].created_at >= UNAUTHENTICATED_SECONDS:
                unauthenticated[0].shutdown()  # its thread ends
            time.sleep(0.01)

    def _serve_connection(self, connection: Connection) -> None:
        """Carry out all calls of a connection."""
        try:
            connection.authenticate(self._key, is_server=True)
            _, greeting = unpack(*connection.receive(MAX_CALL_BYTES), GREETING)
            with self._session(connection, *greeting) as session:
                while True:
                    self._handle_call(*connection.receive(MAX_CALL_BYTES), session, connection)
        except (BadFrame, Closed) as error:
            with suppress(OSError):
                connection.send(error_frame(error))
        except AuthenticationError as error:
            log.warning("Rejected a connection without the key: %s", error)
        except (OSError, EOFError, Cancelled):
            pass  # the client has disconnected
        finally:
            del self._threads[connection]
            connection.close()

    @contextmanager
    def _session(self, connection: Connection, instance: str, session_id: str) -> Generator[Session]:
        """Start a session, or join an existing one; close its writers once the session has ended."""
        if instance not in ("", self._instance):
            raise Closed(
                "Another endpoint listens there now, so the writers of this handle were closed. If the "
                "server was restarted, its content is lost."
            )
        is_first = not session_id
        if is_first:
            self._sessions[session_id := secrets.token_hex(8)] = Session(self._server)
        session = self._sessions.get(session_id)
        if session is None:
            raise Closed("The first connection of this handle has ended, so its writers were closed.")
        columns = self._server.fields.fields.values()
        empty = {column.name: np.zeros((0, *column.shape), column.dtype) for column in columns}
        try:
            connection.send(pack("answer", [(self._instance, session_id, empty)]))
            yield session
        finally:
            if is_first:
                del self._sessions[session_id]
            if session_id not in self._sessions:  # the session has ended, perhaps before one of its calls
                session.close()

    def _handle_call(self, length: int, body: memoryview, session: Session, connection: Connection) -> None:
        """Carry out a call and send the result."""
        try:
            name, values = unpack(length, body, ARGUMENT_TYPES)
            if name == "close_writer":
                return session.close_writer(*values)  # the client does not wait for a result
            if name == "insert" and not connection.is_connected():
                raise Cancelled  # the client may have sent the message again on another connection
            options: dict[str, Any] = {"most_bytes": MAX_CALL_BYTES} if name in ("sample", "items") else {}
            if name in ("sample", "insert"):
                options["should_cancel"] = lambda: not connection.is_connected()
            result = getattr(session if name == "insert" else self._server, name)(*values, **options)
            answer = pack("answer", [result])
        except tuple(ERRORS.values()) as error:
            answer = error_frame(error)
        connection.send(answer)

    def close(self) -> None:
        """Close all connections and cancel waiting calls.

        Calls that have finished get one second to send their results.
        """
        self._closed = True
        self._listener.join()
        stop_listening(self._listening)
        threads = list(self._threads.items())
        for connection, _ in threads:
            connection.shutdown(socket.SHUT_RD)
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for connection, thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            connection.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def error_frame(error: Exception) -> bytes:
    """Encode an error as a frame."""
    kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
    text = str(error.args[0] if isinstance(error, KeyError) else error)
    return pack("error", [kind, text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}..."])
