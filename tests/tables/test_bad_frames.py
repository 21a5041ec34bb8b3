"""What is no call is refused, and hurts nobody else."""

import contextlib
import json
import os
import socket
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import astuple, replace
from functools import partial
from multiprocessing import AuthenticationError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from served import (
    KEY,
    Sent,
    cells,
    free_address,
    message,
    plain,
    send,
    small_server,
    stranger_at,
    until,
    words_of,
)

from replay_tutorial.tables import Client, Endpoint, RemoteServer
from replay_tutorial.tables.core.message import ColumnSlice, NewItems, Part
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.results import Sample, SampleInfo, TableInfo
from replay_tutorial.tables.remote import local_socket
from replay_tutorial.tables.remote.codec import (
    ARGUMENT_TYPES,
    GREETING,
    HEAD,
    HELLO,
    RESULT_TYPES,
    pack,
    unpack,
)
from replay_tutorial.tables.remote.local_socket import (
    Connection,
    connect,
    key_path,
    listen,
    make_key,
    parse_address,
    read_key,
    stop_listening,
)

needs_paths = pytest.mark.skipif(os.name != "posix", reason="there are no sockets in the file system")


def framed(words: Any, body: bytes = b"") -> bytes:
    """A frame with any text."""
    text = words if isinstance(words, bytes) else json.dumps(words).encode()
    text += b" " * (-len(text) % 8)
    return HEAD.pack(len(text), len(text) + len(body)) + text + body


RUN = ["obs", 0, 0]
ITEM = ["replay", 0, [["obs", "obs", 1, True]], 0]
MESSAGE = ["insert", [8, 1, [RUN], [ITEM], 1, 0.0], [["f", [1, 3]], ["d", [1]], ["q", [1, 1]]]]
ARRAYS = bytes(16) + np.array([1.0]).tobytes() + bytes(8)  # values, priorities, steps


def altered(place: list[int], value: Any, arrays: bytes = ARRAYS) -> bytes:
    """The good frame with one of its words replaced."""
    words = json.loads(json.dumps(MESSAGE))
    part = words
    for index in place[:-1]:
        part = part[index]
    part[place[-1]] = value
    return framed(words, arrays)


BAD = {
    "no JSON": framed(b"no JSON at all  "),
    "no UTF-8": framed(b"\xff\xfe\xfd      "),
    "nested without end": framed(b"[" * 50_000),
    "an argument that is nested deeply": framed(b'["reset",' + b"[" * 800 + b"]" * 800 + b",[]]"),
    "no number": altered([1, 0], float("nan")),
    "a number of more than 64 bits": altered([1, 0], 1 << 63),
    "a number of thousands of digits": altered([1, 0], 10**4000),
    "a number with a fraction": altered([1, 1], 0.0),
    "truth for a number": altered([1, 1], False),
    "a number for a truth": altered([1, 3, 0, 2, 0, 3], 1),
    "a number that is a word": altered([1, 0], "8"),
    "a wait of a word": framed(["sample", ["replay", 1, "0", False], []]),
    "an object": framed({"insert": 1, "reset": 2, "save": 3}),
    "a number as a frame": framed(7),
    "nothing": framed([]),
    "names that are lists": framed([["call"], ["info"], []]),
    "a call of another name": framed(["__init__", ["replay"], []]),
    "a call of what the server keeps to itself": framed(["close", [], []]),
    "an answer": framed(["answer", [None], []]),
    "a second hello": framed([HELLO, ["", ""], []]),
    "Python objects": altered([2, 0], ["O", [1]]),
    "texts": altered([2, 0], ["U", [1]]),
    "a dtype that is a list": altered([2, 0], [["f"], [1, 3]]),
    "a negative length": altered([2, 0], ["f", [-1, 3]]),
    "a length of a half": altered([2, 0], ["f", [0.5, 3]]),
    "a length of truth": altered([2, 0], ["f", [True, 3]]),
    "a huge array": altered([2, 0], ["f", [1 << 40, 1 << 40]]),
    "a huge array of nothing": altered([2, 0], ["f", [0, 1 << 62, 1 << 62]]),
    "shapes of many axes": altered([2, 0], ["f", [9] * 300_000]),
    "a shape that is no list": altered([2, 0], ["f", 3]),
    "a length of more than 64 bits": altered([2, 0], ["f", [0, 1 << 70]]),
    "values without steps": altered([2, 0], ["f", []]),
    "more bytes than arrays": framed(["info", [], []], bytes(8)),
    "fewer bytes than arrays": altered([2, 0], ["f", [2, 3]]),
    "fewer arrays than their places": altered([2], MESSAGE[2][:2], ARRAYS[:24]),
    "a text longer than the frame": HEAD.pack(1 << 30, 8) + bytes(8),
    "a text of half a number": HEAD.pack(4, 8) + bytes(8),
    "a text that is too long": framed(b" " * (1 << 20) + b'["info", [], []]'),
    "a frame of exabytes": HEAD.pack(8, 1 << 60),
    "too many arguments": framed(["info", [1], []]),
    "too few fields": framed(["insert", MESSAGE[1][1:], MESSAGE[2]], ARRAYS),
    "a message that names its fields": framed(["insert", {"writer": 8}, []]),
    "columns that are no list": altered([1, 2], "obs"),
    "a table that is no word": altered([1, 3, 0, 0], ["replay"]),
    "no message": framed(["insert", [None] * 6, []]),
    "an unknown limiter": framed(["replace_limiter", ["replay", ["object", 1, 1, 1, 1]], []]),
    "a limiter of huge numbers": framed(
        ["replace_limiter", ["replay", ["RateLimiter", 10**400, 1, 1, 1]], []]
    ),
}


def connected(address: str) -> Connection:
    wire = connect(address)
    wire.authenticate(KEY.encode(), is_server=False)
    wire.send(pack(HELLO, ["", ""]))
    assert unpack(*wire.receive(), RESULT_TYPES[HELLO])[0] == "answer"
    return wire


def test_a_frame_that_is_no_call_is_answered_with_an_error(there: SimpleNamespace) -> None:
    before = there.server.info()
    for what, frame in BAD.items():
        with closing(connected(there.endpoint.address)) as wire:
            wire.send(frame)
            answer = unpack(*wire.receive(), RESULT_TYPES["info"])
        assert (answer[0], answer[1][0]) == ("error", "BadFrame"), f"{what}: {answer}"
    assert there.server.info() == before
    with closing(connected(there.endpoint.address)) as wire:
        wire.send(framed(MESSAGE, ARRAYS))
        good = unpack(*wire.receive(), RESULT_TYPES["insert"])
    assert good == ("answer", ([0],)), "the frame that the bad ones were made from is good"


def test_a_connection_begins_with_a_greeting_of_this_version(endpoint: Endpoint, key: bytes) -> None:
    for name, values in (("info", []), ("hello 2", ["", ""]), (HELLO, ["", "of another"]), (HELLO, [])):
        with closing(connect(endpoint.address)) as wire:
            wire.authenticate(key, is_server=False)
            wire.send(framed([name, values, []]))
            outcome, (kind, _) = unpack(*wire.receive(), RESULT_TYPES["info"])
        assert (outcome, kind) == ("error", "Closed" if values[1:] == ["of another"] else "BadFrame")
    until(lambda: not endpoint._threads)


@cells(2000)
def test_a_frame_with_flipped_bytes_leaves_the_server_alive(there: SimpleNamespace) -> None:
    rng = np.random.default_rng(5)
    good = np.frombuffer(pack("insert", words_of(message(5, 0), 0.0)), np.uint8)
    for _ in range(150):
        bad = good.copy()
        bad[rng.integers(len(bad), size=rng.integers(1, 4))] = rng.integers(256, dtype=np.uint8)
        with closing(connected(there.endpoint.address)) as wire:
            wire.send(bad.tobytes())
    Client(there.server).insert({"obs": np.zeros(3)}, {"queue": 1.0})
    assert there.server.sample("queue", 1).info.keys.tolist() == [0]


def test_an_error_longer_than_a_text_may_be_is_cut(there: SimpleNamespace) -> None:
    with pytest.raises(KeyError, match="There is no table 'xxx") as refused:
        there.server.reset("x" * 1_048_000)
    assert len(str(refused.value)) < 2100
    assert len(there.endpoint._threads) == 2, "the connection goes on"


def test_who_does_not_know_the_key_is_not_listened_to(there: SimpleNamespace) -> None:
    with stranger_at(there.endpoint.address):
        for said in (b"", b"x", bytes(100), b"\xff" * 1000, pack("info", ())):
            with stranger_at(there.endpoint.address) as stranger:
                stranger.settimeout(10)
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                heard = b""
                with contextlib.suppress(ConnectionResetError):
                    while more := stranger.recv(1 << 12):
                        heard += more
                assert HELLO.encode() not in heard
        with RemoteServer(there.endpoint.address) as server:
            assert server.info()["replay"].size == 0, "while one says nothing"


def test_a_stranger_that_says_a_byte_now_and_then_has_one_deadline(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_socket, "HANDSHAKE_TIMEOUT", 0.1)
    with stranger_at(endpoint.address) as silent, stranger_at(endpoint.address) as stranger:
        silent.settimeout(10)
        while silent.recv(32):
            pass
        said = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while said < 64:
                stranger.sendall(b"x")
                said += 1
                time.sleep(0.01)
        assert said < 60, "each byte gave it time for another one"


class Reflects(threading.Thread):
    """Listens without the key; answers a client with what it said itself, or with what the server says."""

    def __init__(self, folder: Path, target: str | None) -> None:
        super().__init__(daemon=True)
        self.target = target
        self.listening, self.address = listen(free_address(folder, "stranger.sock"))
        self.start()

    def run(self) -> None:
        with self.listening, self.listening.accept()[0] as client:
            if self.target is None:
                client.sendall(bytes(32))
                said = client.recv(64, socket.MSG_WAITALL)
                client.sendall(said[32:])
            else:
                with stranger_at(self.target) as server:
                    client.sendall(server.recv(32, socket.MSG_WAITALL))
                    server.sendall(client.recv(64, socket.MSG_WAITALL))
                    client.sendall(server.recv(32, socket.MSG_WAITALL))
            client.recv(1)


@pytest.mark.skipif(sys.platform == "win32", reason="MSG_WAITALL")
@pytest.mark.parametrize("relayed", [False, True])
def test_a_proof_is_good_for_one_role_address_and_connection(
    endpoint: Endpoint, key: bytes, tmp_path: Path, relayed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Reflects(tmp_path, endpoint.address if relayed else None)
    with pytest.raises(AuthenticationError, match="different key, or a process without the key"):
        RemoteServer(stranger.address, timeout=0.0)
    stranger.join(300)
    until(lambda: not endpoint._threads)
    assert ("without the key" in caplog.text) == relayed
    RemoteServer(endpoint.address).close()


def test_strangers_hold_no_place_of_a_client(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest that has proved nothing is dropped for the next one."""
    monkeypatch.setattr("replay_tutorial.tables.remote.endpoint.MAX_UNAUTHENTICATED", 3)
    monkeypatch.setattr("replay_tutorial.tables.remote.endpoint.UNAUTHENTICATED_SECONDS", 0.02)
    monkeypatch.setattr(local_socket, "HANDSHAKE_TIMEOUT", 60.0)
    with contextlib.ExitStack() as strangers:
        for _ in range(9):
            strangers.enter_context(stranger_at(endpoint.address))
        with RemoteServer(endpoint.address, timeout=0.0) as server:
            assert server.info()["replay"].size == 0
        assert sum(not wire.is_authenticated for wire in endpoint._threads) <= 3


def test_there_are_not_more_connections_than_allowed(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay_tutorial.tables.remote.endpoint.MAX_CONNECTIONS", 2)
    address = endpoint.address
    with closing(connected(address)), closing(connected(address)), stranger_at(address) as third:
        third.settimeout(10)
        assert third.recv(1) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_taken_for_bytes_that_came_and_not_for_those_announced() -> None:
    def resident(which: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(which))

    Path("/proc/self/clear_refs").write_text("5")  # forget the highest so far
    before = resident("VmRSS")
    for _ in range(3):
        near, far = socket.socketpair()
        far.sendall(HEAD.pack(8, 1 << 28) + bytes(1000))
        far.close()
        with pytest.raises(EOFError):
            Connection(near).receive()
    assert resident("VmHWM") - before < 1 << 26


@cells(2_000_000)
def test_a_small_frame_that_expands_is_refused_at_once(there: SimpleNamespace) -> None:
    parts = tuple(Part(f"part {i}", "obs", 10**6) for i in range(60))
    runs = [ColumnSlice("obs", 0, np.zeros((1, 3), np.float32))]
    for shape in ((1, 1), (0, 60 * 10**6)):
        items = [NewItems("replay", None, parts, np.zeros(shape, np.int64))]
        begin = time.process_time()
        with pytest.raises(ValueError, match=r"not add up to 1 cells|at least 1 item"):
            send(there.server, Sent(1, 0, runs, items, 0))
        assert time.process_time() - begin < 1.0
    assert there.server.info()["replay"].inserts == 0


@cells(2000)
def test_an_answer_with_too_many_bytes_is_refused_before_anything_is_copied(
    there: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay_tutorial.tables.remote.endpoint.MAX_CALL_BYTES", 10_000)
    server = there.server
    Client(server).insert_batch({"obs": np.zeros((9, 3))}, {"replay": None})
    assert len(server.items("replay")) == len(server.sample("replay", 9)) == 9
    with Client(server).writer(300) as writer:
        for _ in range(300):
            writer.append({"obs": np.zeros(3)})
        for steps in (slice(-1, None), slice(None), slice(None)):
            writer.create_item("queue", 1.0, {"obs": writer.history["obs"][steps]})
    for call in (lambda: server.sample("queue", 3), lambda: server.items("queue")):
        with pytest.raises(ValueError, match="3 items of the table 'queue' may take 10,944 bytes"):
            call()
    assert server.info()["queue"].samples == 0
    assert len(there.served.items("queue")) == 3, "no limit in the process of the server"
    assert len(server.sample("queue", 2)) == 2


LIMITERS = [
    MinSize(3),
    Queue(2),
    Stack(7),
    SampleToInsertRatio(2.0, 5, (3, 20.5)),
    RateLimiter(0.5, 1, -float("inf"), float("inf")),
]
SAMPLE = Sample(
    SampleInfo(*[np.arange(2) * 1.5] * 6), {"obs": np.ones((2, 3), np.float32)}, None, frozenset("ba")
)
VALUES = [
    np.arange(5, dtype=np.uint8),
    np.zeros((0, 3), np.float32),
    np.arange(12, dtype=np.complex128).reshape(3, 4)[:, ::2],
    np.array([True, False, True]),
    np.arange(3, dtype=">i4"),
    np.zeros((2, 0), np.float16),
    np.arange(24, dtype=np.longdouble).reshape(2, 3, 4).T,
]
RUNS = [ColumnSlice(f"column {i}", 1 << 62, array) for i, array in enumerate(VALUES)]
PADDED = replace(SAMPLE, lengths={"obs": np.array([1, 2])}, squeezed=frozenset())
INFO = {"a": TableInfo(*range(7), 1.5, Stack(2)), "b": TableInfo(*range(8), *LIMITERS[:1])}
SAID = [
    (GREETING, HELLO, ("", "a")),
    (ARGUMENT_TYPES, "insert", (3, 4, RUNS, [NewItems("é", None, (), np.zeros((1, 0), np.int64))], -5, 1.5)),
    (ARGUMENT_TYPES, "sample", ("\ud800 \n", -(1 << 63), float("inf"), True)),
    (ARGUMENT_TYPES, "mutate_priorities", ("a", (np.arange(3), np.ones(3)), np.zeros(0, np.int64))),
    *[(ARGUMENT_TYPES, "replace_limiter", ("a", limiter)) for limiter in LIMITERS],
    (RESULT_TYPES["sample"], "answer", (SAMPLE,)),
    (RESULT_TYPES["items"], "answer", (PADDED,)),
    (RESULT_TYPES["reset"], "answer", (None,)),
    (RESULT_TYPES["info"], "answer", (INFO,)),
    (RESULT_TYPES["info"], "error", ("KeyError", "There is none.")),
]


@pytest.mark.parametrize(("known", "name", "values"), SAID)
def test_what_is_said_is_heard(known: Any, name: str, values: tuple[Any, ...]) -> None:
    said = pack(name, values)
    heard = unpack(HEAD.unpack(said[: HEAD.size])[0], memoryview(bytearray(said[HEAD.size :])), known)
    assert (heard[0], plain(heard[1])) == (name, plain(values))
    for run in heard[1][2] if name == "insert" else ():
        assert run.values.ctypes.data % 8 == 0 and run.values.flags.writeable


class OwnLimiter(MinSize):
    """Of a kind that the server does not know."""


@pytest.mark.parametrize(
    "value", [OwnLimiter(1), np.array([None]), np.array(["a"]), np.array(["2020-01-01"], "M8[s]"), object()]
)
def test_what_the_other_side_could_not_know_is_not_sent(value: Any) -> None:
    with pytest.raises(TypeError, match="can't be sent"):
        pack("replace_limiter", ["replay", value])


def test_info_describes_a_limiter_of_an_own_class_by_its_four_numbers() -> None:
    said = pack("answer", [{"a": TableInfo(*range(8), OwnLimiter(3))}])
    name, values = unpack(
        HEAD.unpack(said[: HEAD.size])[0], memoryview(bytearray(said[HEAD.size :])), RESULT_TYPES["info"]
    )
    assert name == "answer" and values[0]["a"].rate_limiter == RateLimiter(*astuple(MinSize(3)))


def test_a_text_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="fewer kinds of items"):
        pack("insert", [1, 1, [], [NewItems("replay", None, (), np.zeros((1, 1)))] * 50_000, 0, None])


@pytest.mark.parametrize(
    "address", ["", ":5000", "example.com:5000", "10.0.0.1:80", "0.0.0.0:80", "localhost:"]
)
def test_an_address_of_another_machine_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not an address of this machine"):
        parse_address(address)


@needs_paths
def test_a_path_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="limited to 100 bytes"):
        parse_address("/tmp/" + "x" * 100)


@needs_paths
def test_what_a_killed_server_left_is_removed_and_nothing_else(short_folder: Path) -> None:
    path = short_folder / "tables.sock"
    listening, _ = listen(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(OSError, match="in use"):
        listen(str(path))
    listening.close()  # as a killed one: its file stays
    listening, _ = listen(str(path))
    stop_listening(listening)
    assert not path.exists()
    path.write_text("a file")
    with pytest.raises(OSError, match="in use"):
        listen(str(path))
    assert path.read_text() == "a file"


@pytest.mark.skipif(sys.platform != "linux", reason="a busy server refuses a connection there")
def test_a_server_that_is_too_busy_to_answer_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "tables.sock"
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as waiting:
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(2):
            caller = waiting.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(str(path))
        with pytest.raises(OSError, match="in use"):
            listen(str(path))
        assert path.exists()


@pytest.fixture
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLAY_TUTORIAL_KEY", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)


@needs_paths
def test_the_first_server_makes_a_key_that_others_cannot_read(no_key: None, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="There is no key"):
        read_key()
    made = make_key()
    assert len(made) == 64
    assert make_key() == read_key() == made
    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [key_path().name]
    key_path().chmod(0o644)
    with pytest.raises(ValueError, match="Other users can read"):
        read_key()


@needs_paths
def test_nobody_reads_half_a_key(no_key: None) -> None:
    """Some servers make it at once, and clients look for it meanwhile."""

    def key_when_there() -> bytes:
        while True:
            with contextlib.suppress(FileNotFoundError):
                return read_key()
            time.sleep(1e-5)  # lest they leave the makers no time

    for _ in range(20):
        key_path().unlink(missing_ok=True)
        with ThreadPoolExecutor(6) as threads:
            looking = [threads.submit(key_when_there) for _ in range(4)]
            made = [threads.submit(make_key) for _ in range(2)]
            assert len({future.result() for future in looking + made}) == 1


def test_a_key_that_can_be_guessed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for short in ("", "fifteen letters"):
        monkeypatch.setenv("REPLAY_TUTORIAL_KEY", short)
        for call in (partial(Endpoint, small_server()), RemoteServer):
            with pytest.raises(ValueError, match="at least 16"):
                call(free_address(tmp_path))
    monkeypatch.setenv("REPLAY_TUTORIAL_KEY", "sixteen letters!")
    Endpoint(small_server(), free_address(tmp_path)).close()


@needs_paths
def test_a_client_waits_for_the_first_server_on_a_machine_which_makes_the_key(
    no_key: None, short_folder: Path
) -> None:
    address, server = str(short_folder / "tables.sock"), small_server()
    with pytest.raises(FileNotFoundError, match="There is no key"):
        RemoteServer(address, timeout=0.0)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(RemoteServer, address, timeout=300.0)
        with Endpoint(server, address), waiting.result() as remote:
            assert remote.info().keys() == server.info().keys()
    assert not [*short_folder.iterdir()]


def test_the_key_decides_who_may_call(
    endpoint: Endpoint, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAY_TUTORIAL_KEY", KEY + "!")
    with pytest.raises(AuthenticationError, match="different key"):
        RemoteServer(endpoint.address)
