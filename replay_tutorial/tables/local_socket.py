"""Sockets of this machine: addresses, who may connect, and whole frames in and out.

    /tmp/replay.sock      a socket in the file system, where there are any: Linux, macOS
    127.0.0.1:5000        a TCP socket that only this machine can reach; port 0 is any free one

Both sides prove that they know the same key, without sending it: the challenge of `multiprocessing`. What
they say to each other is not encrypted, which is why it does not leave the machine.

Left out: what is said (`call_forms`).
"""

import os
import re
import socket
import stat
import sys
import weakref
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from pathlib import Path
from typing import Any, cast

from replay_tutorial.tables.framing import HEAD, BadFrame, Frame, unpack

HANDSHAKE = 5.0  # seconds in which a newcomer has to prove itself
BACKLOG = 128
# Flags of a look at what has come; a fifth of the time of `wait`, but not everywhere.
LOOK_WITHOUT_WAITING = socket.MSG_PEEK | socket.MSG_DONTWAIT if hasattr(socket, "MSG_DONTWAIT") else None
PORT = re.compile(r"(localhost|127\.0\.0\.1):([0-9]{1,5})")


def place_of(address: str) -> tuple[str, int] | str:
    """Read an address: a host and a port, or a path.

    Raises:
        ValueError: If it is neither.
    """
    if match := PORT.fullmatch(address):
        return "127.0.0.1", int(match[2])
    if not address or re.fullmatch(r"[^/\\]*:[0-9]*", address):
        raise ValueError(
            f"The address {address!r} is not of this machine. Use 127.0.0.1:PORT, or the path of a socket."
        )
    if sys.platform == "win32":
        raise ValueError(f"{address!r}: use 127.0.0.1:PORT here; paths are for Linux and macOS.")
    if len(os.fsencode(address)) > 100:
        raise ValueError(f"A socket's path has at most 100 bytes; {address!r} is longer. Use another folder.")
    return address


def listen(address: str) -> tuple[socket.socket, str]:
    """Open a socket to listen on.

    Returns:
        The socket, and its address: with the port that it got.

    Raises:
        OSError: If it can't be opened there, such as when another server listens.
        ValueError: If the address is none of this machine.
    """
    place = place_of(address)
    if isinstance(place, tuple):
        listening = socket.create_server(place, backlog=BACKLOG)
        return listening, f"127.0.0.1:{listening.getsockname()[1]}"
    if os.path.exists(place) and stat.S_ISSOCK(os.stat(place).st_mode) and not answers(place):
        os.unlink(place)  # a killed server left it
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(place)
        os.chmod(place, 0o600)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"Can't listen: {error.strerror}", place) from None
    return listening, place


def answers(path: str) -> bool:
    """Return whether a server listens at a path."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def stop_listening(listening: socket.socket, address: str) -> None:
    """Close a socket that listened, and remove its file."""
    listening.close()
    if isinstance(place_of(address), str):
        Path(address).unlink(missing_ok=True)


def dial(address: str) -> socket.socket:
    """Connect to a server.

    Raises:
        OSError: If there is none.
    """
    place = place_of(address)
    if isinstance(place, tuple):
        dialing = socket.create_connection(place)
        if dialing.getsockname() == dialing.getpeername():  # it may call itself where nobody listens
            dialing.close()
            raise ConnectionRefusedError(f"Nobody listens at {address}.")
        return dialing
    dialing = socket.socket(socket.AF_UNIX)
    try:
        dialing.connect(place)
    except OSError:
        dialing.close()
        raise
    return dialing


class Wire:
    """One end of a connection; one thread reads and writes, any other may cut it."""

    def __init__(self, connected: socket.socket) -> None:
        """Take a connected socket over."""
        self._socket = connected
        self._finalizer = weakref.finalize(self, connected.close)  # a handle may be dropped without a word
        if connected.family != getattr(socket, "AF_UNIX", None):
            # or the end of a frame waits until its beginning is confirmed
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def prove(self, key: bytes, *, first: bool) -> None:
        """Prove to the other end that one knows the key, and let it prove the same.

        Args:
            key: The key.
            first: Whether to ask first, as a server does.

        Raises:
            EOFError: If the other end went away.
            OSError: If the connection was cut, or the time is up.
            AuthenticationError: If it does not know the key, or does not take ours.
        """
        self._socket.settimeout(HANDSHAKE)
        steps = [deliver_challenge, answer_challenge]
        for step in steps if first else reversed(steps):
            try:
                step(cast("Connection[Any, Any]", self), key)
            except (AssertionError, ValueError) as error:  # what it does with bytes that are no challenge
                raise AuthenticationError(f"no challenge came: {error}") from None
        self._socket.settimeout(None)

    def send_bytes(self, data: bytes) -> None:
        """Send a short message, as the challenge does."""
        self._socket.sendall(bytes([len(data) >> 8, len(data) & 255]) + data)

    def recv_bytes(self, maxlength: int) -> bytes:
        """Receive a short message."""
        high, low = self._exactly(2)
        if (high << 8 | low) > maxlength:
            raise OSError("too long for a challenge")
        return bytes(self._exactly(high << 8 | low))

    def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            OSError: If the connection was cut.
        """
        self._socket.sendall(frame)

    def receive(self, most: int | None = None) -> Frame:
        """Wait for a frame.

        Args:
            most: Bytes that it may have.

        Raises:
            BadFrame: If it is none, or longer.
            EOFError: If the other end went away.
            OSError: If the connection was cut.
        """
        head = HEAD.unpack(self._exactly(HEAD.size))
        if most is not None and head[3] > most:
            raise BadFrame(f"A frame of {head[3]:,} bytes came; there may be {most:,}.")
        return unpack(head, self._exactly(head[3]))

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        done = self._socket.recv_into(data) if count else 0
        while done < count:
            more = self._socket.recv_into(memoryview(data)[done:])
            if not more:
                raise EOFError
            done += more
        return data

    def has_word(self, seconds: float) -> bool:
        """Wait so long for the other end to say something, or to end."""
        return bool(wait([self._socket], seconds))

    def is_there(self) -> bool:
        """Return whether the other end is still there; only while it has nothing to send."""
        if LOOK_WITHOUT_WAITING is None:
            return not wait([self._socket], 0)
        try:
            self._socket.recv(1, LOOK_WITHOUT_WAITING)
        except BlockingIOError:
            return True
        except OSError:
            pass  # it was cut
        return False

    def cut(self) -> None:
        """End the connection, from any thread: whoever reads or writes gets an error at once."""
        with suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._finalizer()
