"""What the tests of other processes have in common: small servers, and a relay that cuts connections."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from interrupts import run_traced

pytest.importorskip("msgspec", reason="needs the extra `tables`")

from replay_tutorial.tables import (
    Endpoint,
    Fifo,
    Hook,
    MinSize,
    Prioritized,
    RemoteServer,
    Sample,
    Server,
    Table,
    TrajectoryWriter,
    Uniform,
)
from replay_tutorial.tables.core.message import ColumnSlice, Message, NewItems, Part
from replay_tutorial.tables.core.writer_state import UnknownWriter, WriterState
from replay_tutorial.tables.remote import codec

KEY = "server-" + "0123456789abcdef" * 8
COLUMNS = {"obs": {"shape": 3}, "action": {"dtype": "int64"}}


def table(name: str = "t", **options: Any) -> Table:
    """A small table whose items may be sampled at once; the options say what is different."""
    usual = {"sampler": Uniform(), "remover": Fifo(), "max_size": 9, "rate_limiter": MinSize(1)}
    return Table(name, **{**usual, **options})


def hook_of(**events: Any) -> Hook:
    """A hook that answers these events with these functions."""
    hook = Hook()
    vars(hook).update(events)
    return hook


def small_server(capacity: int = 200) -> Server:
    """A prioritized table of 20 items, and a queue of 4."""
    replay = table("replay", sampler=Prioritized(0.7), max_size=20)
    return Server([replay, Table.queue("queue", 4)], COLUMNS, capacity, seed=1)


def write(
    writer: TrajectoryWriter, step: dict[str, Any], table: str = "t", length: int = 0, **options: Any
) -> int | None:
    """Append a step, and make an item of its values; or of this number of the newest steps."""
    writer.append(step)
    steps: Any = slice(-length, None) if length else -1
    parts = {name: writer.history[name][steps] for name in step}
    return writer.create_item(table, trajectory=parts, **{"priority": 1.0, **options})


PAIR = (Part("pair", "obs", 2), Part("action", "action", 1, True))


class Sent(NamedTuple):
    """A message as it is sent: equal ones may come again, and one that was refused has never been."""

    writer: int
    sequence: int  # from 0
    runs: Sequence[ColumnSlice]
    items: Sequence[NewItems]
    keep_from: int


def cells(count: int) -> pytest.MarkDecorator:
    """Run a test with a server of this number of cells a column `there`."""
    return pytest.mark.parametrize("there", [count], indirect=True)


WRITERS: WeakKeyDictionary[Server, dict[int, WriterState]] = WeakKeyDictionary()


def send(server: Server | RemoteServer, sent: Sent, timeout: float | None = None) -> list[int]:
    """Insert a message, or an equal one again, through a socket or without one."""
    if isinstance(server, RemoteServer):
        return server._call(call_of(sent, timeout))
    known = WRITERS.setdefault(server, {})
    if sent.writer not in known and sent.sequence:
        raise UnknownWriter("There is no such writer.")
    writer = known.setdefault(sent.writer, server._open_writer())
    if (message := writer.message) is None or message.sequence != sent.sequence + 1:
        writer.check_open()
        for run in sent.runs:
            writer.check_slice(run)
        message = Message(sent.runs, sent.items, sent.keep_from, sent.sequence + 1)
    return server._insert(writer, message, timeout)


def call_of(sent: Sent, timeout: float | None = None) -> codec.Insert:
    """The call that inserts a message."""
    runs, items = list(sent.runs), list(sent.items)
    return codec.Insert(sent.writer, sent.sequence + 1, runs, items, sent.keep_from, timeout)


def forget(server: Server | RemoteServer, writer: int) -> None:
    """Close the writer of this number."""
    if isinstance(server, RemoteServer):
        server._send_close(writer)
    elif (known := WRITERS.setdefault(server, {}).pop(writer, None)) is not None:
        server._close_writer(known)


def message(writer: int, sequence: int, table: str = "replay", items: int = 1) -> Sent:
    """Three steps, and items of two of them; step 3 · sequence - 1 is kept for the next message."""
    first = 3 * sequence
    values = np.arange(first, first + 3)
    runs = [
        ColumnSlice("obs", first, np.repeat(values[:, None], 3, 1).astype(np.float32)),
        ColumnSlice("action", first, values),
    ]
    steps = np.tile([[max(first - 1, 0), first + 1, first]], (items, 1))
    return Sent(writer, sequence, runs, [NewItems(table, np.full(items, 2.0), PAIR, steps)], first + 2)


def plain(value: Any) -> Any:
    """Anything that a call returns, so that == compares it bit for bit."""
    if isinstance(value, np.ndarray):
        native = np.ascontiguousarray(value, value.dtype.newbyteorder("="))
        return native.dtype.str, native.shape, native.tobytes()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value).__name__, [plain(one) for one in value]
    if isinstance(value, Sample):  # the order of a set is not the same in two processes
        parts = value.info, value.data, value.lengths, sorted(value.squeezed)
        return type(value).__name__, [plain(part) for part in parts]
    return type(value).__name__, repr(value)


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Look each 10 ms. The looks are counted, not the time: a test that the machine stops does not look."""
    for _ in range(round(100 * seconds)):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {seconds} s")


def drawing_threads() -> list[threading.Thread]:
    """The threads of datasets."""
    return [thread for thread in threading.enumerate() if thread.name == "dataset"]


def lines_of(
    call: Callable[[], object], stop_at: int = -1, modules: Sequence[str] = ("replay_tutorial.tables",)
) -> int:
    """Make a call, and count the lines of these modules that it runs; press Ctrl-C before line `stop_at`."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if not frame.f_globals["__name__"].startswith(tuple(modules)):
            return None
        if frame.f_code.co_name == "__del__":  # Python prints what it raises, and goes on
            return None
        if event == "line":
            lines += 1
            if lines == stop_at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    run_traced(call, trace)
    return lines


def free_address(folder: Path, name: str = "tables.sock") -> str:
    """An address that nobody listens at."""
    path = str(folder / name)
    return path if os.name == "posix" and len(path) < 90 else "127.0.0.1:0"


@contextlib.contextmanager
def serving(server: Server, folder: Path) -> Iterator[Endpoint]:
    """An endpoint in this process."""
    with Endpoint(server, free_address(folder)) as endpoint:
        yield endpoint


class Relay:
    """Stands between clients and a server, and cuts a connection when it has passed on so many bytes."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        self.passed = 0
        self.cut_at: int | None = None
        self.refuses = False  # new connections
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._closed = False
        self._accepting = threading.Thread(target=self._run, daemon=True)
        self._accepting.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._ends.append(near)
                if self._closed:
                    return
                if self.refuses:
                    near.close()
                    continue
                far = socket.create_connection(self.target)
                self._ends.append(far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    if self.cut_at is not None and self.passed + len(data) > self.cut_at:
                        data = data[: self.cut_at - self.passed]
                        self.passed, self.cut_at = 0, None
                        sink.sendall(data)
                        break
                    self.passed += len(data)
                    sink.sendall(data)
        self.cut(source, sink)

    @staticmethod
    def cut(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut_all(self) -> None:
        """Cut all connections; new ones are let through."""
        self.cut(*self._ends)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            socket.create_connection(self._listening.getsockname()).close()
        self._accepting.join()  # a socket in which a thread waits would go on listening
        self.cut_all()
        for end in (self._listening, *self._ends):
            end.close()
