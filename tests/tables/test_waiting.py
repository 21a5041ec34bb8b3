"""Who waits for whom, with threads: timeouts, lines, closing, resetting, another limiter, warnings."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Sent, forget, send, serving, table, until

from replay_tutorial.tables import (
    Client,
    Closed,
    MinSize,
    RateLimiter,
    SampleToInsertRatio,
    Server,
    Table,
    UnknownWriter,
)
from replay_tutorial.tables.core.message import ColumnSlice, NewItems, Part
from replay_tutorial.tables.core.waiting import Waiter, WaitQueue

PATIENCE = 300.0  # seconds until a test gives up on a thread


SERVERS: list[Server] = []


def server_of(*tables: Table, patience: float = float("inf")) -> Server:
    """A server whose waiting calls look again only when they are woken."""
    columns = {"x": {"dtype": np.int64}}
    SERVERS.append(Server(tables, columns, 10_000, seed=0, patience=patience))
    return SERVERS[-1]


def full_queue() -> Server:
    """A server whose queue of 1 holds the value 0."""
    server = server_of(Table.queue("q", 1))
    send(server, message(9, 0, "q", [0]))
    return server


def message(writer: int, sequence: int, table: str, values: list[int]) -> Sent:
    """Each value as an item."""
    first = 100 * sequence
    run = ColumnSlice("x", first, np.array(values))
    steps = np.arange(first, first + len(values))[:, None]
    items = [NewItems(table, None, (Part("x", "x", 1, True),), steps)]
    return Sent(writer, sequence, [run], items, first + len(values))


@pytest.fixture
def start() -> Iterator[Callable[..., "Future[Any]"]]:
    with ThreadPoolExecutor(16) as pool:
        yield pool.submit
        while SERVERS:
            SERVERS.pop().close()  # so that no thread waits when a test has failed


def waiting(server: Server, table: str) -> tuple[int, int]:
    info = server.info()[table]
    return info.waiting_inserts, info.waiting_samples


@pytest.fixture(params=[False, True], ids=["here", "far"])
def near_or_far(request: Any, key: bytes, tmp_path: Path) -> Iterator[Any]:
    """A server with a queue of 4, and a client of it: with the server itself, or with a handle."""
    server = server_of(Table.queue("q", 4))
    with serving(server, tmp_path) as endpoint:
        yield server, Client(endpoint.address if request.param else server)


@pytest.mark.parametrize("timeout", [0, 0.0, 0.05])
def test_a_timeout_means_the_same_everywhere(near_or_far: Any, timeout: float) -> None:
    server, client = near_or_far
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"sample\('q'\) waits for more inserts"):
        client.sample("q", 1, timeout=timeout)
    client.insert_batch({"x": [1, 2, 3, 4]}, {"q": None}, timeout=timeout)
    with pytest.raises(TimeoutError, match=r"insert\('q'\) waits for more samples"):
        client.insert({"x": 5}, {"q": 1.0}, timeout=timeout)
    assert 2 * timeout <= time.monotonic() - begin < PATIENCE
    assert client.sample("q", 5, timeout=timeout).data["x"].tolist() == [1, 2, 3, 4]
    until(lambda: server._cells.free_count(0) == 10_000)  # what did not get in leaves nothing behind


def test_a_timeout_speaks_only_of_the_bounds_that_there_are() -> None:
    server = server_of(
        table("free", rate_limiter=MinSize(3)),
        table("bound", rate_limiter=RateLimiter(2.0, 1, 2.0, sys.float_info.max)),
    )
    Client(server).insert({"x": 1}, {"free": 1.0, "bound": 1.0})
    with pytest.raises(TimeoutError, match=r"size 1, min_size 3; 0 deletes\.$"):
        server.sample("free", 1, timeout=0)
    with pytest.raises(TimeoutError, match=r"= 2 \(limits: at least 2\); 0 deletes"):
        server.sample("bound", 1, timeout=0)


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused(near_or_far: Any, timeout: float) -> None:
    _, client = near_or_far
    with pytest.raises(ValueError, match="timeout must be at least 0"):
        client.sample("q", 1, timeout)
    with pytest.raises(ValueError, match="timeout must be at least 0"):
        send(client.server, message(1, 0, "q", [1]), timeout)


@pytest.mark.parametrize("never", [float("inf"), 1e11])
def test_infinity_is_never_and_a_count_of_numpys_is_a_count(never: float, start: Any, tmp_path: Path) -> None:
    """Python's own locks wait for 292 years at most, or on Windows for 49 days."""
    server = server_of(Table.queue("q", 9), patience=never)
    sampled = start(server.sample, "q", np.int64(2), never, True)
    until(lambda: waiting(server, "q") == (0, 1))
    send(server, message(1, 0, "q", [1]))
    assert sampled.result(PATIENCE).data["x"].tolist() == [1]
    assert type(server.info()["q"].samples) is int
    server.save(tmp_path / "tables.npz")


def test_a_sample_waits_for_all_its_items(start: Any, near_or_far: Any) -> None:
    """A limiter may let them out one by one: a queue of 4 gives a batch of 32 in pieces."""
    _, client = near_or_far
    sample = start(client.sample, "q", 32, PATIENCE)
    for value in range(0, 32, 2):
        client.insert_batch({"x": [value, value + 1]}, {"q": None}, PATIENCE)
    whole = sample.result(PATIENCE)
    assert whole.data["x"].tolist() == list(range(32)) and len(set(whole.info.keys.tolist())) == 32
    client.insert_batch({"x": [1, 2, 3]}, {"q": None})
    assert client.sample("q", 32, partial=True).data["x"].tolist() == [1, 2, 3], "what is there"
    client.insert_batch({"x": [4]}, {"q": None})
    assert client.sample("q", 32, timeout=0.05).data["x"].tolist() == [4], "these have been counted"


def test_a_sample_that_waits_when_the_server_is_closed_returns_what_was_drawn(start: Any) -> None:
    server = server_of(Table.queue("q", 4))
    sampled = start(server.sample, "q", 3)
    Client(server).insert({"x": 7}, {"q": 1.0})
    until(lambda: server.info()["q"].samples == 1 and waiting(server, "q") == (0, 1))
    server.close()
    assert sampled.result(PATIENCE).data["x"].tolist() == [7], "the table has counted it"
    with pytest.raises(Closed):
        server.sample("q", 3)


def test_inserts_wait_in_line_for_samples(start: Any) -> None:
    server = full_queue()
    inserts = []
    for writer in range(5):
        inserts.append(start(send, server, message(writer, 0, "q", [writer + 1])))
        until(lambda: waiting(server, "q")[0] == len(inserts))
    drawn = [server.sample("q", 1).data["x"].item() for _ in range(6)]
    assert drawn == [0, 1, 2, 3, 4, 5], "first come, first served"
    assert [len(insert.result(PATIENCE)) for insert in inserts] == [1] * 5


def test_a_call_that_comes_late_does_not_overtake_one_whose_turn_has_come(start: Any) -> None:
    server = full_queue()
    first = start(send, server, message(1, 0, "q", [1]))
    until(lambda: waiting(server, "q") == (1, 0))
    with server._lock:  # so that the first one is woken, and can't go on yet
        assert server.sample("q", 1).data["x"].tolist() == [0]
        with pytest.raises(TimeoutError):
            send(server, message(2, 0, "q", [2]), timeout=0)
    first.result(PATIENCE)
    assert server.items("q").data["x"].tolist() == [1]


def test_after_a_timeout_the_message_goes_on_where_it_stopped(near_or_far: Any) -> None:
    server, client = near_or_far
    sent = message(1, 0, "q", [1, 2, 3, 4, 5])
    with pytest.raises(TimeoutError):
        send(client.server, sent, timeout=0)
    with pytest.raises(ValueError, match="is not finished"):
        send(client.server, message(1, 1, "q", [6]), timeout=0)
    assert server.sample("q", 9, partial=True).data["x"].tolist() == [1, 2, 3, 4]
    keys = send(client.server, sent, timeout=0)
    assert len(keys) == 5 and send(client.server, sent, timeout=0) == keys, "answered as before"
    assert server.sample("q", 9, partial=True).data["x"].tolist() == [5]
    assert send(client.server, sent, timeout=0) == keys
    assert server.info()["q"].inserts == 5


def test_a_message_sent_by_two_calls_at_once_goes_in_once(start: Any) -> None:
    server = server_of(Table.queue("q", 1))
    sent = message(1, 0, "q", list(range(10)))
    calls = [start(send, server, sent) for _ in range(4)]
    drawn = [server.sample("q", 1, PATIENCE).data["x"].item() for _ in range(10)]
    answers = [call.result(PATIENCE) for call in calls]
    assert drawn == list(range(10)) and all(answer == answers[0] for answer in answers)
    assert server.info()["q"].inserts == 10


def test_close_wakes_everybody_and_acknowledges_nothing(start: Any) -> None:
    server = server_of(Table.queue("q", 1), Table.queue("r", 1))
    send(server, message(9, 0, "q", [0]))
    calls = [start(send, server, message(writer, 0, "q", [1])) for writer in range(3)]
    calls += [start(server.sample, "r", 1) for _ in range(3)]
    until(lambda: waiting(server, "q")[0] == 3 and waiting(server, "r")[1] == 3)
    server.close()
    for call in calls:
        with pytest.raises(Closed):
            call.result(PATIENCE)
    assert server.info()["q"].inserts == 1 and server.items("q").data["x"].tolist() == [0]
    for refused in (
        lambda: send(server, message(9, 1, "q", [1])),
        lambda: server.sample("q", 1),
        lambda: server.mutate_priorities("q", {0: 1.0}),
        lambda: server.reset("q"),
        lambda: server.replace_limiter("q", MinSize(1)),
    ):
        with pytest.raises(Closed):
            refused()


@pytest.mark.parametrize(
    "change",
    [
        lambda server: server.reset("t"),
        lambda server: server.mutate_priorities("t", deletes=[0, 1]),  # below min_size, inserts are free
        lambda server: server.replace_limiter("t", MinSize(1)),
    ],
)
def test_any_change_lets_a_waiting_insert_in(start: Any, change: Callable[[Server], object]) -> None:
    server = server_of(table(rate_limiter=SampleToInsertRatio(1, 2, 1)))
    send(server, message(9, 0, "t", [0, 1, 2]))
    insert = start(send, server, message(1, 0, "t", [3]))
    until(lambda: waiting(server, "t") == (1, 0))
    change(server)
    insert.result(PATIENCE)
    assert 3 in server.items("t").data["x"]


def test_another_limiter_lets_a_waiting_sample_out(start: Any) -> None:
    server = server_of(table(rate_limiter=MinSize(5)))
    send(server, message(8, 0, "t", [0]))
    sample = start(server.sample, "t", 1)
    until(lambda: waiting(server, "t") == (0, 1))
    server.replace_limiter("t", MinSize(1))
    sample.result(PATIENCE)
    with pytest.raises(ValueError, match="could ever be sampled"):
        server.replace_limiter("t", MinSize(10))


def test_closing_a_writer_ends_its_call_at_once_wherever_it_stands(start: Any) -> None:
    """Nobody may go; first one in the middle is closed, then the first, whose message is half in."""
    server, calls = server_of(Table.queue("q", 1)), []
    for writer in (1, 2, 3):
        calls.append(start(send, server, message(writer, 0, "q", [0, 1] if writer == 1 else [writer])))
        until(lambda: waiting(server, "q") == (len(calls), 0))
    for writer in (2, 1):
        forget(server, writer)
        with pytest.raises(UnknownWriter):
            calls[writer - 1].result(PATIENCE)
    assert waiting(server, "q") == (1, 0) and not calls[2].done()
    assert server.sample("q", 1).data["x"].tolist() == [0]
    calls[2].result(PATIENCE)  # the one behind them is not forgotten


def test_who_loses_patience_says_which_side_waits(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = server_of(Table.queue("q", 1), patience=0.01)
    with caplog.at_level("WARNING", "replay_tutorial"):
        sample = start(server.sample, "q", 1)
        until(lambda: bool(caplog.records))
        send(server, message(1, 0, "q", [1]))
        sample.result(PATIENCE)
        time.sleep(0.05)
    assert len(caplog.records) == 1
    text = caplog.records[0].getMessage()
    assert "sample('q') waits for more inserts" in text and "size 0, min_size 1" in text


def test_whoever_gives_up_does_not_stop_the_line(start: Any) -> None:
    server = server_of(Table.queue("q", 1))
    calls = [start(server.sample, "q", 1, 0.05 if i % 2 else PATIENCE) for i in range(10)]
    for impatient in calls[1::2]:
        with pytest.raises(TimeoutError):
            impatient.result(PATIENCE)
    for value in range(5):
        send(server, message(value, 0, "q", [value]), PATIENCE)
    drawn = [call.result(PATIENCE).data["x"].item() for call in calls[::2]]
    assert sorted(drawn) == list(range(5))


def test_many_threads_do_all_things_at_once(start: Any) -> None:
    """Inserting, sampling, mutating, deleting, looking: in the end the counts fit and no cell leaks."""
    server = server_of(table(max_size=50, max_times_sampled=3), Table.queue("q", 10))

    def write() -> None:
        for value in range(150):
            Client(server).insert({"x": value}, {"t": 1.0, "q": 1.0}, PATIENCE)

    def mutate() -> None:
        for _ in range(150):
            keys = server.items("t").info.keys
            server.mutate_priorities("t", (keys, np.ones(len(keys))), keys[:1])

    def sample() -> None:
        for _ in range(100):
            assert (server.sample("t", 4, PATIENCE, partial=True).data["x"] >= 0).all()

    calls = [start(call) for call in (write, write, write, write, mutate, sample)]
    drained = 0
    while drained < 600:
        drained += len(server.sample("q", 7, PATIENCE, partial=True).info.keys)
    end = time.monotonic() + PATIENCE
    while not all(call.done() for call in calls) and time.monotonic() < end:
        Client(server).insert({"x": 1}, {"t": 1.0}, PATIENCE)  # for the sampler, which deletes
        time.sleep(0.002)
    for call in calls:
        call.result(PATIENCE)
    info = server.info()["t"]
    assert info.size == info.inserts - info.deletes
    assert server._cells.free_count(0) == 10_000 - info.size


def test_loading_ends_the_calls_of_writers_that_wait(start: Any, tmp_path: Path) -> None:
    server = full_queue()
    server.save(tmp_path / "file")
    calls = [start(send, server, message(writer, 0, "q", [1])) for writer in (1, 2)]
    until(lambda: waiting(server, "q") == (2, 0))
    server.load(tmp_path / "file")
    for call in calls:
        with pytest.raises(UnknownWriter):
            call.result(PATIENCE)


def test_a_ctrl_c_while_a_call_wakes_the_others_wakes_them(start: Any) -> None:
    server = full_queue()
    waits = start(send, server, message(2, 0, "q", [2]))
    until(lambda: waiting(server, "q") == (1, 0))

    def trace(frame: Any, event: str, argument: Any) -> None:
        if frame.f_code is WaitQueue.wake.__code__:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sys.settrace(trace)
        server.sample("q", 1)
    waits.result(PATIENCE)


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_a_ctrl_c_when_the_turn_has_come_leaves_it_to_the_next_one(start: Any, side: str) -> None:
    """The tracer raises where a Ctrl-C may: as the wait returns, before anything is done."""
    is_insert = side == "insert"
    server = full_queue() if is_insert else server_of(Table.queue("q", 1))

    def go(writer: int) -> object:
        return send(server, message(writer, 0, "q", [writer])) if is_insert else server.sample("q", 1)

    def interrupted() -> None:
        def trace(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code is Waiter.wait.__code__ and event == "return" and argument is None:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        with pytest.raises(KeyboardInterrupt):
            go(1)

    first = start(interrupted)
    until(lambda: sum(waiting(server, "q")) == 1)
    second = start(go, 2)
    until(lambda: sum(waiting(server, "q")) == 2)
    if is_insert:
        server.sample("q", 1)
    else:
        send(server, message(8, 0, "q", [0]))
    first.result(PATIENCE)
    second.result(PATIENCE)
