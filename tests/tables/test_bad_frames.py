"""What is no call is refused, and hurts nobody else."""

import contextlib
import json
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import KEY, key, serving, small_server
from test_remote_server import message

from replay_tutorial.tables import Client, RemoteServer
from replay_tutorial.tables.call_forms import integers, say_message
from replay_tutorial.tables.framing import HEAD, HELLO, BadFrame, pack, read_outline, unpack
from replay_tutorial.tables.key_file import key_path, make_key, read_key
from replay_tutorial.tables.local_socket import Wire, dial, listen, place_of, stop_listening

__all__ = ["key"]  # a fixture


def framed(words: Any, body: bytes = b"") -> bytes:
    """A frame with any text."""
    text = words if isinstance(words, bytes) else json.dumps(words).encode()
    text += b" " * (-len(text) % 8)
    return HEAD.pack(1, 0.0, len(text), len(text) + len(body)) + text + body


FORM = ["insert", ["obs"], [["replay", [["obs", "obs", 1, True]], True]]]
ARRAYS = [["q", [4]], ["f", [1, 3]], ["q", [1, 1]], ["d", [1]]]
BODY = np.array([8, 0, 1, 0], np.int64).tobytes() + np.zeros(4, np.float32).tobytes() + bytes(16)


def altered(place: list[int], value: Any) -> bytes:
    """The good frame with one word of its form replaced."""
    form = json.loads(json.dumps(FORM))
    part = form
    for index in place[:-1]:
        part = part[index]
    part[place[-1]] = value
    return framed([form, ARRAYS], BODY)


BAD = {
    "no JSON": framed(b"no JSON at all  "),
    "no UTF-8": framed(b"\xff\xfe\xfd      "),
    "nested without end": framed(b"[" * 50_000),
    "an object": framed({"insert": 1}),
    "a number": framed(7),
    "no arrays": framed([["info"]]),
    "an empty form": framed([[], []]),
    "a form of a number": framed([[7], []]),
    "an unknown call": framed([["shutdown"], []]),
    "a call of another name": framed([["__init__", "replay"], []]),
    "Python objects": framed([["info"], [["O", [1]]]], bytes(8)),
    "texts": framed([["info"], [["U", [1]]]], bytes(8)),
    "records": framed([["info"], [["i,i", [1]]]], bytes(8)),
    "a dtype that isn't there": framed([["info"], [["m", [1]]]], bytes(8)),
    "a negative length": framed([["info"], [["q", [-1]]]], bytes(8)),
    "a length of a half": framed([["info"], [["q", [0.5]]]], bytes(8)),
    "a huge array": framed([["info"], [["q", [1 << 40, 1 << 40]]]], bytes(8)),
    "a huge array of nothing": framed([["info"], [["q", [0, 1 << 62, 1 << 62]]]]),
    "too many axes": framed([["info"], [["q", [1] * 99]]], bytes(8)),
    "more bytes than arrays": framed([["info"], []], bytes(8)),
    "fewer bytes than arrays": framed([["info"], [["q", [2]]]], bytes(8)),
    "a text longer than the frame": HEAD.pack(1, 0.0, 1 << 30, 8) + bytes(8),
    "a frame of exabytes": HEAD.pack(1, 0.0, 8, 1 << 60),
    "a message without arrays": framed([FORM, []]),
    "a message without values": framed([FORM, ARRAYS[:1]], BODY[:32]),
    "a message without priorities": framed([FORM, ARRAYS[:3]], BODY[:56]),
    "a message with more": framed([FORM, [*ARRAYS, ["d", [1]]]], BODY + bytes(8)),
    "numbers of another kind": framed([FORM, [["d", [4]], *ARRAYS[1:]]], BODY),
    "values without steps": framed([FORM, [ARRAYS[0], ["f", []], *ARRAYS[2:]]], BODY[:40] + BODY[48:]),
    "a column that is no word": altered([1, 0], 7),
    "columns that are no list": altered([1], "obs"),
    "a table that is no word": altered([2, 0, 0], ["replay"]),
    "a length that is no number": altered([2, 0, 1, 0, 2], "1"),
    "a length that is a half": altered([2, 0, 1, 0, 2], 0.5),
    "a part of too few words": altered([2, 0, 1, 0], ["obs", "obs"]),
    "priorities that are perhaps there": altered([2, 0, 2], None),
    "no item": altered([2, 0], 5),
    "a sample of nothing": framed([["sample", "replay"], []]),
    "a sample of a word": framed([["sample", ["replay"]], [["q", [1]]]], bytes(8)),
    "a mutation of nothing": framed([["mutate_priorities", "replay"], []]),
    "an unknown limiter": framed([["replace_limiter", "replay", ["object", 1, 1, 1, 1]], []]),
    "a limiter of words": framed([["replace_limiter", "replay", ["MinSize", "1", 1, 1, 1]], []]),
    "no limiter": framed([["replace_limiter", "replay", None], []]),
    "a writer without a number": framed([["close_writer"], []]),
}


def connected(address: str) -> Wire:
    wire = Wire(dial(address))
    wire.prove(KEY.encode(), first=False)
    wire.send(pack(0, HELLO, [integers(*np.random.default_rng().integers(1 << 60, size=2), 0, 0)]))
    assert wire.receive().form[0] == "welcome"
    return wire


def test_a_frame_that_is_no_call_is_answered_with_an_error(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        before = server.info()
        for what, frame in BAD.items():
            wire = connected(endpoint.address)
            wire.send(frame)
            answer = wire.receive()
            assert answer.form[:2] == ("error", "BadFrame"), f"{what}: {answer.form}"
            wire.close()
        assert server.info() == before
        wire = connected(endpoint.address)
        wire.send(framed([FORM, ARRAYS], BODY))
        assert wire.receive().form == ("keys",), "the frame that the bad ones were made from is good"
        wire.close()


def test_a_frame_with_flipped_bytes_leaves_the_server_alive(key: bytes, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    good = np.frombuffer(pack(1, *say_message(message(5, 0)), 0.0), np.uint8)
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
        for said in (b"", b"x", bytes(100), b"\x00\x05#WELC", b"\xff" * 1000, pack(0, ("info",), ())):
            with dial(endpoint.address) as stranger:
                stranger.settimeout(10)
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                heard = b""
                with contextlib.suppress(ConnectionResetError):
                    while more := stranger.recv(1 << 12):
                        heard += more
                assert b"welcome" not in heard
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


def test_a_frame_is_read_as_it_was_packed() -> None:
    arrays = [
        np.arange(5, dtype=np.uint8),
        np.zeros((0, 3), np.float32),
        np.array(7.0),
        np.arange(12, dtype=np.complex128).reshape(3, 4)[:, ::2],
        np.array([True, False, True]),
        np.arange(3, dtype=">i4"),
    ]
    packed = pack(3, ("what", 1, None, ("ever", 0.1, -np.inf)), arrays, 1.5)
    head = HEAD.unpack(packed[: HEAD.size])
    frame = unpack(head, bytearray(packed[HEAD.size :]))
    assert frame[:3] == (3, 1.5, ("what", 1, None, ("ever", 0.1, -np.inf)))
    for array, read in zip(arrays, frame.arrays, strict=True):
        assert (read.dtype, read.shape, read.tolist()) == (
            array.dtype.newbyteorder("="),
            array.shape,
            array.tolist(),
        )
        assert read.ctypes.data % 8 == 0
        assert read.flags.writeable
    with pytest.raises(BadFrame):
        read_outline(b"{}")
    with pytest.raises(struct.error):
        HEAD.unpack(b"")


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
        key_path().chmod(0o644)
        with pytest.raises(ValueError, match="Others can read"):
            read_key()
