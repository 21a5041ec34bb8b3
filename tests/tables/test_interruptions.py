"""What comes at a bad moment: Ctrl-C, the garbage collector, a load, a fork, a hook of a hook."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from served import table, until

from replay_tutorial.tables import (
    Client,
    Endpoint,
    Fifo,
    Hook,
    InsertOnSample,
    Prioritized,
    RemoteServer,
    Sample,
    Server,
    Table,
    TrajectoryDataset,
    TrajectoryWriter,
    UnknownWriter,
)

COLUMNS = {"obs": {"shape": (), "dtype": np.int64}}
KEY = "a key that both sides know"


def lines_of(call: Callable[[], object], stop_at: int = -1) -> int:
    """Make a call, and count the lines of the tables that it runs; press Ctrl-C before the line `stop_at`."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if not frame.f_globals["__name__"].startswith("replay_tutorial.tables"):
            return None
        if frame.f_code.co_name == "__del__":  # Python prints what it raises, and goes on
            return None
        if event == "line":
            lines += 1
            if lines == stop_at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return lines


class Life:
    """A server whose table is full of items that may be sampled twice, and a writer that goes on."""

    def __init__(self, folder: Path) -> None:
        twice = table(sampler=Prioritized(0.5), max_size=3, max_times_sampled=2)
        self.server = Server([twice], COLUMNS, capacity=12, seed=0)
        self.folder = folder
        self.writer = TrajectoryWriter(self.server, 2, max_in_flight_items=2)
        self.writer.append({"obs": -1})
        for obs in range(6):
            self.create_item(obs)
        self.create_item(6, send=False)

    def create_item(self, obs: int, send: bool = True) -> None:
        self.writer.append({"obs": obs})
        self.writer.create_item("t", 1.0 + obs, {"obs": self.writer.history["obs"][-2:]})
        if send:
            self.writer.flush()

    def press(self, does: str) -> Callable[[], object]:
        """Something to do, whose last step is a call that may be interrupted."""
        if does == "create_item":
            if self.writer.episode_steps == 8:
                self.writer.append({"obs": 7})
            parts = {"obs": self.writer.history["obs"][-2:]}
            return lambda: self.writer.create_item("t", 8.0, parts)
        if does == "load":
            self.server.save(self.folder / "file")
            return lambda: self.server.load(self.folder / "file")
        keys = self.server.items("t").info.keys
        return {
            "end_episode": self.writer.end_episode,
            "sample": lambda: self.server.sample("t", 9, timeout=0),  # in two pieces, the second of none
            "mutate": lambda: self.server.mutate_priorities("t", {keys[0]: 2.0}, keys[1:]),
            "reset": lambda: self.server.reset("t"),
            "close": self.writer.close,
        }[does]

    def check(self, does: str) -> None:
        """Everything goes on: no item is lost or twice there, and in the end every cell is free."""
        if does == "create_item":
            was_made = len(self.writer._pending) != 1  # the item before it was in flight
            self.writer.flush()
            if not was_made:
                self.press(does)()
                self.writer.flush()
            assert sorted(self.server.items("t").data["obs"][:, 1].tolist()) == [5, 6, 7]
            assert self.server.info()["t"].inserts == 8
        info = self.server.info()["t"]
        assert info.size == info.inserts - info.deletes == len(self.server.items("t").info.keys)
        if does == "close":  # perhaps only half; then nobody holds it now
            self.writer = TrajectoryWriter(self.server, 2)
        with contextlib.suppress(UnknownWriter):  # the server was loaded
            self.writer.end_episode()
        self.writer.append({"obs": 9})
        self.writer.create_item("t", 1.0, {"obs": self.writer.history["obs"][-1:]})
        self.writer.flush()
        assert 9 in self.server.items("t").data["obs"]
        self.server.reset("t")
        self.writer.close()
        assert self.server._cells.free_count(0) == 12
        assert not self.server._cells.allocator.references.any()


def insert_after_waiting(stop_at: int = -1) -> int:
    """Insert an item that waits until a thread empties the queue; press Ctrl-C before the line `stop_at`."""
    server = Server([Table.queue("q", 1)], COLUMNS, capacity=3)
    writer = TrajectoryWriter(server, 1)
    ended = threading.Event()

    def empty_the_queue() -> None:
        while not (waits := bool(server._queues["insert", "q"]._waiters)) and not ended.is_set():
            time.sleep(0.0005)
        if waits:
            server.sample("q", 1)

    def insert(obs: int) -> None:
        writer.append({"obs": obs})
        writer.create_item("q", 1.0, {"obs": writer.history["obs"][-1:]})

    insert(0)
    thread = threading.Thread(target=empty_the_queue)
    thread.start()
    try:
        return lines_of(partial(insert, 1), stop_at)
    finally:
        ended.set()
        thread.join()
        info, items = server.info()["q"], server.items("q")
        assert info.size == info.inserts - info.deletes == len(items.info.keys)
        assert [item.data["obs"].tolist() for item in items] in ([[0]], [], [[1]])
        server.reset("q")
        writer.close()
        assert server._cells.free_count(0) == 3
        assert not server._cells.allocator.references.any()


def test_ctrl_c_at_any_line_of_an_insert_that_waits_leaves_whole_tables() -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        insert_after_waiting()  # compiles
        count = insert_after_waiting()
        assert count > 50
        for line in range(1, count + 1):
            with contextlib.suppress(KeyboardInterrupt):
                insert_after_waiting(line)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("does", ["create_item", "end_episode", "sample", "mutate", "reset", "close", "load"])
def test_ctrl_c_at_any_line_loses_nothing(does: str, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        Life(tmp_path).press(does)()  # compiles
        life = Life(tmp_path)
        count = lines_of(life.press(does))
        life.check(does)
        assert count > 5
        for line in range(1, count + 1, count // 200 + 1):
            life = Life(tmp_path)
            with pytest.raises(KeyboardInterrupt):
                lines_of(life.press(does), stop_at=line)
            life.check(does)
    finally:
        signal.signal(signal.SIGINT, before)


def no_thread_draws() -> bool:
    """Whether all threads of datasets have ended, which the tests of the datasets expect of those before."""
    return all(thread.name != "dataset" for thread in threading.enumerate())


class Collects(Hook):
    """Stands for a garbage collector that comes while the server's lock is held."""

    def on_insert(self, tables: Any, table: str, key: int) -> None:
        gc.collect()


def test_batches_that_the_garbage_collector_ends_hold_nobody_up_for_good() -> None:
    server = Server([Table.queue("q", 5), Table.queue("other", 5, hooks=[Collects()])], COLUMNS, capacity=20)
    client = Client(server)
    client.insert({"obs": 1}, {"q": 1.0})

    class Learner:
        def __init__(self) -> None:
            self.itself = self
            self.batches = iter(TrajectoryDataset(server, "q", 1, in_flight=1))

    learner = Learner()
    next(learner.batches)
    until(lambda: server.info()["q"].waiting_samples == 1)
    del learner
    inserts = threading.Thread(target=client.insert, args=({"obs": 2}, {"other": 1.0}), daemon=True)
    inserts.start()
    inserts.join(300.0)
    assert not inserts.is_alive()
    until(no_thread_draws)


class DrawsAndCollects:
    """A source in whose second call the garbage collector comes, when the learner is gone."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.calls = 0
        self.is_gone, self.collected = threading.Event(), threading.Event()

    def sample(
        self, table: str, batch_size: int, timeout: float | None = None, partial: bool = False, **_: Any
    ) -> Sample:
        self.calls += 1
        if self.calls == 2:
            self.is_gone.wait(300.0)
            gc.collect()
            self.collected.set()
        return self.server.sample(table, batch_size, timeout, partial)


def test_batches_may_end_in_the_thread_that_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", faults.append)
    server = Server([Table.queue("q", 5)], COLUMNS, capacity=20)
    Client(server).insert_batch({"obs": range(5)}, {"q": None})
    source = DrawsAndCollects(server)

    class Learner:
        def __init__(self) -> None:
            self.itself = self
            self.batches = iter(TrajectoryDataset(source, "q", 1, in_flight=1))

    learner = Learner()
    next(learner.batches)
    gc.disable()
    try:
        del learner
        source.is_gone.set()
        assert source.collected.wait(300.0)
    finally:
        gc.enable()
    until(no_thread_draws)
    assert not faults


def test_a_first_message_that_is_half_in_does_not_go_on_after_a_load(tmp_path: Path) -> None:
    server = Server([Table.queue("q", 2)], COLUMNS, capacity=20)
    writer = TrajectoryWriter(server, 3, max_in_flight_items=3)
    for obs in range(2):
        writer.append({"obs": obs})
        writer.create_item("q", 1.0, {"obs": writer.history["obs"][-1]})
    writer.append({"obs": 2})
    with pytest.raises(TimeoutError):
        writer.create_item("q", 1.0, {"obs": writer.history["obs"][-1]}, timeout=0.0)
    server.save(tmp_path / "tables.npz")
    server.load(tmp_path / "tables.npz")
    with pytest.raises(UnknownWriter) as error:
        writer.flush(0.0)
    assert not getattr(error.value, "__notes__", [])  # two of its items are in
    assert server.items("q").data["obs"].tolist() == [0, 1]


class PutsBack(Hook):
    """Inserts what one table deletes into another one."""

    def on_delete(self, tables: Any, table: str, key: int) -> None:
        tables["a"].try_insert(tables[table].item(key))


def test_a_hook_does_not_change_a_table_in_the_middle_of_a_change() -> None:
    first = table("a", sampler=Fifo(), max_size=3, max_times_sampled=1, hooks=[InsertOnSample("b")])
    server = Server([first, table("b", max_size=1, hooks=[PutsBack()])], COLUMNS, capacity=20)
    Client(server).insert_batch({"obs": [1, 2, 3]}, {"a": None})
    assert server.sample("a", 3).data["obs"].tolist() == [1, 2, 3]
    info = server.info()["a"]
    assert info.size == info.inserts - info.deletes == 0


@pytest.mark.parametrize("event", ["on_insert", "on_sample", "on_update", "on_delete", "on_reset"])
def test_a_hook_can_not_change_its_own_table_or_save_it_or_wait(
    event: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    def misbehave(tables: Any, name: str, *keys: int) -> None:
        for call in (
            lambda: server.mutate_priorities("a", deletes=keys),
            lambda: server.reset("a"),
            lambda: server.sample("a", 1, timeout=0),
            lambda: client.insert({"obs": 1}, {"a": 1.0}),
            lambda: server.save(tmp_path / "file"),
            lambda: server.load(tmp_path / "file"),
        ):
            with pytest.raises(RuntimeError, match="A hook of the table 'a' can't"):
                call()
        with pytest.raises(TimeoutError, match="A hook can't wait; insert\\('full'\\) waits for"):
            client.insert({"obs": 1}, {"full": 1.0})
        client.insert({"obs": 1}, {"b": 1.0})
        assert server.items("a").info.table_size.size == server.info()["a"].size
        called.append(name)

    hook = Hook()
    setattr(hook, event, misbehave)
    tables = [table("a", max_size=2, max_times_sampled=1, hooks=[hook]), table("b"), Table.queue("full", 1)]
    server = Server(tables, COLUMNS, capacity=20)
    client = Client(server)
    client.insert({"obs": 1}, {"full": 1.0})
    keys = [client.insert({"obs": 1}, {"a": 1.0})["a"] for _ in range(4)]
    server.mutate_priorities("a", {keys[3]: 2.0}, [keys[2]])
    server.sample("a", 5, partial=True)
    server.reset("a")
    assert called and not caplog.records
    for name in ("b", "full"):
        server.reset(name)
    assert server._cells.free_count(0) == 20


def test_a_hook_can_close_the_writer_whose_items_are_being_inserted() -> None:
    hook = Hook()
    hook.on_insert = lambda *_: writer.close()  # pyright: ignore[reportAttributeAccessIssue]
    server = Server([table("a", hooks=[hook]), table("b"), table("c")], COLUMNS, capacity=9)
    client = Client(server)
    writer = client.writer(2, max_in_flight_items=5)
    for step in range(2):
        writer.append({"obs": step})
    for name in ("a", "b"):
        writer.create_item(name, 1.0, {"obs": writer.history["obs"][-2:]})
    with pytest.raises(UnknownWriter):
        writer.flush()
    client.insert_batch({"obs": [7] * 7}, {"c": None})  # all other cells
    assert server.items("a").data["obs"].tolist() == [[0, 1]] and server.info()["b"].size == 0
    assert server._cells.free_count(0) == 0


class Exits(Hook):
    """Ends the program when it hears of a reset."""

    def on_reset(self, tables: Any, table: str) -> None:
        raise SystemExit


def test_a_hook_that_ends_the_program_leaves_its_table_open_for_other_hooks() -> None:
    tables = [table("a", hooks=[InsertOnSample("b")]), table("b", hooks=[Exits()])]
    server = Server(tables, COLUMNS, capacity=20)
    with pytest.raises(SystemExit):
        server.reset("b")
    Client(server).insert({"obs": 1}, {"a": 1.0})
    server.sample("a", 1)
    assert server.info()["b"].size == 1


def refused_in_a_child(match: str, *calls: Callable[[], object], last: Callable[..., object] = int) -> bool:
    """Whether all calls are refused in a forked child, with this text; the child then makes the last call."""
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                refused += match in str(error)
        last()
        os._exit(refused)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_child_can_not_use_its_parents_server() -> None:
    server = Server([table()], COLUMNS, capacity=9)
    insert, sample = partial(Client(server).insert, {"obs": 1}, {"t": 1.0}), partial(server.sample, "t", 1)
    assert refused_in_a_child("Use a RemoteServer", insert, sample)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_child_does_not_close_or_use_its_parents_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_TUTORIAL_KEY", KEY)
    server = Server([Table.queue("t", 5)], COLUMNS, capacity=9)
    with Endpoint(server, "127.0.0.1:0") as endpoint, RemoteServer(endpoint.address) as remote:
        with TrajectoryWriter(remote, 5, max_in_flight_items=3) as writer:
            for value in (1, 2):
                writer.append({"obs": value})
                writer.create_item("t", 1.0, {"obs": writer.history["obs"][-1]})
            writer.flush()
            writer.append({"obs": 3})
            writer.create_item("t", 1.0, {"obs": writer.history["obs"][-1]})
            calls = (writer.flush, writer.end_episode, partial(writer.append, {"obs": 4}))
            leave = partial(writer.__exit__, None, None, None)
            assert refused_in_a_child("Create a writer in each process", *calls, last=leave)
            writer.create_item("t", 1.0, {"obs": writer.history["obs"][-2]})
        assert server.items("t").data["obs"].tolist() == [1, 2, 3, 2]
