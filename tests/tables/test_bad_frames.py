"""What is no call is refused, and hurts nobody else."""

import contextlib
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import AuthenticationError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq
from served import KEY, Sent, call_of, cells, message, plain, send, small_server, until

from replay_tutorial.tables import CapacityError, Client, Endpoint, RemoteServer
from replay_tutorial.tables.core.message import ColumnSlice, NewItems, Part
from replay_tutorial.tables.core.rate_limiters import MinSize, RateLimiter
from replay_tutorial.tables.core.results import Sample, SampleInfo
from replay_tutorial.tables.remote import codec
from replay_tutorial.tables.remote.addresses import check_free, key_path, make_key, parse_address, read_key

msgspec = pytest.importorskip("msgspec")
needs_paths = pytest.mark.skipif(os.name != "posix", reason="there are no sockets in the file system")
LANE = bytes(24)


def framed(fields: Any) -> list[bytes]:
    """A frame of any values, or bytes."""
    return [fields if isinstance(fields, bytes) else msgspec.msgpack.encode(fields)]


VALUES, PRIORITIES, STEPS = (
    ["f", [1, 3], bytes(12)],
    ["d", [1], np.array([1.0]).tobytes()],
    ["q", [1, 1], bytes(8)],
)
ITEM = ["replay", PRIORITIES, [["obs", "obs", 1, True]], STEPS]
GOOD = ["Insert", 8, 1, [["obs", 0, VALUES]], [ITEM], 1, 0.0]


def altered(place: list[int], value: Any) -> list[bytes]:
    """The good call with one of its fields replaced."""
    call = msgspec.msgpack.decode(msgspec.msgpack.encode(GOOD))
    part = call
    for index in place[:-1]:
        part = part[index]
    part[place[-1]] = value
    return framed([b"", 1, [1], call])


def call(name: Any, *arguments: Any) -> list[bytes]:
    return framed([b"", 1, [1], [name, *arguments]])


NESTED = b"\x94\xc4\x00\x01\x91\x01\x93\xa2Do\xa5reset"
BAD = {
    "no MessagePack": framed(b"\xc1" * 16),
    "nested without end": framed(b"\x91" * 50_000),
    "an argument that is nested deeply": framed(NESTED + b"\x91" * 800 + b"\x90"),
    "an argument that is nested without end": framed(NESTED + b"\x91" * 50_000 + b"\x90"),
    "a call below zero": framed([b"", 1, [-1], ["Info"]]),
    "very many calls": framed([b"", 1, [*range(20_000)], ["Info"]]),
    "no number": altered([1], float("nan")),
    "a number with a fraction": altered([2], 0.5),
    "truth for a number": altered([2], False),
    "a number that is a word": altered([1], "8"),
    "a message below one": altered([2], 0),
    "a step below zero": altered([5], -1),
    "a wait of a word": call("Draw", "replay", 1, "0", False),
    "an object": framed({"insert": 1}),
    "a number as a message": framed(7),
    "no fields": framed([]),
    "a name that is a list": call(["Info"]),
    "a call of another name": call("__init__", "replay"),
    "a call of what the server keeps to itself": call("Do", "close", "x"),
    "an answer": framed([1, None, None]),
    "too many fields": framed([b"", 1, [1], ["Info"], 5]),
    "too many arguments": call("Info", 5),
    "too few arguments": framed([b"", 1, [1], GOOD[:3]]),
    "a table that is no word": altered([4, 0, 0], ["replay"]),
    "columns that are no list": altered([3], "obs"),
    "Python objects": altered([3, 0, 2, 0], "O"),
    "texts": altered([3, 0, 2, 0], "U"),
    "an extension of MessagePack": altered([1], msgspec.msgpack.Ext(1, b"x")),
    "a negative length": altered([3, 0, 2, 1], [-1, 3]),
    "a huge array": altered([3, 0, 2, 1], [1 << 40, 1 << 40]),
    "a huge array of nothing": altered([3, 0, 2], ["f", [0, 1 << 62, 1 << 62], b""]),
    "shapes of many axes": altered([3, 0, 2, 1], [1] * 300_000),
    "a product of many numbers": altered([3, 0, 2, 1], [1 << 62] * 20_000),
    "fewer bytes than the shape": altered([3, 0, 2, 1], [2, 3]),
    "more bytes than the shape": altered([3, 0, 2, 2], bytes(16)),
    "no array": altered([3, 0, 2], 5),
    "an array of another one's frame": altered([3, 0, 2, 2], 1),
    "a frame of no array": [*call("Info"), b"x"],
    "a call that is too long": call("Do", "reset", "x" * (1 << 23)),
    "many frames": call("Info") * 2000,
}


@contextlib.contextmanager
def connected(address: str, routing_id: bytes = LANE) -> Iterator[zmq.Socket[bytes]]:
    """A connection of a client with the key."""
    keys = read_key()
    with zmq.Context() as context, context.socket(zmq.DEALER) as wire:
        wire.linger, wire.rcvtimeo, wire.routing_id, wire.probe_router = 0, 30_000, routing_id, 1
        if not address.startswith("/"):
            wire.curve_serverkey, wire.curve_publickey = keys.server_public, keys.client_public
            wire.curve_secretkey = keys.client_secret
        wire.connect(parse_address(address)[0])
        yield wire


def heard(wire: zmq.Socket[bytes]) -> Any:
    """The number, the error and the value of the next reply."""
    number, error, value = codec.REPLIES.decode(wire.recv_multipart()[0])
    return number, error, msgspec.msgpack.decode(value)


def test_a_message_that_is_no_call_is_answered_with_an_error(there: SimpleNamespace) -> None:
    before = there.server.info()
    with connected(there.endpoint.address) as wire:
        number, error, (version, token, _) = heard(wire)
        assert (number, error, version) == (0, None, codec.VERSION)
        for what, frames in BAD.items():
            begin = time.process_time()
            wire.send_multipart(frames)
            assert heard(wire)[1] == "BadFrame", what
            assert time.process_time() - begin < 1.0, what
        assert there.server.info() == before
        wire.send_multipart(call("Info"))
        assert heard(wire)[1] == "ServerLost", "the token is another one"
        wire.send_multipart(framed([token, 2, [2], GOOD]))
        assert heard(wire) == (2, None, [0]), "what the bad came from is good"
    with connected(there.endpoint.address, b"short") as wire:
        assert heard(wire)[0] == 0, "is greeted too"


@cells(2000)
def test_a_message_with_flipped_bytes_leaves_the_server_alive(there: SimpleNamespace) -> None:
    rng = np.random.default_rng(5)
    with connected(there.endpoint.address) as wire:
        _, _, (_, token, _) = heard(wire)
        request = codec.Request(token, 1, [1], call_of(message(5, 0), 0.0))
        good = np.frombuffer(codec.pack_request(request)[0], np.uint8)
        for _ in range(300):
            bad = good.copy()
            places = rng.integers(len(bad), size=rng.integers(1, 4))
            bad[places] ^= (1 << rng.integers(0, 8, len(places))).astype(np.uint8)
            wire.send(bad.tobytes()[: len(bad) - rng.integers(3)])
    Client(there.server).insert({"obs": np.zeros(3)}, {"queue": 1.0})
    assert there.server.sample("queue", 1).info.keys.tolist() == [0]


@cells(9)
def test_a_message_that_would_harm_the_tables_is_refused_and_changes_nothing(there: SimpleNamespace) -> None:
    """The server checks what a writer would not send."""
    server, served = there.server, there.served
    send(server, message(1, 0))
    run = ColumnSlice("obs", 3, np.zeros((1, 3), np.float32))
    item = NewItems("replay", None, (Part("a", "obs", 1),), np.array([[3]]))
    bad = [
        ([run._replace(values=np.zeros((1, 3)))], [item]),
        ([run._replace(values=np.zeros((1, 2), np.float32))], [item]),
        ([run._replace(values=np.zeros((0, 3), np.float32))], [item]),
        ([run._replace(values=np.zeros((10, 3), np.float32))], [item]),
        ([run, run], [item]),
        ([run._replace(first_step=2)], [item]),
        ([run._replace(first_step=1)], [item]),
        ([run._replace(first_step=1 << 62)], [item]),
        ([run._replace(column="none")], [item]),
        ([], [item]),
        *(
            ([run], [new])
            for new in (
                item._replace(steps=np.array([[3, 3]])),
                item._replace(steps=np.array([3])),
                item._replace(steps=np.zeros((0, 1), np.int64)),
                item._replace(table="queue", layout=(Part("a", "none", 1),)),
                item._replace(table="queue", layout=()),
                item._replace(
                    table="queue", layout=(Part("a", "obs", 1), Part("a", "obs", 1)), steps=np.array([[3, 3]])
                ),
                item._replace(table="queue", layout=(Part("a", "obs", 2), Part("b", "obs", -1))),
                item._replace(table="queue", layout=(Part("a", "obs", 2, True),), steps=np.array([[3, 3]])),
                item._replace(priorities=np.ones(2)),
            )
        ),
    ]
    before = server.info()
    for runs, items in bad:
        with pytest.raises((ValueError, KeyError, CapacityError)):
            send(server, Sent(1, 1, runs, items, 3))
        assert server.info() == before and served._cells.free_count(0) == 6
    send(server, message(1, 1))


def test_a_call_that_does_not_fit_into_the_memory_leaves_the_server_alive(
    there: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no memory for a copy of the array")

    with monkeypatch.context() as patches, pytest.raises(MemoryError, match="copy of the array"):
        patches.setattr(np, "require", fail)
        there.server.mutate_priorities("replay", (np.arange(9000), np.ones(9000)))
    there.server.info()


def test_an_error_longer_than_a_text_may_be_is_cut(there: SimpleNamespace) -> None:
    with pytest.raises(KeyError, match="There is no table 'xxx") as refused:
        there.server.reset("x" * 1_048_000)
    assert len(str(refused.value)) < 2100
    there.server.info()


@pytest.mark.parametrize("frame", [bytes(3_000_000), b""])
def test_a_frame_longer_than_allowed_ends_the_connection_before_it_is_stored(
    key: bytes, monkeypatch: pytest.MonkeyPatch, frame: bytes
) -> None:
    """An empty one shows that the connection is good."""
    monkeypatch.setattr(codec, "MAX_CALL_BYTES", 2_000_000)
    with Endpoint(small_server(), "127.0.0.1:0") as endpoint, connected(endpoint.address) as wire:
        monitor = wire.get_monitor_socket(zmq.Event.DISCONNECTED)
        with monitor:
            wire.send(frame)
            assert bool(monitor.poll(10_000 if frame else 300)) == bool(frame)
            wire.disable_monitor()
        with RemoteServer(endpoint.address) as server:
            assert server.info()["replay"].size == 0


def test_who_does_not_know_the_key_is_not_listened_to(
    key: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ones that say something or nothing, and wrong keys of either side; meanwhile a client is served."""
    monkeypatch.setattr("replay_tutorial.tables.remote.endpoint.LOG_INTERVAL", 3600.0)
    with Endpoint(small_server(), "127.0.0.1:0") as endpoint, contextlib.ExitStack() as strangers:
        place = "127.0.0.1", int(endpoint.address.rpartition(":")[2])
        for said in (b"", b"", b"x", bytes(100), b"\xff" * 1000, *call("Info")):
            stranger = strangers.enter_context(socket.create_connection(place))
            stranger.sendall(said)
        for wrong in (KEY[:60] + "00" + KEY[62:], KEY[:-2] + "00"):  # of the server, of the clients
            monkeypatch.setenv("REPLAY_TUTORIAL_KEY", wrong)
            with pytest.raises(AuthenticationError, match="different key, or a process without the key"):
                RemoteServer(endpoint.address, timeout=0.0)
        monkeypatch.setenv("REPLAY_TUTORIAL_KEY", endpoint.client_key)
        with RemoteServer(endpoint.address) as server:
            assert server.info()["replay"].size == 0
        until(lambda: "without the key of this server" in caplog.text)
        time.sleep(0.6)
        assert caplog.text.count("Rejected") == 1
    with contextlib.suppress(OSError), pytest.raises(ValueError, match="a server needs the server key"):
        Endpoint(small_server(), "127.0.0.1:0")


@cells(2_000_000)
def test_a_small_frame_that_expands_is_refused_at_once(there: SimpleNamespace) -> None:
    parts = tuple(Part(f"part {i}", "obs", 10**6) for i in range(60))
    runs = [ColumnSlice("obs", 0, np.zeros((1, 3), np.float32))]
    for shape in ((1, 1), (0, 60 * 10**6)):
        items = [NewItems("replay", None, parts, np.zeros(shape, np.int64))]
        begin = time.process_time()
        with pytest.raises(ValueError, match="steps of at least one item"):
            send(there.server, Sent(1, 0, runs, items, 0))
        assert time.process_time() - begin < 1.0
    assert there.server.info()["replay"].inserts == 0


@cells(2000)
def test_an_answer_with_too_many_bytes_is_refused_before_anything_is_copied(
    there: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay_tutorial.tables.remote.codec.MAX_CALL_BYTES", 10_000)
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


SAMPLE = Sample(
    SampleInfo(*[np.arange(2) * 1.5] * 6), {"obs": np.ones((2, 3), np.float32)}, None, frozenset("ba")
)
ARRAYS = [
    np.arange(5, dtype=np.uint8),
    np.zeros((0, 3), np.float32),
    np.arange(12, dtype=np.complex128).reshape(3, 4)[:, ::2],
    np.array([True, False, True]),
    np.arange(3, dtype=">i4"),
    np.zeros((2, 0), np.float16),
    np.arange(24, dtype=np.longdouble).reshape(2, 3, 4).T,
]
ARRAYS_OF_ALL_KINDS = [*ARRAYS, np.zeros((200, 200)), np.ones((300, 300)).T, np.array(7)]
PADDED = replace(SAMPLE, lengths={"obs": np.array([1, 2])}, squeezed=frozenset())


class OwnLimiter(MinSize):
    """Of a kind that the server does not know."""


def received(frames: list[Any]) -> list[zmq.Frame]:
    return [zmq.Frame(bytes(memoryview(np.ascontiguousarray(frame)).cast("B"))) for frame in frames]


def test_a_request_is_decoded_as_it_was_said() -> None:
    items = [NewItems("é", None, (Part("a", "b", 2, False),), np.zeros((1, 2), np.int64))] * 2
    runs = [ColumnSlice(f"column {i}", (1 << 62) - 9, array) for i, array in enumerate(ARRAYS_OF_ALL_KINDS)]
    said = call_of(Sent(3, 3, runs, items, 5), float("inf"))
    request = codec.unpack_request(received(codec.pack_request(codec.Request(b"t", 9, [1, 2], said))))
    heard = request.call
    assert isinstance(heard, codec.Insert)
    assert plain(heard.slices) == plain(
        [run._replace(values=np.array(run.values, order="C")) for run in runs]
    )
    assert plain(heard.items) == plain(items)
    assert all(run.values.ctypes.data % 8 == 0 and run.values.flags.writeable for run in heard.slices)
    assert (request.number, request.pending, heard.timeout, heard.sequence) == (9, [1, 2], float("inf"), 4)


@pytest.mark.parametrize("sample", [SAMPLE, PADDED])
def test_a_sample_is_decoded_as_it_was_said(sample: Sample) -> None:
    frames = received(codec.pack_reply(4, sample))
    number, error, value = codec.REPLIES.decode(frames[0].buffer)
    assert (number, error, plain(codec.unpack_reply(codec.Draw, frames, value))) == (4, None, plain(sample))


@pytest.mark.parametrize("value", [np.array([None]), np.array(["a"]), np.array(["2020-01-01"], "M8[s]")])
def test_what_the_other_side_could_not_know_is_not_sent(value: Any, there: SimpleNamespace) -> None:
    with pytest.raises(TypeError, match="can't be sent"):
        codec.pack([value])
    with pytest.raises(TypeError, match="can't be sent"):
        there.server.replace_limiter("replay", OwnLimiter(1))
    there.served.replace_limiter("replay", OwnLimiter(1))
    assert there.server.info()["replay"].rate_limiter == RateLimiter(
        1.0, 1, -sys.float_info.max, sys.float_info.max
    )


def test_a_text_that_is_too_long_is_not_sent(there: SimpleNamespace) -> None:
    items = [NewItems("replay", None, (), np.zeros((1, 1), np.int64))] * 600_000
    with pytest.raises(ValueError, match="fewer kinds of items"):
        send(there.server, Sent(1, 0, [], items, 0))


@pytest.mark.parametrize("address", ["", ":5000", "http://x", "localhost:", "tcp://a b:1", "[::1:5"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(address)


@pytest.mark.parametrize("address", ["example.com:5000", "0.0.0.0:80", "tcp://10.0.0.1:80", "[fe80::1]:80"])
def test_an_address_of_another_machine_is_not_local(address: str) -> None:
    assert parse_address(address) == (f"tcp://{address.removeprefix('tcp://')}", False)
    assert parse_address("localhost:80") == ("tcp://127.0.0.1:80", True)


@needs_paths
def test_a_path_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="limited to 100 bytes"):
        parse_address("/tmp/" + "x" * 100)


@needs_paths
def test_what_a_killed_server_left_is_removed_and_nothing_else(key: bytes, short_folder: Path) -> None:
    path = short_folder / "tables.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with Endpoint(small_server(), str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(OSError, match="in use"):
            Endpoint(small_server(), str(path))
        RemoteServer(str(path)).close()
    assert not path.exists()
    path.write_text("a file")
    with pytest.raises(OSError, match="in use"):
        Endpoint(small_server(), str(path))
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
            check_free(str(path))


@needs_paths
def test_the_socket_of_another_user_is_not_used(key: bytes, short_folder: Path, monkeypatch: Any) -> None:
    with Endpoint(small_server(), str(short_folder / "tables.sock")) as endpoint:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(PermissionError, match="another user"):
            RemoteServer(endpoint.address)


@pytest.fixture
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLAY_TUTORIAL_KEY", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)


@needs_paths
def test_the_first_server_makes_a_key_that_others_cannot_read(no_key: None, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="There is no key"):
        read_key()
    made = make_key()
    assert make_key() == read_key() == made
    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [key_path().name]
    key_path().chmod(0o644)
    with pytest.raises(ValueError, match="Other users can read"):
        read_key()
    key_path().write_bytes(b"\xff\xfe")
    key_path().chmod(0o600)
    with pytest.raises(ValueError, match="must be server- or client-"):
        read_key()


@needs_paths
def test_a_key_that_is_a_folder_or_a_link_to_nowhere_is_reported_as_such(
    no_key: None, tmp_path: Path
) -> None:
    key_path().mkdir()
    for look in (make_key, read_key):
        with pytest.raises(ValueError, match="key is a directory, not a file"):
            look()
    key_path().rmdir()
    key_path().symlink_to(tmp_path / "gone")
    for look in (make_key, read_key):
        with pytest.raises(ValueError, match=r"key is a symbolic link to .*gone, which does not exist"):
            look()
    assert [path.name for path in tmp_path.iterdir()] == [key_path().name]


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


@pytest.mark.parametrize("text", ["", "fifteen letters", KEY[:-1], KEY.replace("server", "other"), "ab" * 32])
def test_what_is_no_key_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_TUTORIAL_KEY", text)
    for call in (partial(Endpoint, small_server()), RemoteServer):
        with pytest.raises(ValueError, match="must be server- or client-"):
            call("127.0.0.1:0")


@needs_paths
def test_a_client_waits_for_the_first_server_on_a_machine_which_makes_the_key(
    no_key: None, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(FileNotFoundError, match="There is no key"):
        RemoteServer(address, timeout=0.0)
    server = small_server()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(RemoteServer, address, timeout=60.0)
        with Endpoint(server, address), waiting.result() as remote:
            assert remote.info().keys() == server.info().keys()
