"""What comes at a bad moment: Ctrl-C, the garbage collector, a load, a fork, a hook of a hook."""

import contextlib
import gc
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from served import drawing_threads, hook_of, lines_of, table, until, write

from replay_tutorial.tables import (
    Client,
    Fifo,
    InsertOnSample,
    Prioritized,
    Sample,
    Server,
    Table,
    TrajectoryDataset,
    TrajectoryWriter,
    UnknownWriter,
)

COLUMNS = {"obs": {"dtype": np.int64}}


class Life:
    """A server whose table is full of items that may be sampled twice, and a writer that goes on."""

    def __init__(self, folder: Path) -> None:
        twice = table(sampler=Prioritized(0.5), max_size=3, max_times_sampled=2)
        self.server = Server([twice], COLUMNS, capacity=12, seed=0)
        self.folder = folder
        self.writer = TrajectoryWriter(self.server, 2, items_per_message=2)
        self.writer.append({"obs": -1})
        for obs in range(7):
            self.writer.flush()  # all but the last one
            write(self.writer, {"obs": obs}, length=2, priority=1.0 + obs)

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
        write(self.writer, {"obs": 9}, length=1)
        self.writer.flush()
        assert 9 in self.server.items("t").data["obs"]
        self.server.reset("t")
        self.writer.close()
        check_all_cells_are_free(self.server, 12)


def check_all_cells_are_free(server: Server, cells: int) -> None:
    assert server._cells.free_count(0) == cells
    assert not server._cells.allocator.references.any()


def insert_after_waiting(stop_at: int = -1) -> int:
    """Insert an item that waits until a thread empties the queue; press Ctrl-C before the line `stop_at`."""
    server = Server([Table.queue("q", 1)], COLUMNS, capacity=3)
    writer = TrajectoryWriter(server, 1)
    ended = threading.Event()

    def empty_the_queue() -> None:
        while not (waits := bool(server._queues["insert", "q"])) and not ended.is_set():
            time.sleep(0.0005)
        if waits:
            server.sample("q", 1)

    write(writer, {"obs": 0}, "q", length=1)
    thread = threading.Thread(target=empty_the_queue)
    thread.start()
    try:
        return lines_of(partial(write, writer, {"obs": 1}, "q", length=1), stop_at)
    finally:
        ended.set()
        thread.join()
        info, items = server.info()["q"], server.items("q")
        assert info.size == info.inserts - info.deletes == len(items.info.keys)
        assert [item.data["obs"].tolist() for item in items] in ([[0]], [], [[1]])
        server.reset("q")
        writer.close()
        check_all_cells_are_free(server, 3)


def test_ctrl_c_at_any_line_of_an_insert_that_waits_leaves_whole_tables() -> None:
    insert_after_waiting()  # compiles
    count = insert_after_waiting()
    assert count > 50
    for line in range(1, count + 1):
        with contextlib.suppress(KeyboardInterrupt):
            insert_after_waiting(line)


@pytest.mark.parametrize("does", ["create_item", "end_episode", "sample", "mutate", "reset", "close", "load"])
def test_ctrl_c_at_any_line_loses_nothing(does: str, tmp_path: Path) -> None:
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


class Learner:
    """Holds the batches of a dataset until the garbage collector finds it."""

    def __init__(self, source: Any) -> None:
        self.itself = self
        self.batches = iter(TrajectoryDataset(source, "q", 1, in_flight=1))
        next(self.batches)


def test_batches_that_the_garbage_collector_ends_hold_nobody_up_for_good() -> None:
    """The collector comes while the server's lock is held."""
    collects = hook_of(on_insert=lambda *_: gc.collect())
    server = Server([Table.queue("q", 5), Table.queue("other", 5, hooks=[collects])], COLUMNS, capacity=20)
    client = Client(server)
    client.insert({"obs": 1}, {"q": 1.0})
    learner = Learner(server)
    until(lambda: server.info()["q"].waiting_samples == 1)
    del learner
    inserts = threading.Thread(target=client.insert, args=({"obs": 2}, {"other": 1.0}), daemon=True)
    inserts.start()
    inserts.join(300.0)
    assert not inserts.is_alive()
    until(lambda: not drawing_threads())


def test_batches_may_end_in_the_thread_that_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector comes in its second call, when the learner is gone."""
    faults: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", faults.append)
    server = Server([Table.queue("q", 5)], COLUMNS, capacity=20)
    Client(server).insert_batch({"obs": range(5)}, {"q": None})
    calls, is_gone, collected = itertools.count(1), threading.Event(), threading.Event()

    def sample(*arguments: Any, **options: Any) -> Sample:
        if next(calls) == 2:
            is_gone.wait(300.0)
            gc.collect()
            collected.set()
        return server.sample(*arguments, **options)

    learner = Learner(SimpleNamespace(sample=sample))
    gc.disable()
    try:
        del learner
        is_gone.set()
        assert collected.wait(300.0)
    finally:
        gc.enable()
    until(lambda: not drawing_threads())
    assert not faults


def test_a_first_message_that_is_half_in_does_not_go_on_after_a_load(tmp_path: Path) -> None:
    server = Server([Table.queue("q", 2)], COLUMNS, capacity=20)
    writer = TrajectoryWriter(server, 3, items_per_message=3)
    for obs in range(2):
        write(writer, {"obs": obs}, "q")
    with pytest.raises(TimeoutError):
        write(writer, {"obs": 2}, "q", timeout=0.0)
    server.save(tmp_path / "tables.npz")
    server.load(tmp_path / "tables.npz")
    with pytest.raises(UnknownWriter) as error:
        writer.flush(0.0)
    assert not getattr(error.value, "__notes__", [])  # two of its items are in
    assert server.items("q").data["obs"].tolist() == [0, 1]


def test_a_hook_does_not_change_a_table_in_the_middle_of_a_change() -> None:
    def put_back(tables: Any, table: str, key: int) -> None:
        tables["a"].try_insert(tables[table].item(key))

    first = table("a", sampler=Fifo(), max_size=3, max_times_sampled=1, hooks=[InsertOnSample("b")])
    second = table("b", max_size=1, hooks=[hook_of(on_delete=put_back)])
    server = Server([first, second], COLUMNS, capacity=20)
    Client(server).insert_batch({"obs": [1, 2, 3]}, {"a": None})
    assert server.sample("a", 3).data["obs"].tolist() == [1, 2, 3]
    info = server.info()["a"]
    assert (info.size, info.inserts, info.deletes) == (0, 3, 3)


def test_a_hook_can_not_insert_the_rest_of_a_message_into_its_own_table() -> None:
    errors: list[str] = []

    def flush(*_: object) -> None:
        with pytest.raises(RuntimeError, match="A hook of the table 'q' can't") as raised:
            writer.flush(0)
        errors.append(str(raised.value))

    server = Server([Table.queue("q", 1, hooks=[hook_of(on_sample=flush)])], COLUMNS, capacity=20)
    writer = Client(server).writer(1)
    writer.append({"obs": 1})
    writer.create_item("q", 1.0, {"obs": writer.history["obs"][-1:]})
    writer.append({"obs": 2})
    with pytest.raises(TimeoutError):  # the message has been accepted, and waits for a place
        writer.create_item("q", 1.0, {"obs": writer.history["obs"][-1:]}, timeout=0)
    assert server.sample("q", 1).data["obs"].tolist() == [[1]] and errors
    info = server.info()["q"]
    assert (info.size, info.inserts, info.deletes) == (0, 1, 1)
    server._tables["q"].config.hooks[0].on_sample = lambda *_: None  # pyright: ignore
    writer.flush(0)
    assert server.sample("q", 1).data["obs"].tolist() == [[2]]


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

    misbehaving = table("a", max_size=2, max_times_sampled=1, hooks=[hook_of(**{event: misbehave})])
    tables = [misbehaving, table("b"), Table.queue("full", 1)]
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
    closes = hook_of(on_insert=lambda *_: writer.close())
    server = Server([table("a", hooks=[closes]), table("b"), table("c")], COLUMNS, capacity=9)
    client = Client(server)
    writer = client.writer(2, items_per_message=5)
    for step in range(2):
        writer.append({"obs": step})
    for name in ("a", "b"):
        writer.create_item(name, 1.0, {"obs": writer.history["obs"][-2:]})
    with pytest.raises(UnknownWriter):
        writer.flush()
    client.insert_batch({"obs": [7] * 7}, {"c": None})  # all other cells
    assert server.items("a").data["obs"].tolist() == [[0, 1]] and server.info()["b"].size == 0
    assert server._cells.free_count(0) == 0


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_hook_that_ends_the_program_is_logged_and_ends_neither_the_change_nor_the_server(
    error: type[BaseException], there: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    exits = hook_of(on_insert=Mock(side_effect=error))
    there.served._tables["replay"].config = table("replay", hooks=[exits], max_size=1)
    for server in (there.served, there.server):
        for action in range(2):
            Client(server).insert({"action": action}, {"replay": 1.0})
        info = server.info()["replay"]
        assert (info.size, info.inserts - info.deletes) == (1, 1)
    assert caplog.text.count("failed in on_insert") == 4


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
def test_a_forked_child_does_not_close_or_use_its_parents_writer(there: SimpleNamespace) -> None:
    with TrajectoryWriter(there.server, 5, items_per_message=3) as writer:
        for value in (1, 2):
            write(writer, {"action": value}, "queue")
        writer.flush()
        write(writer, {"action": 3}, "queue")
        calls = (writer.flush, writer.end_episode, partial(writer.append, {"action": 4}))
        leave = partial(writer.__exit__, None, None, None)
        assert refused_in_a_child("Create a writer in each process", *calls, last=leave)
        writer.create_item("queue", 1.0, {"action": writer.history["action"][-2]})
    assert there.served.items("queue").data["action"].tolist() == [1, 2, 3, 2]
