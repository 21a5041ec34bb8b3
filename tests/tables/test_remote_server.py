"""A server in another process answers as one in this process does, also if connections are cut."""

import errno
import gc
import itertools
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import zmq
from places import ROOT
from served import (
    Relay,
    Sent,
    call_of,
    cells,
    forget,
    lines_of,
    message,
    plain,
    send,
    serving,
    small_server,
    table,
    until,
    write,
)

from replay_tutorial.tables import (
    CapacityError,
    Client,
    Closed,
    Endpoint,
    MinSize,
    Queue,
    RemoteServer,
    SampleToInsertRatio,
    Server,
    ServerLost,
    Table,
    TrajectoryWriter,
)
from replay_tutorial.tables.core.message import ColumnSlice, NewItems, Part
from replay_tutorial.tables.core.waiting import complete
from replay_tutorial.tables.remote import addresses, codec, handle

ERRORS = (LookupError, TypeError, ValueError, OSError, RuntimeError, MemoryError)  # that a call may raise
FORK = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")  # fork is faster
needs_signals = pytest.mark.skipif(os.name != "posix", reason="a signal interrupts no call there")


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or raises."""
    try:
        return plain(call(*arguments))
    except ERRORS as error:
        return type(error).__name__, str(error)


@contextmanager
def calling(call: Callable[..., Any], *arguments: Any, times: int = 1) -> Iterator[list[Any]]:
    """The outcomes of a call in threads; they end with the block."""
    outcomes = list[Any]()
    threads = [
        threading.Thread(target=lambda: outcomes.append(outcome(call, *arguments))) for _ in range(times)
    ]
    for thread in threads:
        thread.start()
    yield outcomes
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()


def sent_only(server: RemoteServer, sent: Sent) -> tuple[handle.Session, handle.Lane]:
    """Send a message, as a call that is interrupted before the reply, and return where."""
    session = server._sessions[-1]
    lane = session._acquire()
    number, frames = session._pack(call_of(sent))
    codec.send(lane, frames)
    session._pending.discard(number)
    return session, lane


def inserted(server: Server, table: str = "queue") -> bool:
    try:
        Client(server).insert({"obs": np.zeros(3)}, {table: 1.0})
    except CapacityError:
        return False
    return True


def filling(steps: int) -> Sent:
    """A message that holds so many cells of the column obs."""
    items = [NewItems("replay", None, (Part("obs", "obs", 1),), np.zeros((1, 1), np.int64))]
    return Sent(99, 0, [ColumnSlice("obs", 0, np.zeros((steps, 3), np.float32))], items, 0)


def random_program(server: Any, seed: int, steps: int, file: Path) -> list[Any]:
    """Call whatever can be called, in any order, also wrongly; return all answers."""
    client, rng = Client(server), np.random.default_rng(seed)
    sequences, answers = [0, 0], list[Any]()
    for _ in range(steps):
        table = ["replay", "queue", "replay", "nowhere"][rng.integers(3 + (rng.random() < 0.1))]
        kind = rng.integers(10)
        if kind == 0:
            data = {"obs": rng.random((2, 3)), "action": rng.integers(9, size=2)}
            if rng.random() < 0.3:
                del data["action"]
            answer = outcome(client.insert_batch, data, {table: None}, 0)
        elif kind <= 3:
            writer = int(rng.integers(2))
            sent = message(writer, sequences[writer], table, int(rng.integers(1, 3)))
            answer = outcome(send, server, sent, 0)
            sequences[writer] += answer[0] == "list" and rng.random() < 0.9
            if answer[0] == "UnknownWriter" or rng.random() < 0.1:
                forget(server, writer)
                sequences[writer] = 0
        elif kind <= 5:
            size = [0, 1, 2, 3, 4, 10**30, 1.5][rng.choice(7, p=[0.1, *[0.2] * 4, 0.05, 0.05])]
            answer = outcome(server.sample, table, size, 0)
        elif kind == 6:
            keys = rng.choice([5, *server.items("replay").info.keys.tolist()], 3).tolist()
            priorities = rng.choice([0.5, 1.0, np.nan, -1.0], 3, p=[0.49, 0.49, 0.01, 0.01])
            as_dict = dict(zip(keys, priorities.tolist(), strict=True))
            updates = as_dict if rng.random() < 0.5 else (keys, priorities)
            answer = outcome(server.mutate_priorities, table, updates, keys[:1])
        elif kind == 7:
            answer = outcome(server.items, table)
        elif kind == 8:
            limiters = (MinSize(2), Queue(4), SampleToInsertRatio(1.5, 1, 9.0), MinSize(99))
            answer = outcome(server.replace_limiter, table, limiters[rng.integers(len(limiters))])
        else:
            rare = rng.random()
            answer = outcome(*([server.reset, table] if rare < 0.1 else [server.save, file]))
            if rare > 0.8:
                answer = outcome(server.load, file)
        answers += [answer, plain(server.info())]
    return answers


@pytest.mark.parametrize("seed", range(3))
def test_a_random_program_has_the_same_answers_through_a_socket(
    seed: int, key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = random_program(small_server(), seed, 200, tmp_path / "saved")
    if seed == 2:
        monkeypatch.setattr("served.free_address", lambda folder: "127.0.0.1:0")
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        assert endpoint.address.startswith("127.0.0.1:") or seed < 2
        theirs = random_program(server, seed, 200, tmp_path / "saved")
    for step, (one, other) in enumerate(zip(here, theirs, strict=True)):
        assert one == other, f"answer {step}"
    kinds = {answer[0] for answer in here if isinstance(answer, tuple)}
    assert {"list", "Sample", "TimeoutError", "KeyError", "ValueError"} <= kinds, "a program that does much"
    assert ("int", "1") in here, "priorities of items that are there, too"


@pytest.fixture
def over_relay(key: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A server behind a relay, and a handle that takes it for one of another host."""
    monkeypatch.setitem(addresses.SOCKET_OPTIONS, "heartbeat_ivl", 200)
    monkeypatch.setitem(addresses.SOCKET_OPTIONS, "heartbeat_timeout", 600)
    served = small_server()
    with Endpoint(served, "127.0.0.1:0") as endpoint, closing(Relay(endpoint.address)) as relay:
        endpoint.is_local = False
        with RemoteServer(relay.address) as server:
            server._sessions[-1]._is_local = False
            yield SimpleNamespace(served=served, endpoint=endpoint, server=server, relay=relay)


def test_a_call_goes_on_wherever_its_connection_was_cut(over_relay: SimpleNamespace) -> None:
    """Some bytes further each time, through the handshake, the call and its reply."""
    served, server, relay = over_relay.served, over_relay.server, over_relay.relay
    session = server._sessions[-1]
    for round_, cut_at in enumerate(range(3, 2400, 271)):
        session._idle.clear()
        relay.passed, relay.cut_at = 0, cut_at
        keys = send(server, message(round_, 0, "queue", 2))
        relay.cut_at = None
        assert server.sample("queue", 2).info.keys.tolist() == keys
    assert served.info()["queue"].inserts == served.info()["queue"].samples == 2 * (round_ + 1)


def test_a_call_that_waits_goes_on_after_its_connection_was_cut(over_relay: SimpleNamespace) -> None:
    served, server = over_relay.served, over_relay.server
    with calling(server.sample, "queue", 1) as samples:
        until(lambda: served.info()["queue"].waiting_samples == 1)
        count = len(over_relay.relay._ends)
        over_relay.relay.cut_all()
        until(lambda: len(over_relay.relay._ends) >= 2 * count)  # all have connected again
        send(served, message(1, 0, "queue"))
    assert samples[0][0] == "Sample"
    assert served.info()["queue"].samples == 1


def test_a_call_is_repeated_if_its_connection_is_lost_between_two_frames(
    over_relay: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or while it is repeated."""
    relay, sent = over_relay.relay, itertools.count()

    def send(lane: handle.Lane, *arguments: Any, **options: Any) -> Any:
        if next(sent) in (1, 3):
            count, relay.refuses = len(relay._ends), True
            relay.cut_all()
            until(lambda: len(relay._ends) > count)  # the client has noticed the loss
            relay.refuses = False
            lane.getsockopt(zmq.EVENTS)
        return zmq.Socket.send(lane, *arguments, **options)

    monkeypatch.setattr(handle.Lane, "send", send)
    updates = np.arange(9000), np.ones(9000)  # frames of their own
    with calling(over_relay.server.mutate_priorities, "replay", updates) as outcomes:
        until(lambda: bool(outcomes))
    assert outcomes == [("int", "9000")]


def test_a_network_that_is_silent_for_some_time_loses_nothing(over_relay: SimpleNamespace) -> None:
    send(over_relay.server, message(1, 0))
    with over_relay.relay._lock, calling(send, over_relay.server, message(1, 1)) as keys:
        time.sleep(1.0)  # longer than the heartbeats allow
        over_relay.relay._lock.release()
        until(lambda: bool(keys))
        over_relay.relay._lock.acquire()
    assert plain([1]) == keys[0]
    assert over_relay.served.info()["replay"].inserts == 2


def test_a_handle_that_was_away_too_long_is_told(
    over_relay: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writers are closed; a first message, sent again, must not begin a new one."""
    send(over_relay.server, message(3, 0))
    monkeypatch.setattr("replay_tutorial.tables.remote.endpoint.GRACE_SECONDS", 0.0)
    over_relay.relay.refuses = True
    over_relay.relay.cut_all()
    until(lambda: not over_relay.endpoint._sessions)
    over_relay.relay.refuses = False
    with pytest.raises(ServerLost, match="doesn't know this handle"):
        send(over_relay.server, message(3, 0))
    assert over_relay.served.info()["replay"].inserts == 1


def test_a_handle_of_another_host_that_is_closed_ends_its_session_although_all_lanes_wait(
    over_relay: SimpleNamespace,
) -> None:
    """Otherwise its writers would be kept for a minute."""
    with calling(over_relay.server.sample, "queue", 1) as outcomes:
        until(lambda: over_relay.served.info()["queue"].waiting_samples == 1)
        assert not over_relay.server._sessions[-1]._idle
        over_relay.server.close()
        until(lambda: not over_relay.endpoint._sessions)
    assert outcomes == [CLOSED]


@pytest.mark.skipif(os.name != "posix", reason="there are no socket paths")
def test_a_relative_path_is_relative_to_the_folder_where_the_handle_was_made(
    key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path
        monkeypatch.chdir(folder)
        with Endpoint(small_server(), "socket"), RemoteServer("socket") as server:
            monkeypatch.chdir("/")
            assert server.info()["replay"].inserts == 0


@pytest.mark.parametrize(
    "is_path",
    [
        pytest.param(True, marks=pytest.mark.skipif(os.name != "posix", reason="there are no socket paths")),
        False,
    ],
)
def test_a_handle_that_makes_no_calls_for_long_is_not_lost(
    key: bytes, short_folder: Path, monkeypatch: pytest.MonkeyPatch, is_path: bool
) -> None:
    monkeypatch.setattr("replay_tutorial.tables.remote.endpoint.POLL_INTERVAL", 0.01)
    quick = {"rcvhwm": 5, "heartbeat_ivl": 200, "heartbeat_timeout": 1000}
    for name, value in quick.items():
        monkeypatch.setitem(addresses.SOCKET_OPTIONS, name, value)
    address = str(short_folder / "tables.sock") if is_path else "127.0.0.1:0"
    with Endpoint(small_server(), address) as endpoint, RemoteServer(endpoint.address) as server:
        send(server, message(1, 0))
        (session,) = endpoint._sessions.values()
        time.sleep(3.0)
        assert [*endpoint._sessions.values()] == [session]
        send(server, message(1, 1))


def test_a_call_goes_on_waiting_while_the_server_has_too_many_files_open(
    there: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with calling(there.server.sample, "queue", 1):
        until(lambda: there.served.info()["queue"].waiting_samples == 1)
        with monkeypatch.context() as patches:
            patches.setattr(os, "dup", fail)
            time.sleep(1.0)
        assert there.served.info()["queue"].waiting_samples == 1
        send(there.served, message(1, 0, "queue"))


@contextmanager
def interrupted(holds: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C in this thread as soon as something holds."""

    def wait() -> None:
        until(holds)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()


@needs_signals
def test_an_item_whose_call_was_interrupted_goes_in_once_with_flush(there: SimpleNamespace) -> None:
    served, server = there.served, there.server
    send(server, message(1, 0, "queue", 4))
    writer = Client(server).writer(num_keep_alive_refs=2)
    for step in (4, 5):
        writer.append({"obs": np.full(3, step), "action": step})
    history = writer.history
    with interrupted(lambda: served.info()["queue"].waiting_inserts == 1):
        writer.create_item("queue", 1.0, {"pair": history["obs"][-2:], "action": history["action"][-1]})
    until(lambda: served.info()["queue"].waiting_inserts == 0)
    with calling(writer.flush):
        until(lambda: served.info()["queue"].waiting_inserts == 1)
        server.sample("queue", 2)
    assert served.info()["queue"].inserts == 5
    assert served.items("queue").data["action"].tolist().count(5) == 1


def test_a_first_item_that_is_refused_leaves_its_writer_usable(there: SimpleNamespace) -> None:
    for server in (there.served, there.server):
        with Client(server).writer(1) as writer:
            writer.append({"obs": np.zeros(3), "action": 1})
            action = writer.history["action"][-1]
            match = r"There is no table 3|must be a string, not 3"
            for table, parts in [(3, {"action": action}), ("queue", {3: action})]:
                with pytest.raises((KeyError, TypeError), match=match):
                    writer.create_item(table, 1.0, parts)
            writer.create_item("queue", 1.0, {"action": action})


@pytest.mark.parametrize("timeout", [True, np.float32(60), np.int64(60)])
def test_a_first_item_may_have_a_timeout_of_any_number_type(there: SimpleNamespace, timeout: Any) -> None:
    for server in (there.server, there.served):
        with Client(server).writer(1) as writer:
            write(writer, {"action": 1}, "queue", timeout=timeout)
            write(writer, {"action": 1}, "queue")


def test_a_batch_s_priority_of_the_wrong_shape_is_the_same_error_as_here(there: SimpleNamespace) -> None:
    for server in (there.server, there.served):
        with pytest.raises(ValueError, match=r"must have the shape \(1,\), one per item, not \(\)"):
            Client(server).insert_batch({"action": [1]}, {"queue": 1.0})


def test_a_writer_that_is_dropped_is_closed_by_a_later_message(there: SimpleNamespace) -> None:
    dropped, other = (TrajectoryWriter(there.server, 1) for _ in range(2))
    for writer in (dropped, other):
        write(writer, {"action": 1}, "replay")
    (session,) = there.endpoint._sessions.values()
    assert len(session.writers) == 2
    del dropped, writer
    gc.collect()
    write(other, {"action": 2}, "replay")
    until(lambda: len(session.writers) == 1)


@needs_signals
@cells(6)
def test_a_writer_is_closed_although_its_only_call_was_interrupted(there: SimpleNamespace) -> None:
    send(there.served, message(1, 0, "queue", 4))
    with interrupted(lambda: there.served.info()["queue"].waiting_inserts == 1):
        send(there.server, message(2, 0, "queue"))
    assert not inserted(there.served, "replay")
    forget(there.server, 2)
    until(lambda: inserted(there.served, "replay"))


def test_no_item_is_lost_after_ctrl_c_while_an_episode_is_ended(there: SimpleNamespace) -> None:
    server, writer = there.server, TrajectoryWriter(there.server, 5)
    write(writer, {"action": 1}, "replay")
    with pytest.raises(KeyboardInterrupt), patch.object(server, "_send_close", side_effect=KeyboardInterrupt):
        writer.end_episode()
    write(writer, {"action": 2}, "replay")
    write(writer, {"action": 3}, "replay")
    assert there.served.info()["replay"].inserts == 3


def test_a_long_item_that_is_gone_does_not_count() -> None:
    """An answer is limited by the items that are there."""
    server = Server([table(max_size=2)], {"x": {"shape": 1000}}, 50)
    with TrajectoryWriter(server, 10) as writer:
        for _ in range(9):
            writer.append({"x": np.zeros(1000)})
        for length in (10, 1, 1):
            write(writer, {"x": np.zeros(1000)}, length=length)
    most = 3 * 4000
    with pytest.raises(ValueError, match="at most 2 items at once"):
        complete(server._sampling("t", 3, False, most), 0)
    assert len(complete(server._sampling("t", 2, False, most), 0)) == 2


def test_a_sample_that_outgrows_the_limit_while_it_waits_returns_what_was_drawn() -> None:
    server = Server([Table.queue("q", 5)], {"x": {"shape": 1000}}, 50)
    with TrajectoryWriter(server, 10) as writer, ThreadPoolExecutor(1) as pool:
        for _ in range(8):
            writer.append({"x": np.zeros(1000)})
        write(writer, {"x": np.zeros(1000)}, "q", length=1)
        sampled = pool.submit(complete, server._sampling("q", 3, False, 20_000), 60.0)
        until(lambda: server.info()["q"].samples == 1 and server.info()["q"].waiting_samples == 1)
        writer.create_item("q", 1.0, {"x": writer.history["x"][-9:]})
        assert sampled.result(300.0).data["x"].shape == (1, 1, 1000)
    with pytest.raises(ValueError, match="limit for one reply"):
        complete(server._sampling("q", 3, False, 20_000), 0)
    assert server.sample("q", 1).data["x"].shape == (1, 9, 1000)


def test_a_message_sent_again_after_an_abandoned_call_goes_in_once(there: SimpleNamespace) -> None:
    """As `flush` does after an interrupted call, while there is room for the items again."""
    served, server = there.served, there.server
    send(server, message(1, 0, "queue", 4))
    for round_ in range(30):
        sent, before = message(10 + round_, 0, "queue", 2), served.info()["queue"].inserts
        session, lane = sent_only(server, sent)
        if round_ % 2:
            until(lambda: served.info()["queue"].waiting_inserts == 1)
        with calling(lambda: [server.sample("queue", 1) for _ in range(2)]):
            time.sleep(0.0002 * (round_ % 7))
            session._release(lane)
            keys = send(server, sent, timeout=300)
        assert served.info()["queue"].inserts == before + 2
        assert set(keys) <= set(served.items("queue").info.keys.tolist())
        assert send(server, sent, timeout=0) == keys
    send(server, message(1, 1))
    with pytest.raises(ValueError, match="arrived after"):
        send(server, message(1, 0))


def test_an_abandoned_call_that_arrives_late_is_not_carried_out(there: SimpleNamespace) -> None:
    """The client may have sent the message again elsewhere, and closed the writer by now."""
    session = there.server._sessions[-1]
    number, frames = session._pack(call_of(message(2, 0)))
    session._pending.discard(number)
    lane = session._acquire()
    there.server.info()
    codec.send(lane, frames)
    session._release(lane)
    send(there.server, message(1, 0))
    assert there.served.info()["replay"].inserts == 1


def test_a_reply_to_a_call_that_waited_is_freed_with_the_next_call(there: SimpleNamespace) -> None:
    """Without the garbage collector, because replies may be large."""
    with calling(there.server.sample, "queue", 1):
        until(lambda: there.served.info()["queue"].waiting_samples == 1)
        (session,) = there.endpoint._sessions.values()
        gc.disable()
        waiter = weakref.ref(next(iter(session.calls.values())).waiter)
        Client(there.served).insert({"obs": np.zeros(3)}, {"queue": 1.0})
    there.server.info()
    try:
        assert waiter() is None
    finally:
        gc.enable()


def test_a_client_is_served_while_two_others_exchange_many_items(key: bytes, tmp_path: Path) -> None:
    """Each of the two waits for the other 2,000 times."""
    count = 8_000
    server = Server([Table.queue("q", 4)], {"x": {}}, count)
    with serving(server, tmp_path) as endpoint, RemoteServer(endpoint.address) as remote:
        batch = {"x": np.zeros(count)}
        with calling(Client(remote).insert_batch, batch, {"q": None}), calling(remote.sample, "q", count):
            until(lambda: server.info()["q"].samples > 0)
            assert remote.info()["q"].samples < count


CLOSED = ("Closed", "This handle was closed. Create a new one.")


def test_a_handle_that_is_closed_ends_the_calls_of_other_threads(there: SimpleNamespace) -> None:
    with calling(there.server.sample, "queue", 1, times=3) as outcomes:
        until(lambda: there.served.info()["queue"].waiting_samples == 3)
        there.server.close()
    assert outcomes == [CLOSED] * 3
    until(lambda: not there.endpoint._sessions)


def test_a_handle_that_is_closed_while_threads_begin_to_call_leaves_no_connection(endpoint: Endpoint) -> None:
    for round_ in range(20):
        server = RemoteServer(endpoint.address)
        with calling(server.info, times=4):
            time.sleep(0.0005 * (round_ % 5))
            server.close()
    until(lambda: not endpoint._sessions)


@pytest.mark.filterwarnings("ignore:Unclosed socket:ResourceWarning")  # of an interrupted constructor
def test_ctrl_c_at_any_line_of_a_call_leaves_a_usable_handle(there: SimpleNamespace) -> None:
    """Of a call that makes a connection; a line further each time."""
    session = there.server._sessions[-1]
    for line in itertools.count(1):
        session._idle.clear()
        with suppress(KeyboardInterrupt):
            count = lines_of(there.server.info, line, ("replay_tutorial.tables.remote.handle",))
            break
        assert there.server.info()["queue"].size == 0
    assert count > 30, "the call was carried out in the end"


@pytest.mark.skipif(os.name != "posix", reason="there are no pipes in the file system")
def test_what_is_no_file_is_not_loaded(there: SimpleNamespace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="regular file"):
            there.server.load(path)
    with pytest.raises(OSError, match="No such file"):
        there.server.load(tmp_path / "none")


def hold_and_wait(address: str, child_id: Any) -> None:
    """Hold all cells but one as a writer, and wait for an item that never comes; a child has its sockets."""
    server = RemoteServer(address)
    send(server, filling(49))
    child = FORK.Process(target=time.sleep, args=(60,))
    child.start()
    child_id.send(child.pid)
    server.sample("queue", 1)


@cells(50)
def test_a_killed_client_leaves_nothing_held_although_its_child_lives(there: SimpleNamespace) -> None:
    served, (ours, theirs) = there.served, FORK.Pipe()
    client = FORK.Process(target=hold_and_wait, args=(there.endpoint.address, theirs))
    client.start()
    until(lambda: served.info()["queue"].waiting_samples == 1, 120.0)
    client.kill()
    client.join()
    assert inserted(served), "one cell is free"
    until(lambda: inserted(served))
    until(lambda: served.info()["queue"].waiting_samples == 0)
    assert served.info()["queue"].size == 2, "the dead one has taken nothing"
    os.kill(ours.recv(), signal.SIGTERM)


def serve_until_killed(folder: Path, address: Any) -> None:
    with serving(small_server(), folder) as endpoint:
        address.send(endpoint.address)
        time.sleep(600)


def test_a_killed_server_is_reported_within_a_second(key: bytes, tmp_path: Path) -> None:
    """To those who wait, and to those who call later."""
    seconds = [math.inf]
    while min(seconds) >= 1.0 and len(seconds) < 100:  # the machine may stop a test
        folder = tmp_path / str(len(seconds))
        folder.mkdir()
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=serve_until_killed, args=(folder, theirs))
        process.start()
        server = RemoteServer(ours.recv())
        with calling(server.sample, "queue", 1, times=3) as waiting:
            until(lambda server=server: server.info()["queue"].waiting_samples == 3)
            begin = time.monotonic()
            process.kill()
        to_those_who_wait = time.monotonic() - begin
        process.join()
        begin = time.monotonic()
        late = outcome(Client(server).insert, {"obs": np.zeros(3), "action": 1}, {"queue": 1.0})
        seconds.append(max(to_those_who_wait, time.monotonic() - begin))
        assert [kind for kind, _ in [*waiting, late]] == ["ServerLost"] * 4
        assert "There is no server at" in late[1] or "has exited" in late[1]
    assert min(seconds) < 1.0


def test_another_server_at_the_same_address_is_not_taken_for_the_old_one(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint:
        server = RemoteServer(endpoint.address)
        send(server, message(3, 0))
        place = endpoint.address
    with serving(small_server(), tmp_path) as endpoint:
        if endpoint.address == place:
            with pytest.raises(ServerLost, match=r"doesn't know this handle|has exited"):
                send(server, message(3, 0))
            assert endpoint._server.info()["replay"].inserts == 0


def test_a_server_of_another_version_is_reported_at_once(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error after which no further attempt is made, for none would help."""
    monkeypatch.setattr(handle, "codec", SimpleNamespace(**vars(codec) | {"VERSION": 5}))
    with pytest.raises(ConnectionError, match="incompatible version of this package") as error:
        RemoteServer(endpoint.address, timeout=0.0)
    assert not isinstance(error.value, ServerLost)


FORGETS_TO_CLOSE = """
import sys, threading, time
from replay_tutorial.tables import Endpoint, RemoteServer, Server, Table
server = Server([Table.queue("q", 3)], {"x": {}}, 9)
handle = RemoteServer(Endpoint(server, sys.argv[1]).address)
threading.Thread(target=handle.sample, args=("q", 1), daemon=True).start()
while not server.info()["q"].waiting_samples:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("address", ["127.0.0.1:0", pytest.param("socket", marks=needs_signals)])
def test_a_program_that_closes_nothing_ends(key: bytes, short_folder: Path, address: str) -> None:
    command = [sys.executable, "-c", FORGETS_TO_CLOSE, address]
    subprocess.run(
        command, check=True, timeout=60, cwd=short_folder, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def test_closing_the_server_tells_those_who_wait(there: SimpleNamespace) -> None:
    with calling(there.server.sample, "queue", 1) as outcomes:
        until(lambda: there.served.info()["queue"].waiting_samples == 1)
        there.served.close()
    assert outcomes[0][0] == "Closed"


@cells(50)
def test_a_closed_handle_gives_back_what_its_writers_held(there: SimpleNamespace) -> None:
    send(there.server, filling(50))
    assert not inserted(there.served)
    there.server.close()
    until(lambda: inserted(there.served))
    with pytest.raises(Closed, match="handle was closed"):
        there.server.info()
    forget(there.server, 99)  # is no error
    there.endpoint.close()  # and again at the end of the fixture


def insert_some(server: RemoteServer, writer: int) -> None:
    for sequence in range(20):
        send(server, message(writer, sequence))
    forget(server, writer)


def test_a_handle_may_be_handed_to_other_processes(there: SimpleNamespace) -> None:
    """A forked one has its sockets."""
    server = there.server
    child = FORK.Process(target=insert_some, args=(server, 0))
    child.start()
    insert_some(server, 1)
    child.join()
    assert child.exitcode == 0
    assert server.info()["replay"].inserts == 40
    server._timeout = 7.0
    with pickle.loads(pickle.dumps(server)) as other:  # what spawn does
        assert other._timeout == 7.0
        insert_some(other, 1)
    assert server.info()["replay"].inserts == 60


def call_from_threads(server: RemoteServer) -> None:
    """Call from many threads, and end with the number of those that got no answer."""
    together = threading.Barrier(6)

    def call() -> dict[str, Any]:
        together.wait()
        for _ in range(5):
            answer = server.info()
        return answer

    with calling(call, times=6) as outcomes:
        pass
    os._exit(sum(not isinstance(answer, dict) for answer in outcomes))


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
@pytest.mark.parametrize("is_path", [True, False])
def test_a_forked_child_of_a_server_does_not_keep_or_free_its_address(
    key: bytes, short_folder: Path, is_path: bool
) -> None:
    """The child closes the endpoint, and lives longer than the endpoint."""
    address = str(short_folder / "tables.sock") if is_path else "127.0.0.1:0"
    with Endpoint(small_server(), address) as endpoint:
        ours, theirs = FORK.Pipe()
        child = FORK.Process(target=lambda: (endpoint.close(), theirs.send("closed"), time.sleep(300)))
        child.start()
        assert ours.poll(60.0)
        with RemoteServer(endpoint.address) as server:
            assert server.info()["replay"].size == 0
    try:
        Endpoint(small_server(), endpoint.address).close()
    finally:
        child.kill()
        child.join()


@pytest.mark.skipif(os.name != "posix", reason="is_gone looks at sockets only here")
def test_a_descriptor_that_was_reused_for_a_pipe_is_not_kept_open() -> None:
    """ZeroMQ closes the socket of a lost connection, and the next pipe gets its number."""
    for end in (ends := os.pipe()):
        assert addresses.is_gone(end)
    os.close(ends[1])
    assert os.read(ends[0], 1) == b"", "the writing end is still open"
    os.close(ends[0])


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_threads_of_a_forked_child_begin_one_session(there: SimpleNamespace) -> None:
    for _ in range(5):
        child = FORK.Process(target=call_from_threads, args=(there.server,))
        child.start()
        child.join(300)
        assert child.exitcode == 0


def test_more_than_a_call_may_hold_is_refused_before_it_is_sent(
    there: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay_tutorial.tables.remote.codec.MAX_CALL_BYTES", 500)
    with pytest.raises(ValueError, match="the limit is"):
        send(there.server, filling(50))
    assert there.server.info()["replay"].size == 0


def test_a_call_may_insert_more_items_than_a_call_may_have_text(key: bytes, tmp_path: Path) -> None:
    """The reply lists the keys; the first ones are shorter."""
    count = 250_000
    server = Server([table(max_size=count)], {"x": {}}, count)
    with serving(server, tmp_path) as endpoint, RemoteServer(endpoint.address) as remote:
        keys = Client(remote).insert_batch({"x": np.zeros(count)}, {"t": None})["t"]
    assert keys == list(range(count))
