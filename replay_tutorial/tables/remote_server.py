"""A server in another process of this machine, called as if it were in this one.

A thread that calls takes a connection, or makes one, and puts it back when it has its answer. So threads wait
for the server, and not for each other. If there is no server any more, all hear of it within a second.

Left out: starting one (`python -m replay_tutorial tables serve`).
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Self

from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.tables.call_forms import (
    hear_error,
    hear_fields,
    hear_infos,
    hear_sample,
    integers,
    say_limiter,
    say_message,
)
from replay_tutorial.tables.caller import Caller
from replay_tutorial.tables.framing import Array, Form, Frame
from replay_tutorial.tables.intake import as_floats, as_keys
from replay_tutorial.tables.key_file import read_key
from replay_tutorial.tables.message import Message
from replay_tutorial.tables.rate_limiters import RateLimiter
from replay_tutorial.tables.sampled import Sample, TableInfo
from replay_tutorial.tables.waiting import Closed, deadline_of


class RemoteServer:
    """A handle on a server in another process, with the methods of `Server`; see there.

    Any number of threads may share one. It can be handed to another process, which gets one of its own. Its
    calls raise what the server raises, and `ServerLost` if the server has ended.

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
        self.address = address
        self._key = read_key()
        self._instance = 0
        self._closed = False
        self._begin()
        caller = self._new_caller()
        welcome = caller.connect(timeout)[1]
        self.fields = hear_fields(welcome.form[1])
        self._instance = caller.instance
        self._idle.append(caller)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteServer, (self.address,)

    def _begin(self) -> None:
        """Be a client that the server has not heard of, as each process is."""
        self._process = os.getpid()
        self._session = secrets.randbits(63)
        self._idle: list[Caller] = []

    def _new_caller(self) -> Caller:
        return Caller(self.address, self._key, self._session, secrets.randbits(63), self._instance)

    def _take(self) -> Caller:
        """Take a caller that nobody uses."""
        if self._closed:
            raise Closed("This handle was closed. Make another one.")
        if self._process != os.getpid():
            self._begin()  # in a forked process: the connections are the parent's
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_caller()

    def _put_back(self, caller: Caller) -> None:
        self._idle.append(caller)
        if self._closed:
            self.close()

    def _call(self, form: Form, arrays: Sequence[Array] = (), deadline: float | None = None) -> Frame:
        caller = self._take()
        try:
            frame = caller.call(form, arrays, deadline)
        except BaseException:
            caller.drop()  # an answer may still come, to a call that nobody waits for any more
            raise
        self._put_back(caller)
        if frame.form[0] == "error":
            raise hear_error(frame.form)
        return frame

    def insert(self, message: Message, timeout: float | None = None) -> list[int]:
        """Store a message's values, and insert its items."""
        deadline = deadline_of(timeout)
        return self._call(*say_message(message), deadline).arrays[0].tolist()

    def close_writer(self, writer: int) -> None:
        """Forget a writer, soon."""
        if not self._closed:
            caller = self._take()
            caller.close_writer(writer)
            self._put_back(caller)

    def sample(self, table: str, batch_size: int, timeout: float | None = None) -> Sample:
        """Draw items."""
        check_batch_size(batch_size)
        deadline = deadline_of(timeout)
        return heard_sample(self._call(("sample", table), [integers(batch_size)], deadline))

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | tuple[Any, Any] = ((), ()), deletes: Any = ()
    ) -> int:
        """Delete items, then give others new priorities."""
        pairs = (list(updates), list(updates.values())) if isinstance(updates, Mapping) else updates
        keys, deleted = as_keys(pairs[0]), as_keys(deletes)
        arrays = [keys, as_floats(pairs[1], len(keys)), deleted]
        return int(self._call(("mutate_priorities", table), arrays).arrays[0][0])

    def reset(self, table: str) -> None:
        """Delete all items of a table."""
        self._call(("reset", table))

    def replace_limiter(self, table: str, limiter: RateLimiter) -> None:
        """Let another limiter decide."""
        self._call(("replace_limiter", table, say_limiter(limiter)))

    def items(self, table: str) -> Sample:
        """Copy all items of a table."""
        return heard_sample(self._call(("items", table)))

    def info(self) -> dict[str, TableInfo]:
        """Describe all tables at one moment."""
        return hear_infos(self._call(("info",)).form)

    def save(self, path: str | PathLike[str]) -> None:
        """Let the server write all tables to one file; a relative path is of this process's folder."""
        self._call(("save", os.path.abspath(path)))

    def load(self, path: str | PathLike[str]) -> None:
        """Let the server replace everything by what was saved."""
        self._call(("load", os.path.abspath(path)))

    def close(self) -> None:
        """Close the handle, and what its writers hold; the server goes on."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def heard_sample(frame: Frame) -> Sample:
    """Return the sample that a frame says."""
    return hear_sample(frame.form, frame.arrays)
