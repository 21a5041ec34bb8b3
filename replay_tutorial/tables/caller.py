"""A caller: one connection to a server in another process, made again when it was cut.

A call is numbered, so that one whose answer was lost can be sent again on a new connection: the server knows
the number, and answers as before (`sessions`).

Left out: which calls there are (`remote_server`).
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError

from replay_tutorial.tables.call_forms import hear_error, integers
from replay_tutorial.tables.framing import HELLO, MOST_BYTES, Array, Form, Frame, pack
from replay_tutorial.tables.local_socket import Wire, dial
from replay_tutorial.tables.waiting import LOOK, Forsaken, caller_is_there

SEARCH = 0.5  # seconds for which a server that was there is looked for
PAUSE = 0.02
MOST_CUTS = 10  # of one call


class ServerLost(ConnectionError):
    """There is no server, or not the one that was there before. What it held is gone."""


class Caller:
    """A connection, for one thread at a time.

    Attributes:
        instance: The number of the server that it was connected to; 0 before that.
    """

    def __init__(self, address: str, key: bytes, session: int, channel: int, instance: int) -> None:
        """Connect later, at the first call.

        Args:
            address: Where the server listens.
            key: What it and its clients know.
            session: The number of this process at the server.
            channel: The number of this caller.
            instance: The only server that will do; 0 for any.
        """
        self._address = address
        self._key = key
        self._session = session
        self._channel = channel
        self.instance = instance
        self._wire: Wire | None = None
        self._been_there = False
        self._calls = 0
        self._closed_writers: list[int] = []  # of which it isn't known whether the server has heard

    def connect(self, patience: float) -> tuple[Wire, Frame]:
        """Connect, and say who it is.

        Args:
            patience: Seconds for which to look for a server.

        Returns:
            The connection, and what the server says of itself.

        Raises:
            AuthenticationError: If the server has another key.
            ServerLost: If there is no server, or another one, or it has forgotten this caller.
        """
        hello = integers(self._session, self._channel, self._been_there, self.instance)
        deadline = time.monotonic() + patience
        while True:
            try:
                wire = Wire(dial(self._address))
                try:
                    wire.prove(self._key, first=False)
                    wire.send(pack(0, HELLO, [hello]))
                    frame = wire.receive()
                    break
                except BaseException:
                    wire.close()
                    raise
            except AuthenticationError as error:
                raise AuthenticationError(
                    f"The server at {self._address} has another key: {error}."
                ) from None
            except (OSError, EOFError) as error:
                if time.monotonic() >= deadline:
                    raise ServerLost(
                        f"There is no server at {self._address} ({error!r}). Start it, and make a new handle."
                    ) from None
                time.sleep(PAUSE)
        if frame.form[0] == "error":
            wire.close()
            raise ServerLost(
                f"{hear_error(frame.form)} Make a new handle on {self._address}, and new writers."
            )
        self._wire, self._been_there, self.instance = wire, True, int(frame.arrays[0][0])
        for writer in self._closed_writers:
            wire.send(pack(0, ("close_writer",), [integers(writer)]))
        return wire, frame

    def call(self, form: Form, arrays: Sequence[Array] = (), deadline: float | None = None) -> Frame:
        """Make a call, and wait for its answer, also an error.

        Raises:
            Forsaken: If `caller_is_there` says so.
            ServerLost: If there is no server any more, or another one.
            ValueError: If the call is too long.
        """
        size = sum([array.nbytes for array in arrays])
        if size > MOST_BYTES - (1 << 21):
            raise ValueError(
                f"A call of {size:,} bytes is too long; there may be {MOST_BYTES:,}. Send less at once."
            )
        self._calls += 1
        is_wanted = caller_is_there.get()
        for _ in range(MOST_CUTS):
            wire = self._wire or self.connect(SEARCH)[0]
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                wire.send(pack(self._calls, form, arrays, left))
                while is_wanted is not None and not wire.has_word(LOOK):
                    if not is_wanted():
                        raise Forsaken
                frame = wire.receive()
            except (OSError, EOFError):
                self.drop()
                continue
            self._closed_writers.clear()
            return frame
        raise ServerLost(f"The connection to {self._address} was cut {MOST_CUTS} times in one call.")

    def close_writer(self, writer: int) -> None:
        """Let the server forget a writer, without waiting for it; if there is none any more, it has."""
        self._closed_writers.append(writer)
        if self._wire is not None:
            try:
                self._wire.send(pack(0, ("close_writer",), [integers(writer)]))
            except OSError:
                self.drop()

    def drop(self) -> None:
        """Cut the connection; the next call makes another one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def close(self) -> None:
        """Say goodbye: the server need not wait whether this caller comes back."""
        if self._wire is not None:
            with suppress(OSError):  # there is nobody to hear it
                self._wire.send(pack(0, ("goodbye",), ()))
            self.drop()
