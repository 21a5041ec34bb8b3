"""What is no call is refused, and hurts nobody else."""

import contextlib
import json
import os
import socket
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import KEY, key, serving, small_server
from test_remote_server import message

from replay_tutorial.tables import Client, RemoteServer
from replay_tutorial.tables.call_forms import HELLO, KNOWN, hear, say
from replay_tutorial.tables.framing import HEAD, TEXTS, BadFrame, unpack, words_of
from replay_tutorial.tables.local_socket import (
    Wire,
    dial,
    key_path,
    listen,
    make_key,
    place_of,
    read_key,
    stop_listening,
)
from replay_tutorial.tables.message import Message, NewItems, Part, Run
from replay_tutorial.tables.sampled import Sample, SampleInfo

__all__ = ["key"]  # a fixture


def framed(words: Any, body: bytes = b"", numbers: int = 0) -> bytes:
    """A frame with any text; the numbers stand at the beginning of the body."""
    text = words if isinstance(words, bytes) else json.dumps(words).encode()
    text += b" " * (-len(text) % 8)
    return HEAD.pack(0.0, len(text), numbers, len(text) + len(body)) + text + body


RUN = ["obs", None, ["f", [1, 3]]]
ITEM = ["replay", [["d", [1]]], [["obs", "obs", 1, True]], ["q", [1, 1]]]
MESSAGE = ["call", "insert", [None, None, [RUN], [ITEM], None]]
NUMBERS = np.array([8, 0, 0, 1], np.int64).tobytes()  # writer, sequence, first step, keep_from
ARRAYS = bytes(16) + np.array([1.0]).tobytes() + bytes(8)  # values, priorities, steps


def altered(place: list[int], value: Any, arrays: bytes = ARRAYS) -> bytes:
    """The good frame with one of its words replaced."""
    words = json.loads(json.dumps(MESSAGE))
    part = words
    for index in place[:-1]:
        part = part[index]
    part[place[-1]] = value
    return framed(words, NUMBERS + arrays, 4)


def call(name: Any, *words: Any) -> list[Any]:
    return ["call", name, *words]


BAD = {
    "no JSON": framed(b"no JSON at all  "),
    "no UTF-8": framed(b"\xff\xfe\xfd      "),
    "nested without end": framed(b"[" * 50_000),
    "an object": framed({"insert": 1}),
    "a number": framed(7),
    "nothing": framed([]),
    "a call of nothing": framed(["call"]),
    "names that are lists": framed([["call"], ["info"]]),
    "an unknown call": framed(call("shutdown")),
    "a call of another name": framed(call("__init__", "replay")),
    "a call of what the server keeps to itself": framed(call("close")),
    "an answer": framed(["answer", "reset", None]),
    "a second hello": framed(call(HELLO, None, None, None), bytes(24), 3),
    "Python objects": altered([2, 2, 0, 2], ["O", [1]]),
    "texts": altered([2, 2, 0, 2], ["U", [1]]),
    "records": altered([2, 2, 0, 2], ["i,i", [1]]),
    "a dtype that isn't there": altered([2, 2, 0, 2], ["m", [1]]),
    "a negative length": altered([2, 2, 0, 2], ["f", [-1, 3]]),
    "a length of a half": altered([2, 2, 0, 2], ["f", [0.5, 3]]),
    "a length of truth": altered([2, 2, 0, 2], ["f", [True, 3]]),
    "a huge array": altered([2, 2, 0, 2], ["f", [1 << 40, 1 << 40]]),
    "a huge array of nothing": altered([2, 2, 0, 2], ["f", [0, 1 << 62, 1 << 62]]),
    "too many axes": altered([2, 2, 0, 2], ["f", [1] * 99]),
    "values without steps": altered([2, 2, 0, 2], ["f", []]),
    "more bytes than arrays": framed(call("info"), bytes(8)),
    "fewer bytes than arrays": altered([2, 2, 0, 2], ["f", [2, 3]]),
    "a text longer than the frame": HEAD.pack(0.0, 1 << 30, 0, 8) + bytes(8),
    "a text of half a number": HEAD.pack(0.0, 4, 0, 8) + bytes(8),
    "more numbers than the frame": HEAD.pack(0.0, 8, 1 << 60, 16) + bytes(16),
    "a frame of exabytes": HEAD.pack(0.0, 8, 0, 1 << 60),
    "too many numbers": framed(call("info"), bytes(8), 1),
    "too few numbers": framed(MESSAGE, NUMBERS[8:] + ARRAYS, 3),
    "a message without arrays": framed(MESSAGE, NUMBERS, 4),
    "a message without values": altered([2, 2, 0], ["obs", None], ARRAYS[16:]),
    "a message without priorities": altered([2, 3, 0], [ITEM[0], *ITEM[2:]], ARRAYS[:16] + ARRAYS[24:]),
    "a message with more": framed(MESSAGE, NUMBERS + ARRAYS + bytes(8), 4),
    "a number that is a word": altered([2, 0], "8"),
    "a number that stands in the text": altered([2, 0], 8),
    "a column that is no word": altered([2, 2, 0, 0], 7),
    "columns that are no list": altered([2, 2], "obs"),
    "a table that is no word": altered([2, 3, 0, 0], ["replay"]),
    "a length that is no number": altered([2, 3, 0, 2, 0, 2], "1"),
    "a length that is a half": altered([2, 3, 0, 2, 0, 2], 0.5),
    "a part of too few words": altered([2, 3, 0, 2, 0], ["obs", "obs"]),
    "squeezed, perhaps": altered([2, 3, 0, 2, 0, 3], None),
    "no item": altered([2, 3], 5),
    "no message": framed(call("insert", None)),
    "a sample of nothing": framed(call("sample", "replay")),
    "a sample of a word": framed(call("sample", ["replay"], None), bytes(8), 1),
    "a mutation of nothing": framed(call("mutate_priorities", "replay")),
    "an unknown limiter": framed(call("replace_limiter", "replay", ["object", 1, 1, 1, 1])),
    "a limiter of words": framed(call("replace_limiter", "replay", ["MinSize", "1", 1, 1, 1])),
    "no limiter": framed(call("replace_limiter", "replay", None)),
    "a writer without a number": framed(call("close_writer")),
}


def connected(address: str) -> Wire:
    wire = Wire(dial(address))
    wire.prove(KEY.encode(), first=False)
    wire.send(say("call", HELLO, [np.random.default_rng().integers(1 << 60), 0, False]))
    assert hear(wire.receive())[:2] == ("answer", HELLO)
    return wire


def test_a_frame_that_is_no_call_is_answered_with_an_error(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        before = server.info()
        for what, frame in BAD.items():
            wire = connected(endpoint.address)
            wire.send(frame)
            answer = hear(wire.receive())
            assert (answer.name, answer.values[0]) == ("error", "BadFrame"), f"{what}: {answer}"
            wire.close()
        assert server.info() == before
        wire = connected(endpoint.address)
        wire.send(framed(MESSAGE, NUMBERS + ARRAYS, 4))
        assert hear(wire.receive()) == ("answer", "insert", ([0],)), (
            "the frame that the bad ones were made from is good"
        )
        wire.close()


def test_a_frame_with_flipped_bytes_leaves_the_server_alive(key: bytes, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    good = np.frombuffer(say("call", "insert", [message(5, 0)], 0.0), np.uint8)
    with serving(small_server(2000), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        for _ in range(300):
            wire, bad = connected(endpoint.address), good.copy()
            bad[rng.integers(len(bad), size=rng.integers(1, 4))] = rng.integers(256, dtype=np.uint8)
            wire.send(bad.tobytes())
            if rng.random() < 0.3:
                wire.cut()  # in the middle of it
            wire.close()
        Client(server).insert({"obs": np.zeros(3)}, {"queue": 1.0})
        assert server.sample("queue", 1).info.keys.tolist() == [0]


def test_who_does_not_know_the_key_is_not_listened_to(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        silent = dial(endpoint.address)
        for said in (b"", b"x", bytes(100), b"\x00\x05#WELC", b"\xff" * 1000, say("call", "info", ())):
            with dial(endpoint.address) as stranger:
                stranger.settimeout(10)
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                heard = b""
                with contextlib.suppress(ConnectionResetError):
                    while more := stranger.recv(1 << 12):
                        heard += more
                assert HELLO.encode() not in heard
        assert server.info()["replay"].size == 0, "while one says nothing"
        silent.close()


def test_a_silent_stranger_is_sent_away(key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay_tutorial.tables.local_socket.HANDSHAKE", 0.1)
    with serving(small_server(), tmp_path) as endpoint, dial(endpoint.address) as stranger:
        stranger.settimeout(10)
        while stranger.recv(1 << 12):
            pass


def test_there_are_not_more_connections_than_allowed(
    key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay_tutorial.tables.endpoint.MOST_CONNECTIONS", 2)
    with serving(small_server(), tmp_path) as endpoint:
        first, second = connected(endpoint.address), connected(endpoint.address)
        with dial(endpoint.address) as third:
            third.settimeout(10)
            assert third.recv(1) == b""
        first.close()
        second.close()


def test_only_some_short_texts_are_remembered() -> None:
    for count in [*range(600), 5000]:
        said = say(
            "answer",
            "sample",
            [Sample(SampleInfo(*[np.zeros(1)] * 6), {"x" * count: np.zeros(1)}, None, frozenset())],
        )
        hear(unpack(HEAD.unpack(said[: HEAD.size]), bytearray(said[HEAD.size :])))
    for known in (TEXTS, KNOWN):
        assert 0 < len(known) <= 256
        assert not any("x" * 5000 in str(key) for key in known)


def test_a_call_is_heard_as_it_was_said() -> None:
    arrays = [
        np.arange(5, dtype=np.uint8),
        np.zeros((0, 3), np.float32),
        np.array([7.0]),
        np.arange(12, dtype=np.complex128).reshape(3, 4)[:, ::2],
        np.array([True, False, True]),
        np.arange(3, dtype=">i4"),
    ]
    items = [NewItems("replay", None, (Part("obs", "obs", 1, True),), np.zeros((1, 1), np.int64))]
    runs = [Run(f"column {i}", 1 << 62, array) for i, array in enumerate(arrays)]
    said = say("call", "insert", [Message(3, 4, runs, items, -5)], 1.5)
    frame = unpack(HEAD.unpack(said[: HEAD.size]), bytearray(said[HEAD.size :]))
    assert frame.timeout == 1.5
    what, name, (heard,) = hear(frame)
    assert (what, name) == ("call", "insert")
    assert (heard.writer, heard.sequence, heard.keep_from) == (3, 4, -5)
    assert str(heard.items) == str(items)
    for array, run in zip(arrays, heard.runs, strict=True):
        assert run.first_step == 1 << 62
        assert run.values.dtype == array.dtype.newbyteorder("=")
        assert (run.values.shape, run.values.tolist()) == (array.shape, array.tolist())
        assert run.values.ctypes.data % 8 == 0
        assert run.values.flags.writeable
    with pytest.raises(BadFrame):
        words_of(b"{}")
    with pytest.raises(OverflowError):
        say("call", "sample", ["replay", 1 << 64])
    with pytest.raises(TypeError):
        say("call", "sample", ["replay", 1.5])


@pytest.mark.parametrize(
    "address", ["", ":5000", "example.com:5000", "10.0.0.1:80", "0.0.0.0:80", "localhost:"]
)
def test_an_address_of_another_machine_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not of this machine"):
        place_of(address)


@pytest.mark.skipif(os.name != "posix", reason="there are no sockets in the file system")
class TestPaths:
    def test_what_a_killed_server_left_is_removed_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "tables.sock"
        listening, address = listen(str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(OSError, match="in use"):
            listen(str(path))
        listening.close()  # as a killed one: its file stays
        listening, address = listen(str(path))
        stop_listening(listening, address)
        assert not path.exists()
        path.write_text("a file")
        with pytest.raises(OSError, match="in use"):
            listen(str(path))
        assert path.read_text() == "a file"

    @pytest.mark.skipif(sys.platform != "linux", reason="a busy server refuses a connection there")
    def test_a_server_that_is_too_busy_to_answer_keeps_its_place(self, tmp_path: Path) -> None:
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

    def test_a_path_that_is_too_long_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at most 100 bytes"):
            place_of("/tmp/" + "x" * 100)

    def test_the_first_server_makes_a_key_that_others_cannot_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("REPLAY_TUTORIAL_KEY", raising=False)
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        with pytest.raises(FileNotFoundError, match="There is no key"):
            read_key()
        made = make_key()
        assert len(made) == 64
        assert make_key() == read_key() == made
        assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
        assert [path.name for path in tmp_path.iterdir()] == [key_path().name]
        key_path().chmod(0o644)
        with pytest.raises(ValueError, match="Others can read"):
            read_key()

    def test_nobody_reads_half_a_key(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some servers make it at once, and clients look for it meanwhile."""
        monkeypatch.delenv("REPLAY_TUTORIAL_KEY", raising=False)
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        for _ in range(60):
            key_path().unlink(missing_ok=True)
            with ThreadPoolExecutor(6) as threads:
                looking = [threads.submit(key_when_there) for _ in range(4)]
                made = [threads.submit(make_key) for _ in range(2)]
                keys = {future.result() for future in looking + made}
            assert len(keys) == 1


def key_when_there() -> bytes:
    while True:
        with contextlib.suppress(FileNotFoundError):
            return read_key()
        time.sleep(1e-5)  # lest they leave the makers no time
