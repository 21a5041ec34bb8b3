"""Sessions: what the server holds for each client process, and until when.

A client has a *session*, and in it a *channel* for each call that it makes at the same time. A channel's
calls are numbered, and the last answer is kept until the next call comes. So a client whose connection was
cut makes a new one, sends the call again, and gets the answer that was lost: nothing is done twice.

    connection cut ─▶ lease ─▶ channel forgotten ─▶ last channel? ─▶ the session's writers are closed
                        └─ the client came back: as if nothing had happened

Left out: sockets (`endpoint`).
"""

from threading import Condition, Lock
from typing import NamedTuple

from replay_tutorial.tables.local_socket import Wire
from replay_tutorial.tables.message import UnknownWriter
from replay_tutorial.tables.server import Server


class Forgotten(RuntimeError):
    """The client was away for too long."""


class Channel:
    """Calls of a client, one after the other.

    Attributes:
        lock: Held by whoever carries out a call; it may be on a connection that was cut meanwhile.
        number: Of the last call that was answered.
        answer: What it was answered.
        wire: The connection; None when it is forgotten.
    """

    def __init__(self, wire: Wire) -> None:
        """Begin with no call."""
        self.lock = Lock()
        self.number = 0
        self.answer = b""
        self.wire: Wire | None = wire


class Session:
    """What is held for a client process.

    Attributes:
        channels: By number.
        writers: Those that it may still send messages for.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.channels: dict[int, Channel] = {}
        self.writers = set[int]()


class Visit(NamedTuple):
    """A channel on one of its connections, after each other.

    Attributes:
        name: The session's number, and the channel's.
        session: The session.
        channel: The channel.
        wire: The connection.
    """

    name: tuple[int, int]
    session: Session
    channel: Channel
    wire: Wire


class Sessions:
    """All sessions."""

    def __init__(self, server: Server, lease: float) -> None:
        """Begin with none.

        Args:
            server: The server.
            lease: Seconds for which a client that has gone can come back.
        """
        self._server = server
        self._lease = lease
        self._changed = Condition()
        self._sessions: dict[int, Session] = {}
        self._ending = False
        self._dead = set[int]()  # writers that were closed because their client had gone

    def enter(self, session: int, channel: int, returning: bool, wire: Wire) -> Visit:
        """Let a connection go on with a channel, or begin one.

        Raises:
            Forgotten: If it is returning, but has been forgotten.
        """
        with self._changed:
            known = self._sessions.get(session)
            if returning and (known is None or channel not in known.channels):
                raise Forgotten(f"The client was away for more than {self._lease:g} s, and was forgotten.")
            known = self._sessions.setdefault(session, Session())
            calls = known.channels.setdefault(channel, Channel(wire))
            calls.wire = wire
            self._changed.notify_all()
            return Visit((session, channel), known, calls, wire)

    def leave(self, visit: Visit, *, for_good: bool) -> None:
        """End a connection: wait whether the client comes back, unless it said goodbye; then forget it."""
        session, channel = visit.session, visit.channel
        with self._changed:
            if not for_good:
                self._changed.wait_for(lambda: self._ending or channel.wire is not visit.wire, self._lease)
            if channel.wire is not visit.wire:
                return  # it came back
            channel.wire = None
            del session.channels[visit.name[1]]
            if session.channels:
                return
            del self._sessions[visit.name[0]]
            self._dead |= session.writers
        for writer in session.writers:
            self._server.close_writer(writer)

    def note(self, writer: int, visit: Visit) -> None:
        """Note that a client sends a message for a writer.

        Raises:
            UnknownWriter: If it was closed. Its first message, sent again, must not begin a new one.
        """
        if writer in self._dead:
            raise UnknownWriter(
                f"The writer {writer} was closed: its client was away for more than {self._lease:g} s. Begin "
                "with a new writer."
            )
        visit.session.writers.add(writer)

    def end(self) -> None:
        """Let nobody come back."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
