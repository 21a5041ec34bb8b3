"""Local sockets: addresses, mutual authentication, and transmission of whole frames.

    /tmp/replay.sock      a Unix domain socket, on Linux and macOS
    127.0.0.1:5000        a TCP socket that is reachable from this machine only; port 0 selects a free port

Both sides prove that they know the same key without sending it:

    both sides          a nonce                                                   32 bytes
    client → server     the client's digest                                       32 bytes
    server → client     the server's digest, if the client's is correct           32 bytes

A digest is the HMAC-SHA256 of the role, both nonces, and the listening socket's address as each side's
operating system reports it. So a digest can't be reflected to its sender, and a process that listens on
another address can't relay it to the server.

The key is the value of the environment variable REPLAY_TUTORIAL_KEY. Without it, the key is read from
`.replay_tutorial_key` in the user's home folder; the first server creates this file, which only the user can
read. Later traffic is not encrypted, so it must not leave the machine.
"""

import errno
import hashlib
import hmac
import os
import re
import secrets
import socket
import sys
import time
import weakref
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np

from replay_tutorial.tables.remote.codec import HEAD, BadFrame

HANDSHAKE_TIMEOUT = 5.0  # seconds for the whole authentication
NONCE = DIGEST = 32  # bytes
BACKLOG = 128
KEY_VARIABLE = "REPLAY_TUTORIAL_KEY"
MIN_KEY_BYTES = 16
MAX_PORT = 65535
PORT = re.compile(r"(localhost|127\.0\.0\.1):([0-9]{1,5})")
# A forked child closes these copies, otherwise the other ends would not notice that its parent has exited.
SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [one.close() for one in SOCKETS])


def parse_address(address: str) -> tuple[str, int] | str:
    """Return (host, port) or the path of a socket.

    Raises:
        ValueError: If the address does not belong to this machine or is invalid.
    """
    if match := PORT.fullmatch(address):
        if int(match[2]) > MAX_PORT:
            raise ValueError(f"{address!r}: the port must be between 0 and {MAX_PORT}.")
        return "127.0.0.1", int(match[2])
    if not address or re.fullmatch(r"[^/\\]*:[0-9]*", address):
        raise ValueError(
            f"{address!r} is not an address of this machine. Use 127.0.0.1:PORT or the path of a socket."
        )
    if sys.platform == "win32":
        raise ValueError(f"{address!r}: socket paths require Linux or macOS. Use 127.0.0.1:PORT.")
    if len(os.fsencode(address)) > 100:
        raise ValueError(
            f"The path of a socket is limited to 100 bytes; {address!r} is longer. Use another folder."
        )
    return address


def listen(address: str) -> tuple[socket.socket, str]:
    """Open a listening socket; return it and its address with the actual port.

    Raises:
        OSError: If the address can't be used, for example because another server listens there.
    """
    location = parse_address(address)
    if isinstance(location, tuple):
        SOCKETS.add(listening := socket.create_server(location, backlog=BACKLOG))
        return listening, f"127.0.0.1:{listening.getsockname()[1]}"
    # absolute, because clients may have other working directories
    location = str(parse_address(os.path.abspath(location)))
    if Path(location).is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # don't wait for a busy server
            if probe.connect_ex(location) == errno.ECONNREFUSED:  # left behind by a killed server
                os.unlink(location)
    SOCKETS.add(listening := socket.socket(socket.AF_UNIX))
    try:
        listening.bind(location)
        os.chmod(location, 0o600)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"Can't listen: {error.strerror}", location) from None
    return listening, location


def stop_listening(listening: socket.socket) -> None:
    """Close a listening socket and delete its file; calling it again has no effect."""
    if listening.fileno() == -1:
        return
    location = listening.getsockname()
    if isinstance(location, str):
        Path(location).unlink(missing_ok=True)
    listening.close()


def connect(address: str) -> "Connection":
    """Connect to a server; raise OSError if no server listens at this address."""
    location = parse_address(address)
    connecting = socket.socket(socket.AF_UNIX if isinstance(location, str) else socket.AF_INET)
    connection = Connection(connecting)
    connecting.connect(location)
    if connecting.getsockname() == location:  # TCP can connect an unused local port to itself
        raise ConnectionRefusedError(f"No server listens at {address}.")
    return connection


class Connection:
    """One end of a connection. One thread reads and writes; any thread may call `shutdown`."""

    def __init__(self, connected: socket.socket) -> None:
        """Take ownership of a connected socket."""
        self._socket = connected
        self.created_at = time.monotonic()
        self.is_authenticated = False  # whether the other end has proved that it knows the key
        SOCKETS.add(connected)
        self._finalizer = weakref.finalize(self, connected.close)
        if connected.family == socket.AF_INET:
            # otherwise Nagle's algorithm delays the end of a frame until its start is acknowledged
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def authenticate(self, key: bytes, *, is_server: bool) -> None:
        """Perform mutual authentication; the server passes `is_server=True` and verifies the client first.

        Raises:
            AuthenticationError: If the other end does not know the key, or rejects ours.
            EOFError, OSError: As for `receive` and `send`, also if the handshake times out.
        """
        deadline, own_nonce = time.monotonic() + HANDSHAKE_TIMEOUT, secrets.token_bytes(NONCE)
        listening_address = self._listening_address(is_server)
        self.send(own_nonce)
        peer_nonce = bytes(self._receive_exactly(NONCE, deadline))
        nonces = own_nonce + peer_nonce if is_server else peer_nonce + own_nonce
        digests = [digest(key, role, nonces, listening_address) for role in (b"client", b"server")]
        if not is_server:
            self.send(digests[0])
        self.is_authenticated = hmac.compare_digest(
            self._receive_exactly(DIGEST, deadline), digests[not is_server]
        )
        if is_server:
            self.send(digests[1] if self.is_authenticated else bytes(DIGEST))
        if not self.is_authenticated:
            raise AuthenticationError("its digest does not match the key, this address and this connection")
        self._socket.settimeout(None)

    def _listening_address(self, is_server: bool) -> bytes:
        """Return the address at which this connection was accepted, as reported by the operating system."""
        location = self._socket.getsockname() if is_server else self._socket.getpeername()
        return os.fsencode(location) if isinstance(location, str) else repr(tuple(location)).encode()

    def send(self, frame: bytes) -> None:
        """Send a frame; raise OSError if the connection was shut down."""
        self._socket.sendall(frame)

    def receive(self, most: int | None = None) -> tuple[int, memoryview]:
        """Wait for a frame of at most `most` bytes; return the length of its text, and its content.

        Raises:
            BadFrame: If the frame is longer.
            EOFError: If the other end has closed the connection.
            OSError: If the connection was shut down.
        """
        length, size = HEAD.unpack(self._receive_exactly(HEAD.size))
        if most is not None and size > most:
            raise BadFrame(f"The frame has {size:,} bytes; the limit is {most:,}.")
        return length, self._receive_exactly(size)

    def _receive_exactly(self, count: int, deadline: float | None = None) -> memoryview:
        """Receive exactly `count` bytes."""
        data, received = np.empty(count, np.uint8).data, 0  # the memory is not allocated before it is written
        while received < count:
            if deadline is not None:
                self._socket.settimeout(max(1e-3, deadline - time.monotonic()))
            more = self._socket.recv_into(data[received:])
            if not more:
                raise EOFError
            received += more
        return data

    def poll(self, seconds: float) -> bool:
        """Wait up to `seconds` for data or a disconnect; return whether either occurred."""
        with suppress(InterruptedError):  # on Windows, Ctrl-C interrupts it even if the handler returns
            return bool(wait([self._socket], seconds))
        return False

    def is_connected(self) -> bool:
        """Return whether the other end is still connected; valid only while that end has nothing to send."""
        return not self.poll(0)

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """Shut down the connection, from any thread; both ends detect it immediately.

        SHUT_RD stops only reading, so that data being sent still arrives. Closing the socket would
        not suffice, because a forked process may hold a copy.
        """
        with suppress(OSError):  # already shut down
            self._socket.shutdown(how)

    def close(self) -> None:
        """Shut down the connection and close the socket; only for the thread that reads and writes."""
        self.shutdown()
        self._finalizer()


def digest(key: bytes, role: bytes, nonces: bytes, listening_address: bytes) -> bytes:
    """Return the proof that a process in this role knows the key, valid for this connection only."""
    return hmac.digest(
        key, b"\0".join((b"replay_tutorial tables", role, nonces, listening_address)), hashlib.sha256
    )


# The key


def key_path() -> Path:
    """Return the path of the key file."""
    return Path.home() / ".replay_tutorial_key"


def make_key() -> bytes:
    """Return the key as `read_key` does, after creating the key file if there is no key."""
    location = key_path()
    if KEY_VARIABLE not in os.environ and not location.exists():
        # so that no process reads a partial key
        temporary = location.with_name(f"{location.name}.{secrets.token_hex(8)}")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_hex(32).encode())
            with suppress(FileExistsError):  # another server created it in the meantime
                os.link(temporary, location)
        finally:
            temporary.unlink(missing_ok=True)
    return read_key()


def read_key() -> bytes:
    """Return the key from the environment variable or from the key file.

    Raises:
        OSError: If there is no key.
        ValueError: If the key is too short, or other users can read the file.
    """
    given, location = os.environ.get(KEY_VARIABLE), key_path()
    if given is not None:
        return checked_key(given.encode(), f"set {KEY_VARIABLE} to a longer one")
    if not location.exists():
        raise FileNotFoundError(
            f"There is no key: {KEY_VARIABLE} is not set, and {location} does not exist. Start the server "
            "first, as the same user; it creates the key."
        )
    if location.stat().st_mode & 0o077 and sys.platform != "win32":
        raise ValueError(f"Other users can read the key in {location}. Run chmod 600 on this file.")
    return checked_key(location.read_bytes(), f"delete the file {location} to create a new one")


def checked_key(key: bytes, remedy: str) -> bytes:
    """Return a key after checking that it is long enough not to be guessed."""
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"The key has {len(key)} bytes; it must have at least {MIN_KEY_BYTES}: {remedy}.")
    return key
