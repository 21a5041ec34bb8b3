"""Addresses of servers, and the keys that both sides need on a network.

    /tmp/replay.sock      a socket that only this user can open, on Linux and macOS
    127.0.0.1:5000        reachable from this machine; port 0 selects a free port
    tcp://0.0.0.0:5000    the server listens on all network interfaces
    tcp://host:5000       a client connects to another host

TCP connections are encrypted and authenticated with CURVE (Curve25519): the server and its clients each have
a key pair, and know the other's public key. The *server key* holds both secret keys. The *client key*, which
is derived from it, holds the server's public key and the secret key of the clients. So a client can't
impersonate the server. Both are text, in the variable REPLAY_TUTORIAL_KEY or in the file
`.replay_tutorial_key` of the home folder, which the first server creates and only the user can read.
"""

import errno
import os
import re
import secrets
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import zmq
from zmq.utils import z85

from replay_tutorial.tables.core.waiting import POLL_INTERVAL

# milliseconds; a peer that vanished, as when a cable is cut, is noticed after `heartbeat_timeout`
SOCKET_OPTIONS = {
    "rcvtimeo": round(1000 * POLL_INTERVAL),
    "handshake_ivl": 5_000,
    "heartbeat_ivl": 2_000,
    "heartbeat_timeout": 10_000,
}
KEY_VARIABLE = "REPLAY_TUTORIAL_KEY"
MAX_PORT = 65535
PORT = re.compile(r"(?:tcp://)?([A-Za-z0-9.*_-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")
KEY = re.compile(r"(server|client)-([0-9a-f]{64})([0-9a-f]{64})")


def parse_address(address: str) -> tuple[str, bool]:
    """Return an address as a URL, and whether only processes of this machine can use it.

    Raises:
        ValueError: If the address is invalid.
    """
    if match := PORT.fullmatch(address):
        host = "127.0.0.1" if match[1] == "localhost" else match[1]
        if int(match[2]) > MAX_PORT:
            raise ValueError(f"{address!r}: the port must be between 0 and {MAX_PORT}.")
        return f"tcp://{host}:{match[2]}", host.startswith("127.") or host == "[::1]"
    path = address.removeprefix("ipc://")
    if not path or "://" in path or re.fullmatch(r"[^/\\]*:[0-9]*", path):
        raise ValueError(f"{address!r} is not an address. Use HOST:PORT or the path of a socket.")
    if sys.platform == "win32":
        raise ValueError(f"{address!r}: socket paths require Linux or macOS. Use 127.0.0.1:PORT.")
    path = os.path.abspath(path)  # because clients may have other working directories
    if len(os.fsencode(path)) > 100:
        raise ValueError(
            f"The path of a socket is limited to 100 bytes; {path!r} is longer. Use another folder."
        )
    return f"ipc://{path}", True


def open_socket(context: zmq.Context[Any], kind: int, cls: Any = None, **options: Any) -> zmq.Socket[bytes]:
    """Return a new socket with these options, of this class."""
    opened = context.socket(kind, socket_class=cls)
    for name, value in (SOCKET_OPTIONS | options).items():
        setattr(opened, name, value)
    return opened


def check_free(path: str) -> None:
    """Raise OSError if a server, or another file, is at this path, because ZeroMQ would replace it."""
    if os.path.lexists(path):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # don't wait for a busy server
            if probe.connect_ex(path) != errno.ECONNREFUSED or not Path(path).is_socket():
                raise OSError(errno.EADDRINUSE, "Can't listen: the address is in use", path)


def copy_of(descriptor: int) -> socket.socket:
    """Return a copy of a socket; raise OSError if the file descriptor belongs to something else."""
    copy = os.dup(descriptor)
    try:
        return socket.socket(fileno=copy)
    except OSError:  # the number has been reused for a file, whose copy would keep it open
        os.close(copy)
        raise


def is_gone(descriptor: int) -> bool:
    """Return whether the other end of a connection has closed it, before ZeroMQ has reported it."""
    if sys.platform == "win32":
        return False
    try:
        with copy_of(descriptor) as connection:
            return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError as error:  # ZeroMQ has closed it too, unless the process has too many files open
        return error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


OWNERS: WeakSet[Any] = WeakSet()  # handles and endpoints


def ends_of(copy: socket.socket) -> set[str]:
    """Return the addresses of both ends of a socket; a listening one has no peer."""
    ends = set[str]()
    for get in (copy.getsockname, copy.getpeername):
        with suppress(OSError):
            match get():
                case (str(host), int(port), *_):
                    ends.add(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
                case name:
                    ends.add(str(name))
    return ends


def close_copies() -> None:
    """Close a forked child's copies of sockets, which would hide that its parent has exited."""
    addresses = {owner.address for owner in OWNERS}
    for name in os.listdir("/dev/fd") if addresses else ():
        with suppress(OSError), copy_of(int(name)) as copy:
            if not addresses.isdisjoint(ends_of(copy)):
                os.close(int(name))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close_copies)


def check_owner(path: str) -> None:
    """Raise PermissionError if a socket belongs to another user, who could pretend to be the server."""
    with suppress(FileNotFoundError):
        if os.stat(path).st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, "The socket belongs to another user", path)


class Keys(NamedTuple):
    """The keys of one side in ZeroMQ's encoding; a client has no `server_secret`."""

    server_public: bytes
    client_public: bytes
    client_secret: bytes
    server_secret: bytes | None

    @property
    def client_key(self) -> str:
        """The text that a client needs."""
        return f"client-{z85.decode(self.server_public).hex()}{z85.decode(self.client_secret).hex()}"


def key_path() -> Path:
    """Return the path of the key file."""
    return Path.home() / ".replay_tutorial_key"


def make_key() -> Keys:
    """Return the server key, after creating the key file if there is no key."""
    location = key_path()
    if KEY_VARIABLE not in os.environ and not os.path.lexists(location):
        # so that no process reads a partial key
        temporary = location.with_name(f"{location.name}.{secrets.token_hex(8)}")
        try:
            with open(
                os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
            ) as file:
                file.write(f"server-{secrets.token_hex(64)}")
            with suppress(FileExistsError):  # another server created it in the meantime
                os.link(temporary, location)
        finally:
            temporary.unlink(missing_ok=True)
    keys = read_key()
    if keys.server_secret is None:
        raise ValueError("The key is a client key; a server needs the server key, which starts with server-.")
    return keys


def read_key() -> Keys:
    """Return the keys from the environment variable or from the key file.

    Raises:
        OSError: If there is no key.
        ValueError: If it is not a key, or other users can read the file.
    """
    text, source = os.environ.get(KEY_VARIABLE), f"the variable {KEY_VARIABLE}"
    if text is None:
        source = f"the file {(location := key_path())}"
        if location.is_dir() or (location.is_symlink() and not location.exists()):
            problem = "a directory, not a file"
            if not location.exists():
                problem = f"a symbolic link to {os.readlink(location)}, which does not exist"
            raise ValueError(f"The key is {problem}. Remove {location}; the next server creates a new key.")
        if not location.exists():
            raise FileNotFoundError(
                f"There is no key: {KEY_VARIABLE} is not set, and {location} does not exist. Start the "
                "server first, as the same user; it creates the key. On another host, set the variable to "
                "the key that the server prints for its clients."
            )
        if location.stat().st_mode & 0o077 and sys.platform != "win32":
            raise ValueError(f"Other users can read the key in {location}. Run chmod 600 on this file.")
        text = location.read_text("ascii", "replace")
    if not (match := KEY.fullmatch(text.strip())):
        raise ValueError(
            f"The key in {source} must be server- or client- and 128 hexadecimal digits. Copy it again, or "
            "remove it: the next server creates a new one."
        )
    first, client_secret = (z85.encode(bytes.fromhex(part)) for part in match.groups()[1:])
    is_server = match[1] == "server"
    server_public = zmq.curve_public(first) if is_server else first
    return Keys(server_public, zmq.curve_public(client_secret), client_secret, first if is_server else None)
