"""Sockets of this machine: addresses, who may connect, and whole frames in and out.

    /tmp/replay.sock      a socket in the file system, where there are any: Linux, macOS
    127.0.0.1:5000        a TCP socket that only this machine can reach; port 0 is any free one

Both sides prove that they know the same key, without sending it:

    both sides          a nonce of their own                                      32 bytes
    client → server     the digest of the client                                  32 bytes
    server → client     the digest of the server, if that of the client is right  32 bytes

A digest is the HMAC-SHA256 of the role, both nonces, and the address of the socket that listens, as the
system tells it to each side. So a digest can't be reflected to the side that made it, nor can a process that
listens elsewhere, and does not know the key, relay one to the server.

The key is the text of the environment variable REPLAY_TUTORIAL_KEY, or else lies in `.replay_tutorial_key` of
the user's home folder, which only the user can read; the first server makes it. What they say afterwards is
not encrypted, which is why it does not leave the machine.
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

HANDSHAKE_TIMEOUT = 5.0  # seconds in which a newcomer has to prove itself, in all
NONCE = DIGEST = 32  # bytes
BACKLOG = 128
KEY_VARIABLE = "REPLAY_TUTORIAL_KEY"
MIN_KEY_BYTES = 16  # bytes of a key
MAX_PORT = 65535
PORT = re.compile(r"(localhost|127\.0\.0\.1):([0-9]{1,5})")
# A forked child would hold them open, and nobody would see its parent's end: it closes them.
SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [one.close() for one in SOCKETS])


def parse_address(address: str) -> tuple[str, int] | str:
    """Read an address: a host and a port, or a path; refuse any other."""
    if match := PORT.fullmatch(address):
        if int(match[2]) > MAX_PORT:
            raise ValueError(f"{address!r}: a port is between 0 and {MAX_PORT}.")
        return "127.0.0.1", int(match[2])
    if not address or re.fullmatch(r"[^/\\]*:[0-9]*", address):
        raise ValueError(f"{address!r} is not of this machine: use 127.0.0.1:PORT, or the path of a socket.")
    if sys.platform == "win32":
        raise ValueError(f"{address!r}: use 127.0.0.1:PORT here; paths are for Linux and macOS.")
    if len(os.fsencode(address)) > 100:
        raise ValueError(f"A socket's path has at most 100 bytes; {address!r} is longer. Use another folder.")
    return address


def listen(address: str) -> tuple[socket.socket, str]:
    """Open a socket to listen on; return it, and its address with the port that it got.

    Raises:
        OSError: If it can't be opened there, such as when another server listens.
    """
    place = parse_address(address)
    if isinstance(place, tuple):
        SOCKETS.add(listening := socket.create_server(place, backlog=BACKLOG))
        return listening, f"127.0.0.1:{listening.getsockname()[1]}"
    place = str(parse_address(os.path.abspath(place)))  # clients are told it, wherever they are
    if Path(place).is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # one that is busy answers later
            if probe.connect_ex(place) == errno.ECONNREFUSED:  # a killed server left it
                os.unlink(place)
    SOCKETS.add(listening := socket.socket(socket.AF_UNIX))
    try:
        listening.bind(place)
        os.chmod(place, 0o600)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"Can't listen: {error.strerror}", place) from None
    return listening, place


def stop_listening(listening: socket.socket) -> None:
    """Close a socket that listened, and remove its file; do nothing the second time."""
    if listening.fileno() == -1:
        return
    place = listening.getsockname()
    if isinstance(place, str):
        Path(place).unlink(missing_ok=True)
    listening.close()


def connect(address: str) -> "Connection":
    """Connect to a server; an OSError says that there is none."""
    place = parse_address(address)
    connecting = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
    connection = Connection(connecting)
    connecting.connect(place)
    if connecting.getsockname() == place:  # a port may call itself where nobody listens
        raise ConnectionRefusedError(f"Nobody listens at {address}.")
    return connection


class Connection:
    """One end of a connection, until it is dropped; one thread reads and writes, any other may cut it.

    Attributes:
        made_at: When, by `time.monotonic`.
        is_proved: Whether the other end has proved that it knows the key.
    """

    def __init__(self, connected: socket.socket) -> None:
        """Take a socket over."""
        self._socket = connected
        self.created_at, self.is_authenticated = time.monotonic(), False
        SOCKETS.add(connected)
        self._finalizer = weakref.finalize(self, connected.close)
        if connected.family == socket.AF_INET:
            # or the end of a frame waits until its beginning is confirmed
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def authenticate(self, key: bytes, *, first: bool) -> None:
        """Prove to the other end that one knows the key, and let it prove the same; a server asks first.

        Raises:
            AuthenticationError: If it does not know the key, or does not take ours.
            EOFError, OSError: As `receive` and `send` do, also if the time is up.
        """
        deadline, ours = time.monotonic() + HANDSHAKE_TIMEOUT, secrets.token_bytes(NONCE)
        where = self._listening_address(first)
        self.send(ours)
        theirs = bytes(self._receive_exactly(NONCE, deadline))
        nonces = ours + theirs if first else theirs + ours
        proofs = [digest(key, role, nonces, where) for role in (b"client", b"server")]
        if not first:
            self.send(proofs[0])
        self.is_authenticated = hmac.compare_digest(
            self._receive_exactly(DIGEST, deadline), proofs[not first]
        )
        if first:
            self.send(proofs[1] if self.is_authenticated else bytes(DIGEST))
        if not self.is_authenticated:
            raise AuthenticationError("its digest is not that of the key, this address and this connection")
        self._socket.settimeout(None)

    def _listening_address(self, ours: bool) -> bytes:
        """Return where this connection was accepted, as the system tells it."""
        place = self._socket.getsockname() if ours else self._socket.getpeername()
        return os.fsencode(place) if isinstance(place, str) else repr(tuple(place)).encode()

    def send(self, frame: bytes) -> None:
        """Send a frame, or raise an OSError if the connection was cut."""
        self._socket.sendall(frame)

    def receive(self, most: int | None = None) -> tuple[int, memoryview]:
        """Wait for a frame of at most so many bytes; return how long its text is, and all of it.

        Raises:
            BadFrame: If it is longer.
            EOFError: If the other end went away.
            OSError: If the connection was cut.
        """
        length, size = HEAD.unpack(self._receive_exactly(HEAD.size))
        if most is not None and size > most:
            raise BadFrame(f"A frame of {size:,} bytes came; there may be {most:,}.")
        return length, self._receive_exactly(size)

    def _receive_exactly(self, count: int, deadline: float | None = None) -> memoryview:
        """Receive so many bytes."""
        data, done = np.empty(count, np.uint8).data, 0  # takes no memory before they come
        while done < count:
            if deadline is not None:
                self._socket.settimeout(max(1e-3, deadline - time.monotonic()))
            more = self._socket.recv_into(data[done:])
            if not more:
                raise EOFError
            done += more
        return data

    def poll(self, seconds: float) -> bool:
        """Wait so long for the other end to say something, or to end."""
        return bool(wait([self._socket], seconds))

    def is_connected(self) -> bool:
        """Return whether the other end is still there; only while it has nothing to send."""
        return not self.poll(0)

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """End the connection, from any thread: whoever reads or writes, here or there, sees the end at once.

        With SHUT_RD, only who reads here does, and what is being sent arrives. To close the socket would not
        do: a forked process may have it, too.
        """
        with suppress(OSError):  # it has ended already
            self._socket.shutdown(how)

    def close(self) -> None:
        """Cut the connection, and close the socket; only the thread that reads and writes may do it."""
        self.shutdown()
        self._finalizer()


def digest(key: bytes, role: bytes, nonces: bytes, where: bytes) -> bytes:
    """Return what only a process that knows the key can say in this role, on this connection."""
    return hmac.digest(key, b"\0".join((b"replay_tutorial tables", role, nonces, where)), hashlib.sha256)


# The key


def key_path() -> Path:
    """Return where the key lies, unless the environment has one."""
    return Path.home() / ".replay_tutorial_key"


def make_key() -> bytes:
    """Return the key, as `read_key` does; make one if there is none."""
    place = key_path()
    if KEY_VARIABLE not in os.environ and not place.exists():
        whole = place.with_name(f"{place.name}.{secrets.token_hex(8)}")  # nobody sees half of one
        try:
            with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
            with suppress(FileExistsError):  # another server was faster
                os.link(whole, place)
        finally:
            whole.unlink(missing_ok=True)
    return read_key()


def read_key() -> bytes:
    """Return the key.

    Raises:
        OSError: If there is none.
        ValueError: If it is too short, or others can read it.
    """
    given, place = os.environ.get(KEY_VARIABLE), key_path()
    if given is not None:
        return checked_key(given.encode(), f"{KEY_VARIABLE} of the environment")
    if not place.exists():
        raise FileNotFoundError(
            f"There is no key: neither {KEY_VARIABLE} in the environment, nor {place}. The server makes it; "
            "start that first, as the same user."
        )
    if place.stat().st_mode & 0o077 and sys.platform != "win32":
        raise ValueError(f"Others can read the key in {place}. Allow it to yourself only: chmod 600.")
    return checked_key(place.read_bytes(), f"in {place}; delete the file")


def checked_key(key: bytes, where: str) -> bytes:
    """Return a key; refuse one that can be guessed."""
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"The key has {len(key)} bytes, of at least {MIN_KEY_BYTES}: {where}.")
    return key
