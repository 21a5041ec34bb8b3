"""A server in another process answers as one in this process does, also if connections are cut."""

import gc
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import KEY, Relay, free_address, key, serving, small_server

from replay_tutorial.tables import (
    CapacityError,
    Client,
    Closed,
    Endpoint,
    MinSize,
    Queue,
    RemoteServer,
    Sample,
    SampleToInsertRatio,
    Server,
    ServerLost,
    TrajectoryDataset,
    UnknownWriter,
)
from replay_tutorial.tables.core.message import Message, NewItems, Part, Run
from replay_tutorial.tables.remote.codec import HELLO, pack
from replay_tutorial.tables.remote.local_socket import dial

__all__ = ["key"]  # a fixture

ERRORS = (LookupError, TypeError, ValueError, OSError, RuntimeError, MemoryError)  # that a call may raise
PAIR = (Part("pair", "obs", 2), Part("act", "act", 1, True))


def message(writer: int, sequence: int, table: str = "replay", items: int = 1) -> Message:
    """Three steps, and items of two of them; step 3 · sequence - 1 is kept for the next message."""
    first = 3 * sequence
    values = np.arange(first, first + 3)
    runs = [Run("obs", first, np.repeat(values[:, None], 3, 1).astype(np.float32)), Run("act", first, values)]
    steps = np.tile([[max(first - 1, 0), first + 1, first]], (items, 1))
    return Message(writer, sequence, runs, [NewItems(table, np.full(items, 2.0), PAIR, steps)], first + 2)


def plain(value: Any) -> Any:
    """Anything that a call returns, so that == compares it bit for bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value).__name__, [plain(one) for one in value]
    if isinstance(value, Sample):  # the order of a set is not the same in two processes
        parts = value.info, value.data, value.lengths, sorted(value.squeezed)
        return type(value).__name__, [plain(part) for part in parts]
    return type(value).__name__, repr(value)


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or raises."""
    try:
        return plain(call(*arguments))
    except ERRORS as error:
        return type(error).__name__, str(error)


def random_program(server: Any, seed: int, steps: int, file: Path) -> list[Any]:
    """Call whatever can be called, in any order, also wrongly; return all answers."""
    client, rng = Client(server), np.random.default_rng(seed)
    sequences, answers = [0, 0], list[Any]()
    for _ in range(steps):
        table = ["replay", "queue", "replay", "nowhere"][rng.integers(3 + (rng.random() < 0.1))]
        kind = rng.integers(10)
        if kind == 0:
            data = {"obs": rng.random((2, 3)), "act": rng.integers(9, size=2)}
            if rng.random() < 0.3:
                del data["act"]
            answer = outcome(client.insert_batch, data, {table: None}, 0)
        elif kind <= 3:
            writer = int(rng.integers(2))
            sent = message(writer, sequences[writer], table, int(rng.integers(1, 3)))
            answer = outcome(server.insert, sent, 0)
            sequences[writer] += answer[0] == "list" and rng.random() < 0.9
            if answer[0] == "UnknownWriter" or rng.random() < 0.1:
                server.close_writer(writer)
                sequences[writer] = 0
        elif kind <= 5:
            answer = outcome(server.sample, table, int(rng.integers(0, 5)), 0)
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


@pytest.mark.parametrize("seed", range(4))
def test_a_random_program_has_the_same_answers_through_a_socket(
    seed: int, key: bytes, tmp_path: Path
) -> None:
    here = random_program(small_server(), seed, 250, tmp_path / "saved")
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        there = random_program(server, seed, 250, tmp_path / "saved")
    for step, (ours, theirs) in enumerate(zip(here, there, strict=True)):
        assert ours == theirs, f"answer {step}"
    kinds = {answer[0] for answer in here if isinstance(answer, tuple)}
    assert {"list", "Sample", "TimeoutError", "KeyError", "ValueError"} <= kinds, "a program that does much"
    assert ("int", "1") in here, "priorities of items that are there, too"


def test_an_address_may_be_a_port(key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("served.free_address", lambda folder: "127.0.0.1:0")
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        assert endpoint.address.startswith("127.0.0.1:")
        file = tmp_path / "saved"
        assert random_program(server, 0, 50, file) == random_program(small_server(), 0, 50, file)


def test_a_message_whose_connection_was_cut_anywhere_goes_in_once_when_it_is_sent_again(
    key: bytes, tmp_path: Path
) -> None:
    """A byte further each time, through challenges, hello, call and answer."""
    sent, whole = message(7, 0, "queue", 2), 0
    for cut_at in [None, *range(3, 5000, 29)]:
        served = small_server()
        with serving(served, tmp_path) as endpoint:
            relay = Relay(endpoint.address, tmp_path)
            with RemoteServer(relay.address) as server:
                relay.passed, relay.cut_at = 0, cut_at
                try:
                    assert server.insert(sent) == [0, 1]
                    assert cut_at is None or cut_at >= whole, "it was cut, and the call went on"
                except ServerLost:
                    assert server.insert(sent) == [0, 1], f"cut after {cut_at} bytes"
                whole = relay.passed if cut_at is None else whole
                relay.cut_at = None
                assert server.insert(message(7, 1, "queue")) == [2]
            relay.close()
        assert served.info()["queue"].inserts == 3
        if cut_at is not None and cut_at > whole:
            break
    assert 500 < whole < 4900


def recorded(server: Any) -> list[Any]:
    """What a writer makes of steps, and a dataset of the items."""
    client = Client(server)
    with client.writer(num_keep_alive_refs=3) as writer:
        for step in range(12):
            writer.append({"obs": np.full(3, step), "act": step})
            if step > 1:
                history = writer.history
                pair = {"pair": history["obs"][[-3, -1]], "act": history["act"][-1]}
                writer.create_item("replay", step, pair)
    return [plain(batch) for batch in TrajectoryDataset(client, "replay", 4, max_samples=20)]


def test_writers_and_datasets_work_as_in_this_process(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        assert recorded(server) == recorded(small_server())


def full_message(steps: int) -> Message:
    """A message that needs every cell of the column obs."""
    items = [NewItems("replay", None, (Part("obs", "obs", 1),), np.zeros((1, 1), np.int64))]
    return Message(99, 0, [Run("obs", 0, np.zeros((steps, 3), np.float32))], items, steps)


def test_a_handle_whose_connections_were_all_cut_is_told(key: bytes, tmp_path: Path) -> None:
    """Its writers are closed; a first message, sent again, must not begin a new one."""
    served = small_server()
    with serving(served, tmp_path) as endpoint:
        relay = Relay(endpoint.address, tmp_path)
        with RemoteServer(relay.address) as server:
            server.insert(message(3, 0))
            relay.cut_all()
            with pytest.raises(ServerLost, match="has ended"):
                server.insert(message(3, 0))
            until(lambda: not endpoint._threads)  # each closes its writers before it ends
            with pytest.raises(ServerLost, match="its writers were closed"):
                server.insert(message(3, 0))
            with RemoteServer(relay.address) as other, pytest.raises(UnknownWriter):
                other.insert(message(3, 1))
        relay.close()
    assert served.info()["replay"].inserts == 1


@contextmanager
def interrupted(holds: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C in this thread as soon as something holds."""

    def wait() -> None:
        until(holds)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(os.name != "posix", reason="a signal interrupts no call there")
class TestInterrupted:
    def test_an_item_whose_call_was_interrupted_goes_in_once_with_flush(
        self, key: bytes, tmp_path: Path
    ) -> None:
        served = small_server()
        with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
            server.insert(message(1, 0, "queue", 4))
            writer = Client(server).writer(num_keep_alive_refs=2)
            for step in (4, 5):
                writer.append({"obs": np.full(3, step), "act": step})
            history = writer.history
            with interrupted(lambda: served.info()["queue"].waiting_inserts == 1):
                writer.create_item("queue", 1.0, {"pair": history["obs"][-2:], "act": history["act"][-1]})
            until(lambda: served.info()["queue"].waiting_inserts == 0, 1.0)
            flush = threading.Thread(target=writer.flush)
            flush.start()
            until(lambda: served.info()["queue"].waiting_inserts == 1)
            server.sample("queue", 2)
            flush.join()
            assert served.info()["queue"].inserts == 5
            assert served.items("queue").data["act"].tolist().count(5) == 1

    def test_the_end_of_a_connection_is_seen_although_a_child_holds_it(
        self, key: bytes, tmp_path: Path
    ) -> None:
        served = small_server()
        with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
            server.info()
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
            child.start()  # it has the parent's sockets
            with interrupted(lambda: served.info()["queue"].waiting_samples == 1):
                server.sample("queue", 1)
            until(lambda: served.info()["queue"].waiting_samples == 0, 1.0)
            child.kill()
            child.join()

    def test_a_writer_is_closed_although_its_only_call_was_interrupted(
        self, key: bytes, tmp_path: Path
    ) -> None:
        served = small_server(capacity=6)
        with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
            served.insert(message(1, 0, "queue", 4))
            with interrupted(lambda: served.info()["queue"].waiting_inserts == 1):
                server.insert(message(2, 0, "queue"))
            assert not inserted(served, "replay")
            server.close_writer(2)
            until(lambda: inserted(served, "replay"), 1.0)


def test_a_message_sent_again_while_the_first_call_goes_on_goes_in_once(key: bytes, tmp_path: Path) -> None:
    """As `flush` does after an interrupted call, while there is room for the items again."""
    served = small_server()
    with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        server.insert(message(1, 0, "queue", 4))
        for round_ in range(30):
            sent, before = message(10 + round_, 0, "queue", 2), served.info()["queue"].inserts
            wire = server._connect(held(server)[1])[0]
            wire.send(pack("insert", [sent, None]))
            if round_ % 2:
                until(lambda: served.info()["queue"].waiting_inserts == 1)
            sampling = threading.Thread(target=lambda: [server.sample("queue", 1) for _ in range(2)])
            sampling.start()
            time.sleep(0.0002 * (round_ % 7))
            wire.cut()
            keys = server.insert(sent, timeout=300)
            sampling.join()
            assert served.info()["queue"].inserts == before + 2
            assert set(keys) <= set(served.items("queue").info.keys.tolist())
            assert server.insert(sent, timeout=0) == keys


def test_a_message_whose_sender_has_gone_is_not_begun(key: bytes, tmp_path: Path) -> None:
    """It may have sent the message again elsewhere, and closed the writer by now."""
    served = small_server()
    with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        server.info()
        with served._lock:  # the server hears, and can't go on
            wire = held(server)[2][0]
            wire.send(pack("close_writer", [1]))
            wire.send(pack("insert", [message(2, 0), None]))
            wire.cut()
        until(lambda: len(endpoint._threads) == 1)
        assert served.info()["replay"].inserts == 0


def test_a_handle_that_is_closed_ends_the_calls_of_other_threads(key: bytes, tmp_path: Path) -> None:
    served, errors = small_server(), list[Exception]()
    with serving(served, tmp_path) as endpoint:
        server = RemoteServer(endpoint.address)

        def wait() -> None:
            try:
                server.sample("queue", 1)
            except ERRORS as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: served.info()["queue"].waiting_samples == 3)
        server.close()
        for thread in threads:
            thread.join(300)
        assert [type(error) for error in errors] == [Closed] * 3
        until(lambda: not endpoint._sessions and not endpoint._threads)


def test_a_handle_that_is_closed_while_threads_begin_to_call_leaves_no_connection(
    key: bytes, tmp_path: Path
) -> None:
    with serving(small_server(), tmp_path) as endpoint:
        for round_ in range(20):
            server = RemoteServer(endpoint.address)
            threads = [threading.Thread(target=outcome, args=(server.info,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.0005 * (round_ % 5))
            server.close()
            for thread in threads:
                thread.join(300)
                assert not thread.is_alive()
        until(lambda: not endpoint._sessions and not endpoint._threads)


def test_a_handle_that_is_closed_while_a_call_connects_ends_the_call(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint:
        relay = Relay(endpoint.address, tmp_path)
        server, outcomes = RemoteServer(relay.address), list[Any]()
        thread = threading.Thread(target=lambda: outcomes.append(outcome(server.info)))
        with relay._lock:  # nothing is passed on
            thread.start()
            until(lambda: len(endpoint._threads) == 2)
            server.close()
        thread.join(300)
        assert outcomes == [("Closed", "This handle was closed. Make another one.")]
        until(lambda: not endpoint._threads)
        relay.close()


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # a socket that was just made is closed as it is dropped
def test_ctrl_c_at_any_line_of_a_call_leaves_no_connection_that_nobody_uses(
    key: bytes, tmp_path: Path
) -> None:
    """Of a call that makes a connection; a line further each time."""
    lines = 0

    def interrupt(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if Path(frame.f_code.co_filename).name not in ("handle.py", "local_socket.py"):
            return None
        lines -= event == "line"
        if not lines:
            raise KeyboardInterrupt
        return interrupt

    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        for line in range(1, 1000):
            held(server)[2].clear()
            lines, before = line, sys.gettrace()
            sys.settrace(interrupt)
            try:
                server.info()
                break
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
            until(lambda: len(endpoint._threads) == 1 + len(held(server)[2]), 5.0)
        assert 30 < line < 999, "the call was carried out in the end"


def test_a_newcomer_that_goes_at_once_leaves_no_session(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint:
        for _ in range(50):
            wire = dial(endpoint.address)
            wire.prove(key, first=False)
            wire.send(pack(HELLO, ["", ""]))
            wire.close()
        until(lambda: not endpoint._threads)
        assert not endpoint._sessions


def test_a_connection_for_which_there_is_no_thread_is_refused_and_the_next_one_served(
    key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def fails(self: threading.Thread) -> None:
        if self.name == "tables client":
            raise RuntimeError("can't start new thread")
        start(self)

    with serving(small_server(), tmp_path) as endpoint:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fails)
            with pytest.raises(ServerLost):
                RemoteServer(endpoint.address, timeout=0.1)
        with RemoteServer(endpoint.address) as server:
            assert server.info()["queue"].size == 0


def test_a_sample_that_fits_into_no_answer_is_refused_before_it_is_drawn(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        server.insert(message(1, 0))
        with pytest.raises(ValueError, match=r"may take .* bytes; .* at most 3,\d{3},\d{3} items at once"):
            server.sample("replay", 10**9)
        assert server.info()["replay"].samples == 0
        assert len(server.sample("replay", 10_000).info.keys) == 10_000


@pytest.mark.skipif(os.name != "posix", reason="there are no pipes in the file system")
def test_what_is_no_file_is_not_loaded(key: bytes, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        for path in (tmp_path / "pipe", tmp_path):
            with pytest.raises(OSError, match="no regular file"):
                server.load(path)
        with pytest.raises(OSError, match="no such file to load"):
            server.load(tmp_path / "none")


def test_a_key_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    for short in (b"", b"fifteen letters"):
        with pytest.raises(ValueError, match="at least 16"):
            Endpoint(small_server(), free_address(tmp_path), short)


def hold_and_wait(address: str) -> None:
    """Hold all cells but one as a writer, and wait for an item that never comes."""
    server = RemoteServer(address)
    items = [NewItems("replay", None, (Part("obs", "obs", 1),), np.zeros((1, 1), np.int64))]
    values = np.zeros((49, 3), np.float32)
    server.insert(Message(5, 0, [Run("obs", 0, values)], items, 0))
    server.sample("queue", 1)


def test_a_killed_client_leaves_nothing_held(key: bytes, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    served = small_server(capacity=50)
    with serving(served, tmp_path) as endpoint:
        client = context.Process(target=hold_and_wait, args=(endpoint.address,))
        client.start()
        until(lambda: served.info()["queue"].waiting_samples == 1, 120.0)
        client.kill()
        client.join()
        assert inserted(served), "one cell is free"
        until(lambda: inserted(served), 1.0)
        until(lambda: served.info()["queue"].waiting_samples == 0, 1.0)
        assert served.info()["queue"].size == 2, "the dead one has taken nothing"


def held(server: RemoteServer) -> Any:
    """The first connection of this process, its session, and idle connections."""
    return server._held[os.getpid()]


def inserted(server: Server, table: str = "queue") -> bool:
    try:
        Client(server).insert({"obs": np.zeros(3)}, {table: 1.0})
    except CapacityError:
        return False
    return True


def until(holds: Callable[[], bool], seconds: float = 300.0) -> None:
    """Look each 10 ms. The looks are counted, not the time: a test that the machine stops does not look."""
    for _ in range(round(100 * seconds)):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {seconds} s")


CONFIG = """
address = "{}"
capacity = 1000
[columns]
obs = {{ shape = 3 }}
act = {{ shape = [], dtype = "int64" }}
[tables.queue]
kind = "queue"
max_size = 4
"""


def test_a_killed_server_is_reported_within_a_second(key: bytes, tmp_path: Path) -> None:
    """To those who wait, and to those who call later."""
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(free_address(tmp_path)))
    process = subprocess.Popen(
        [sys.executable, "-m", "replay_tutorial", "tables", "serve", str(config)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        address = process.stdout.readline().split()[-1]
        server, errors = RemoteServer(address), list[Exception]()

        def fail(call: Callable[..., Any], *arguments: Any) -> None:
            try:
                call(*arguments)
            except ERRORS as error:
                errors.append(error)

        waiting = [threading.Thread(target=fail, args=(server.sample, "queue", 1)) for _ in range(3)]
        for thread in waiting:
            thread.start()
        until(lambda: server.info()["queue"].waiting_samples == 3)
        process.kill()
        until(lambda: len(errors) == 3, 1.0)
        late = ({"obs": np.zeros(3), "act": 1}, {"queue": 1.0})
        threading.Thread(target=fail, args=(Client(server).insert, *late)).start()
        until(lambda: len(errors) == 4, 1.0)
        assert [type(error) for error in errors] == [ServerLost] * 4
        assert "There is no server at" in str(errors[3]) or "has ended" in str(errors[3])


def test_another_server_at_the_same_address_is_not_taken_for_the_old_one(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint:
        server = RemoteServer(endpoint.address)
        server.insert(message(3, 0))
        place = endpoint.address
    with serving(small_server(), tmp_path) as endpoint:
        if endpoint.address == place:
            with pytest.raises(ServerLost, match="has ended"):
                server.insert(message(3, 0))
            with pytest.raises(ServerLost, match="started again"):
                server.insert(message(3, 0))
            assert endpoint._server.info()["replay"].inserts == 0


def test_a_call_that_waits_holds_nobody_else_up(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(server.sample("queue", 2, partial=True)))
        thread.start()
        until(lambda: server.info()["queue"].waiting_samples == 1)
        for sequence in range(5):
            server.insert(message(1, sequence))
        assert not answers
        Client(server).insert({"obs": np.ones(3)}, {"queue": 1.0})
        thread.join(300)
        assert answers[0].info.keys.tolist() == [0]


def test_a_timeout_is_over_when_it_is_in_this_process(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        for timeout in (0.0, 0.4):
            seconds = [math.inf]
            while min(seconds) >= timeout + 0.5 and len(seconds) < 100:  # the machine may stop a test
                begin = time.monotonic()
                with pytest.raises(TimeoutError, match="waits for more inserts"):
                    server.sample("queue", 1, timeout=timeout)
                seconds.append(time.monotonic() - begin)
            assert timeout <= min(seconds) < timeout + 0.5
        with pytest.raises(ValueError, match="at least 0"):
            server.sample("queue", 1, timeout=-1)
        filled = message(1, 0, "queue", 4)
        server.insert(filled)
        late = message(2, 0, "queue", 2)
        with pytest.raises(TimeoutError, match="waits for more samples"):
            server.insert(late, timeout=0.1)
        server.sample("queue", 2)
        assert len(server.insert(late, timeout=0.1)) == 2
        assert server.info()["queue"].inserts == 6


def test_closing_the_server_tells_those_who_wait(key: bytes, tmp_path: Path) -> None:
    served, errors = small_server(), list[Exception]()
    with serving(served, tmp_path) as endpoint:
        server = RemoteServer(endpoint.address)

        def wait() -> None:
            try:
                server.sample("queue", 1)
            except ERRORS as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: served.info()["queue"].waiting_samples == 1)
        served.close()
    thread.join(300)
    assert [type(error) for error in errors] == [Closed]


def test_a_closed_handle_gives_back_what_its_writers_held(key: bytes, tmp_path: Path) -> None:
    served = small_server(capacity=50)
    with serving(served, tmp_path) as endpoint:
        with RemoteServer(endpoint.address) as server:
            server.insert(full_message(50)._replace(keep_from=0))
            assert not inserted(served)
        until(lambda: inserted(served), 2.0)
        with pytest.raises(Closed, match="handle was closed"):
            server.info()
        server.close_writer(99)  # is no error


def insert_some(server: RemoteServer, writer: int) -> None:
    for sequence in range(20):
        server.insert(message(writer, sequence))
    server.close_writer(writer)


def test_a_handle_may_be_handed_to_other_processes(key: bytes, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")  # fork keeps its sockets
    served = small_server()
    with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        children = [context.Process(target=insert_some, args=(server, writer)) for writer in range(1)]
        for child in children:
            child.start()
        insert_some(server, 1)
        for child in children:
            child.join()
            assert child.exitcode == 0
        assert server.info()["replay"].inserts == 40
        with pickle.loads(pickle.dumps(server)) as other:  # what spawn does
            insert_some(other, 1)
        assert server.info()["replay"].inserts == 60


def call_from_threads(server: RemoteServer) -> None:
    """Call from many threads, and end with the number of those that got no answer."""
    together, failed = threading.Barrier(6), list[Any]()

    def call() -> None:
        together.wait()
        for _ in range(5):
            answer = outcome(server.info)
            failed.extend([answer] if isinstance(answer, tuple) else [])

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(len(failed))


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_threads_of_a_forked_child_begin_one_session(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        for _ in range(10):
            child = multiprocessing.get_context("fork").Process(target=call_from_threads, args=(server,))
            child.start()
            child.join(300)
            assert child.exitcode == 0


def test_what_a_call_brings_after_the_end_of_its_session_goes_with_its_connection(
    key: bytes, tmp_path: Path
) -> None:
    served = small_server(capacity=50)
    with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        server.info()  # over another connection than the first, which is cut
        held(server)[0].cut()
        until(lambda: not endpoint._sessions)
        server.insert(full_message(50)._replace(keep_from=0))
        assert not inserted(served)
        server.close()
        until(lambda: inserted(served), 1.0)


def test_the_arrays_of_a_sample_are_the_callers_own(key: bytes, tmp_path: Path) -> None:
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        server.insert(message(1, 0))
        sample = server.sample("replay", 3)
        for array in [*sample.info, *sample.data.values()]:
            array += 1
        server.sample("replay", 1)
        gc.collect()
        assert sample.data["act"].tolist() == [1, 1, 1]


def test_more_than_a_call_may_hold_is_refused_before_it_is_sent(
    key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay_tutorial.tables.remote.handle.MOST_BYTES", 500)
    with serving(small_server(), tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        with pytest.raises(ValueError, match="too long"):
            server.insert(full_message(50))
        assert server.info()["replay"].size == 0


def test_the_key_decides_who_may_call(key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(small_server(), tmp_path) as endpoint:
        monkeypatch.setenv("REPLAY_TUTORIAL_KEY", KEY + "!")
        with pytest.raises(multiprocessing.AuthenticationError, match="another key"):
            RemoteServer(endpoint.address)
        monkeypatch.setenv("REPLAY_TUTORIAL_KEY", "short")
        with pytest.raises(ValueError, match="at least 16"):
            RemoteServer(endpoint.address)
        monkeypatch.setenv("REPLAY_TUTORIAL_KEY", KEY)
        assert RemoteServer(endpoint.address).info()["queue"].size == 0
