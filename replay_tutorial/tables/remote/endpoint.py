"""The endpoint: where processes of this machine reach a server.

Each connection has a thread, which carries out one call after the other, as a thread of this process would.
So a call that waits holds nobody else up. While it waits, it looks whether its client is still there: what a
dead one asked for is not done.

The connections of one handle are a *session*, which the first of them begins and ends. A connection ends only
when one of the two processes does, or cuts it on purpose. With its session a handle's writers are closed.

A connection that proves not to know the key, or sends what is no call, is answered; it can hurt itself only.
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

from replay_tutorial.tables.core.waiting import CallerGone, Closed
from replay_tutorial.tables.remote.codec import (
    ARGUMENT_TYPES,
    ERRORS,
    GREETING,
    MAX_CALL_BYTES,
    BadFrame,
    pack,
    unpack,
)
from replay_tutorial.tables.remote.local_socket import Connection, checked_key, listen, stop_listening
from replay_tutorial.tables.remote.session import Session
from replay_tutorial.tables.server import Server

MAX_CONNECTIONS = 1000
MAX_UNAUTHENTICATED = 64  # connections beside these that have not proved to know the key
UNAUTHENTICATED_SECONDS = (
    1.0  # seconds after which one may be dropped for another; a proof takes milliseconds
)
MAX_ERROR_LENGTH = 2000  # characters of an error's text
ACCEPT_TIMEOUT = 0.2  # seconds
CLOSE_TIMEOUT = 1.0  # seconds that the end waits for answers that are on their way

log = logging.getLogger("replay_tutorial")


class Endpoint:
    """Lets other processes call a server.

    Example:
        >>> from replay_tutorial.tables import Endpoint, Server, Table
        >>> server = Server([Table.queue("rollouts", 9)], {"obs": {"shape": 3}}, capacity=100)
        >>> with Endpoint(server, "127.0.0.1:0", key=b"known to clients") as endpoint:
        ...     print(endpoint.address.partition(":")[0])
        127.0.0.1

    Attributes:
        address: Where it listens.
    """

    def __init__(self, server: Server, address: str, key: bytes) -> None:
        """Begin to listen.

        Args:
            server: The server. It stays usable in this process, and open when the endpoint closes.
            address: The path of a socket, or 127.0.0.1:PORT; port 0 is any free one.
            key: What clients must know, such as `make_key` returns.

        Raises:
            OSError: If it can't listen there.
            ValueError: If the address is none of this machine, or the key too short.
        """
        self._server = server
        self._key = checked_key(key, "take a longer one, such as make_key() returns")
        self._instance = secrets.token_hex(8)
        self._sessions: dict[str, Session] = {}
        self._threads: dict[Connection, threading.Thread] = {}
        self._closed = False
        self._listening, self.address = listen(address)
        self._listening.settimeout(ACCEPT_TIMEOUT)  # how soon it hears that it is closed
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
                log.warning("Can't take a connection: %s", error)  # too many open files, for example
                time.sleep(ACCEPT_TIMEOUT)
                continue
            thread = threading.Thread(
                target=self._serve_connection, args=(connection,), name="tables client", daemon=True
            )
            self._threads[connection] = thread
            try:
                if sum(known.is_authenticated for known in list(self._threads)) >= MAX_CONNECTIONS:
                    raise RuntimeError(f"there are {MAX_CONNECTIONS} already")
                thread.start()
            except RuntimeError as error:  # also of a system that has no more threads
                log.warning("Refused a connection: %s", error)
                del self._threads[connection]
                connection.close()

    def _limit_unauthenticated(self) -> None:
        """Leave connections in the backlog while too many have proved nothing; drop the oldest of these."""
        while not self._closed:
            newcomers = [connection for connection in list(self._threads) if not connection.is_authenticated]
            if len(newcomers) < MAX_UNAUTHENTICATED:
                return
            if time.monotonic() - newcomers[0].created_at >= UNAUTHENTICATED_SECONDS:
                newcomers[0].shutdown()  # its thread ends
            time.sleep(0.01)

    def _serve_connection(self, connection: Connection) -> None:
        """Carry out all calls of a connection."""
        try:
            connection.authenticate(self._key, first=True)
            _, greeting = unpack(*connection.receive(MAX_CALL_BYTES), GREETING)
            with self._session(connection, *greeting) as calls:
                while True:
                    self._handle_call(*connection.receive(MAX_CALL_BYTES), calls, connection)
        except (BadFrame, Closed) as error:
            with suppress(OSError):
                connection.send(error_frame(error))
        except AuthenticationError as error:
            log.warning("Refused a connection that does not know the key: %s", error)
        except (OSError, EOFError, CallerGone):
            pass  # the client has gone
        finally:
            del self._threads[connection]
            connection.close()

    @contextmanager
    def _session(self, connection: Connection, instance: str, session: str) -> Generator[Session]:
        """Begin a session, if none is named, or belong to one; close its writers when it has ended."""
        if instance not in ("", self._instance):
            raise Closed("The server was started again; what it held is gone.")
        begins = not session
        if begins:
            self._sessions[session := secrets.token_hex(8)] = Session(self._server)
        calls = self._sessions.get(session)
        if calls is None:
            raise Closed("The first connection of this handle has ended, so that its writers were closed.")
        columns = self._server.fields.fields.values()
        empty = {column.name: np.zeros((0, *column.shape), column.dtype) for column in columns}
        try:
            connection.send(pack("answer", [(self._instance, session, empty)]))
            yield calls
        finally:
            if begins:
                del self._sessions[session]
            if session not in self._sessions:  # a call of another connection may have ended later
                calls.close()

    def _handle_call(self, length: int, body: memoryview, session: Session, connection: Connection) -> None:
        """Carry out a call, and answer it."""
        try:
            name, values = unpack(length, body, ARGUMENT_TYPES)
            if name == "close_writer":
                return session.close_writer(*values)  # nobody waits for an answer
            if name == "insert" and not connection.is_connected():
                raise CallerGone  # it may have sent the message again, elsewhere, and be further by now
            options: dict[str, Any] = {"most_bytes": MAX_CALL_BYTES} if name in ("sample", "items") else {}
            if name in ("sample", "insert"):
                options["should_cancel"] = lambda: not connection.is_connected()
            result = getattr(session if name == "insert" else self._server, name)(*values, **options)
            answer = pack("answer", [np.array(result, np.int64) if name == "insert" else result])
        except tuple(ERRORS.values()) as error:
            answer = error_frame(error)
        connection.send(answer)

    def close(self) -> None:
        """End all connections. Answers that are on their way get a second; calls that wait are given up."""
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
    """Say what went wrong."""
    kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
    text = str(error.args[0] if isinstance(error, KeyError) else error)
    return pack("error", [kind, text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}..."])
