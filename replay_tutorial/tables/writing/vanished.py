"""Writers that were dropped without `close`: the server must forget what only they could still name.

A writer may vanish in any thread at any moment, when the garbage collector comes; also in one that holds the
server's lock. So only its number is put down, and whoever next sends to the same server closes it.
"""

import os
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

from replay_tutorial.tables.remote.handle import RemoteServer
from replay_tutorial.tables.server import Server

VANISHED: weakref.WeakKeyDictionary[Any, deque[int]] = weakref.WeakKeyDictionary()  # by server


def close_when_vanished(
    holder: object, server: Server | RemoteServer, number: int
) -> "weakref.finalize[..., Any]":
    """Let a writer be closed when its holder has vanished, unless what this returns is detached before."""
    return weakref.finalize(holder, vanish, VANISHED.setdefault(server, deque()), number, os.getpid())


def vanish(vanished: deque[int], number: int, process: int) -> None:
    """Note that nobody holds a writer any more; if it is a forked process that says so, its parent may."""
    if os.getpid() == process:
        vanished.append(number)


def close_vanished(server: Server | RemoteServer) -> None:
    """Close the writers of a server that nobody holds any more."""
    vanished = VANISHED.get(server, ())
    while vanished:
        with suppress(IndexError):  # another thread may have been faster
            server.close_writer(vanished.popleft())
