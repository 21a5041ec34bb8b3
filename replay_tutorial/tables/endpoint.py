"""The endpoint: where processes of this machine reach a server.

Each connection has a thread, which carries out one call after the other, as a thread of this process would.
So a call that waits holds nobody else up. While it waits, it looks whether its client is still there: what a
dead one asked for is not done, and what it held is given back (`sessions`).

A connection that proves not to know the key, or sends what is no call, is answered and closed; it can hurt
itself only.

Left out: the other end (`remote_server`).
"""

import logging
import secrets
import threading
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from typing import Self

from replay_tutorial.tables.call_forms import (
    ERRORS,
    Said,
    expect,
    hear_limiter,
    hear_message,
    integers,
    read_integers,
    say_error,
    say_fields,
    say_infos,
    say_sample,
)
from replay_tutorial.tables.framing import HELLO, MOST_BYTES, BadFrame, Frame, pack
from replay_tutorial.tables.local_socket import Wire, dial, listen, stop_listening
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.sessions import Forgotten, Sessions, Visit
from replay_tutorial.tables.waiting import Forsaken, caller_is_there

MOST_CONNECTIONS = 1000
NAP = 0.2  # seconds
PATIENCE = 1.0  # seconds that the end waits for each answer that is on its way

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

    def __init__(self, server: Server, address: str, key: bytes, *, lease: float = 10.0) -> None:
        """Begin to listen.

        Args:
            server: The server. It stays usable in this process, and open when the endpoint closes.
            address: The path of a socket, or 127.0.0.1:PORT; port 0 is any free one.
            key: What clients must know, such as `make_key` returns.
            lease: Seconds for which a client whose connection was cut can come back. Then its writers are
                closed.

        Raises:
            OSError: If it can't listen there.
            ValueError: If the address is none of this machine.
        """
        self._server = server
        self._key = key
        self._instance = secrets.randbits(63)
        self._sessions = Sessions(server, lease)
        self._visits: dict[Wire, Visit] = {}
        self._threads: dict[Wire, threading.Thread] = {}
        self._closed = False
        self._listening, self.address = listen(address)
        self._listening.settimeout(NAP)  # how soon it hears that it is closed
        self._listener = threading.Thread(target=self._listen, name="tables listen", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while not self._closed:
            try:
                connected, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError as error:
                log.warning("Can't take a connection: %s", error)  # too many open files, for example
                time.sleep(NAP)
                continue
            if self._closed:
                connected.close()
                break
            if len(self._threads) >= MOST_CONNECTIONS:
                log.warning("Refused a connection: there are %s already.", len(self._threads))
                connected.close()
                continue
            wire = Wire(connected)
            thread = threading.Thread(target=self._receive, args=(wire,), name="tables client", daemon=True)
            self._threads[wire] = thread
            thread.start()

    def _receive(self, wire: Wire) -> None:
        """Carry out all calls of a connection."""
        visit, goodbye = None, False
        try:
            wire.prove(self._key, first=True)
            visit = self._greet(wire)
            if visit is not None:
                self._visits[wire] = visit
                caller_is_there.set(wire.is_there)
                goodbye = self._carry_out_calls(visit)
        except AuthenticationError as error:
            log.warning("Refused a connection that does not know the key: %s", error)
        except (OSError, EOFError, Forsaken):
            pass  # the client has gone
        finally:
            self._visits.pop(wire, None)
            wire.cut()
            if visit is not None:
                self._sessions.leave(visit, for_good=goodbye)
            wire.close()
            del self._threads[wire]

    def _greet(self, wire: Wire) -> Visit | None:
        """Hear who the client is, and say what there is; None if it can't stay."""
        try:
            frame = wire.receive(MOST_BYTES)
            expect(frame.form == HELLO, f"it says {frame.form!r:.80}, not {HELLO}")
            session, channel, returning, instance = read_integers(frame.arrays, 0, 4)[:4]
            if instance not in (0, self._instance):
                raise Forgotten("The server was started again; what it held is gone.")
            visit = self._sessions.enter(session, channel, bool(returning), wire)
        except (BadFrame, Forgotten) as error:
            wire.send(pack(0, *say_error(error)))
            return None
        wire.send(pack(0, ("welcome", say_fields(self._server.fields)), [integers(self._instance)]))
        return visit

    def _carry_out_calls(self, visit: Visit) -> bool:
        """Carry out calls; return whether the client said goodbye at the end."""
        wire, channel = visit.wire, visit.channel
        while True:
            try:
                frame = wire.receive(MOST_BYTES)
                if frame.form == ("goodbye",):
                    return True
                if frame.form == ("close_writer",):  # nobody waits for an answer
                    self._close_writer(read_integers(frame.arrays, 0, 1)[0], visit)
                    continue
            except BadFrame as error:
                wire.send(pack(0, *say_error(error)))
                return False
            with channel.lock:
                if frame.number > channel.number:
                    channel.answer = self._answer(frame, visit)
                    channel.number = frame.number
                wire.send(channel.answer)

    def _answer(self, frame: Frame, visit: Visit) -> bytes:
        """Carry out a call; return the answer."""
        try:
            return pack(frame.number, *self._carry_out(frame, visit))
        except tuple(ERRORS.values()) as error:
            return pack(frame.number, *say_error(error))

    def _carry_out(self, frame: Frame, visit: Visit) -> Said:
        server, arrays = self._server, frame.arrays
        match frame.form:
            case ("insert", *_):
                message = hear_message(frame.form, arrays)
                self._sessions.note(message.writer, visit)
                keys = server.insert(message, frame.timeout)
                return ("keys",), [integers(*keys)]
            case ("sample", str(table)):
                count = read_integers(arrays, 0, 1)[0]
                return say_sample(server.sample(table, count, frame.timeout))
            case ("mutate_priorities", str(table)):
                expect(len(arrays) == 3, "keys, priorities or deletes are missing")
                return ("stale",), [
                    integers(server.mutate_priorities(table, (arrays[0], arrays[1]), arrays[2]))
                ]
            case ("reset", str(table)):
                server.reset(table)
            case ("replace_limiter", str(table), limiter):
                server.replace_limiter(table, hear_limiter(limiter))
            case ("items", str(table)):
                return say_sample(server.items(table))
            case ("save", str(path)):
                server.save(path)
            case ("load", str(path)):
                server.load(path)
            case ("info",):
                return say_infos(server.info())
            case _:
                raise BadFrame(f"This is no call of a client: {frame.form!r:.80}.")
        return ("done",), ()

    def _close_writer(self, writer: int, visit: Visit) -> None:
        self._server.close_writer(writer)
        visit.session.writers.discard(writer)

    def close(self) -> None:
        """End all connections. Answers that are on their way get a second; calls that wait are given up."""
        self._closed = True
        with suppress(OSError):
            dial(self.address).close()  # it hears at once
        self._listener.join()
        stop_listening(self._listening, self.address)
        self._sessions.end()
        deadline = time.monotonic() + PATIENCE
        for wire, visit in list(self._visits.items()):
            idle = visit.channel.lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
            wire.cut()
            if idle:
                visit.channel.lock.release()
        for wire, thread in list(self._threads.items()):
            wire.cut()
            thread.join(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
