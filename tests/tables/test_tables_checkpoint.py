"""Saving and loading: the loaded server answers the next calls as the saved one does."""

import contextlib
import gc
import itertools
import threading
import time
import weakref
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import trial
from served import Sent, send, table, write
from test_random_programs import COLUMNS, Program

from replay_tutorial.tables import (
    Client,
    Fifo,
    InsertOnSample,
    MaxHeap,
    MinHeap,
    MinSize,
    Prioritized,
    Server,
    Table,
    Uniform,
    UnknownWriter,
)
from replay_tutorial.tables.core import checkpoint


def tables() -> list[Table]:
    return [
        table("p", sampler=Prioritized(0.7), max_size=40),
        table("h", sampler=MaxHeap(), remover=MinHeap(), max_times_sampled=3, hooks=[InsertOnSample("u")]),
        table("u", remover=Uniform(), max_size=25),
        Table.queue("q", 200),
        Table.stack("s", 200),
    ]


def built(capacity: int = 600, seed: int = 3) -> Client:
    return Client(Server(tables(), COLUMNS, capacity, seed=seed))


def one_call(client: Client, rng: np.random.Generator) -> Any:
    """Any call; what it returns, as text."""
    name = str(rng.choice(["p", "h", "u", "q", "s"]))
    kind, number = rng.random(), int(rng.integers(1000))
    priority = float(rng.choice([0.0, 1.0, 1.0, 2.0]))
    keys = client.items(name).info.keys
    try:
        if kind < 0.45:
            step = {"a": [number, number], "b": number, "c": number % 256}
            return client.insert(step, {name: priority}, timeout=0)
        if kind < 0.75:
            return repr(client.sample(name, 1 + number % 5, timeout=0))
        if kind < 0.95 and len(keys):
            return client.mutate_priorities(name, {int(rng.choice(keys)): priority}, keys[: number % 2])
    except TimeoutError as error:
        return str(error)
    return repr((client.items(name), client.info()))


def same_life(one: Client, other: Client, calls: int, seed: int) -> None:
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(calls):
        assert one_call(one, ours) == one_call(other, theirs)


def test_a_server_saved_and_loaded_five_times_answers_as_the_one_never_saved(tmp_path: Path) -> None:
    """What was loaded is used, reset, saved and loaded again, into servers that held something else."""
    kept, loaded = built(), built()
    for generation in range(5):
        same_life(kept, loaded, 120, generation)
        for client in (kept, loaded):
            client.reset(("q", "p", "u")[generation % 3])
        same_life(kept, loaded, 30, 10 + generation)
        loaded.save(tmp_path / "file")
        loaded = built(600 + 10 * generation, seed=generation)
        for _ in range(50):
            one_call(loaded, np.random.default_rng(generation))
        loaded.load(tmp_path / "file")
        assert repr(loaded.info()) == repr(kept.info())
        ours, theirs = (client.server._cells.allocator.references for client in (loaded, kept))
        assert ours.sum() == theirs.sum()
    same_life(kept, loaded, 120, 20)
    loaded.save(tmp_path / "one")
    loaded.load(tmp_path / "one")
    loaded.save(tmp_path / "two")
    with zipfile.ZipFile(tmp_path / "one") as one, zipfile.ZipFile(tmp_path / "two") as two:
        assert one.namelist() == two.namelist()
        for name in one.namelist():
            assert one.read(name) == two.read(name), name


@pytest.mark.parametrize("seed", range(2))
def test_any_program_goes_on_after_loading(seed: int, tmp_path: Path) -> None:
    """Also with items of different lengths, and with writers whose cells are given up."""
    rng = np.random.default_rng(seed)
    for _ in range(5):
        life = Program(rng.integers(0, 100, 15).tolist())
        for _ in range(3):
            life.run([tuple(row) for row in rng.integers(0, 100, (20, 4)).tolist()])
            life.server.save(tmp_path / "file")
            life.server.load(tmp_path / "file")
            for w in (0, 1):
                with pytest.raises(UnknownWriter):
                    send(life.server, Sent(life.writer(w), max(1, life.sequence[w]), [], [], 0))
                life.close_writer(w)
            life.compare()
        life.finish()


def test_the_program_s_limits_win_over_the_file_s(tmp_path: Path) -> None:
    """Reverb: the file's limiter wins, and whoever loads hangs."""

    def of(limiter: MinSize, times: int, capacity: int) -> Client:
        return Client(Server([table(rate_limiter=limiter, max_times_sampled=times)], COLUMNS, capacity))

    strict, free = of(MinSize(9), 0, 20), of(MinSize(1), 1, 10)
    for number in range(5):
        strict.insert({"b": number}, {"t": 1.0})
    strict.save(tmp_path / "file")
    free.load(tmp_path / "file")
    assert free.info()["t"].rate_limiter == MinSize(1) and free.info()["t"].inserts == 5
    assert len(free.sample("t", 9, timeout=0).info.keys) == 5, "each once"
    free.replace_limiter("t", MinSize(2))
    free.load(tmp_path / "file")
    assert free.info()["t"].rate_limiter == MinSize(2), "also one that replaced the first"
    small = of(MinSize(1), 0, 4)
    with pytest.raises(ValueError, match="capacity of this server is 4"):
        small.load(tmp_path / "file")


def test_what_is_saved_is_one_moment_of_all_tables(tmp_path: Path) -> None:
    """Each step is in both tables. Reverb copies one table after the other, and may miss one of the two."""
    client, loaded = (Client(Server([table("t"), table("u")], COLUMNS, 30)) for _ in range(2))
    stop, path = threading.Event(), tmp_path / "file"

    def insert() -> None:
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
            client.insert({"b": number}, {"t": 1.0, "u": 1.0})
            time.sleep(0)  # so that the other thread may have the lock

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        for _ in range(20):
            client.save(path)
            loaded.load(path)
            one, other = (sorted(loaded.items(name).data.get("b", ())) for name in "tu")
            assert one == other and loaded.info()["t"].inserts == loaded.info()["u"].inserts
    finally:
        stop.set()
        thread.join()


def test_a_file_of_another_server_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """In Reverb the file's selectors and sizes win, and a table that it lacks begins empty."""
    client = built()
    client.save(tmp_path / "file")
    others = [
        Server(tables()[:4], COLUMNS, 600),
        Server([*tables(), table("added")], COLUMNS, 600),
        Server(tables(), {**COLUMNS, "d": {}}, 600),
        Server(tables(), dict(reversed(COLUMNS.items())), 600),
        Server(tables()[::-1], COLUMNS, 600),
        Server([*tables()[:4], Table.stack("s", 100)], COLUMNS, 600),
        Server([*tables()[:4], Table.queue("s", 200)], COLUMNS, 600),
        Server([*tables()[:4], Table.stack("renamed", 200)], COLUMNS, 600),
        Server([table("p", sampler=Prioritized(0.6), max_size=40), *tables()[1:]], COLUMNS, 600),
        Server([table("p", sampler=Prioritized(0.7), max_size=41), *tables()[1:]], COLUMNS, 600),
    ]
    for other in others:
        name = next(reversed(other.info()))
        Client(other).insert({"b": 1}, {name: 1.0})
        before = other.info()
        with pytest.raises(ValueError, match="different layout"):
            other.load(tmp_path / "file")
        assert other.info() == before


def test_a_load_that_fails_keeps_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = built()
    client.save(tmp_path / "file")
    made: list[Any] = []

    def damaged(table: Any, *_: Any) -> Any:
        made.append(weakref.ref(table))
        raise TypeError

    monkeypatch.setattr(checkpoint, "fill", damaged)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="damaged"):
            client.load(tmp_path / "file")
        assert made and made[0]() is None
    finally:
        gc.enable()


def test_a_load_frees_the_old_content_though_writers_remain(tmp_path: Path) -> None:
    client = built()
    client.save(tmp_path / "file")
    with client.writer(2) as writer:
        write(writer, {"b": 1}, "p")
        old = [weakref.ref(client.server._cells), weakref.ref(client.server._tables["p"])]
        gc.disable()
        try:
            client.load(tmp_path / "file")
            assert [ref() for ref in old] == [None, None]
        finally:
            gc.enable()
        assert client.info()["p"].size == 0
        client.reset("p")  # asks all writers whether they have items for it


class Second(Fifo):
    """A selector of a user's own: the second oldest."""

    def first(self) -> int:
        return int(self.in_order()[:2][-1])


def test_a_server_with_a_selector_of_one_s_own_can_be_loaded(tmp_path: Path) -> None:
    def of(sampler: Fifo) -> Client:
        return Client(Server([table(sampler=sampler)], COLUMNS, 20))

    one, other = of(Second()), of(Second())
    one.insert_batch({"b": [1, 2, 3]}, {"t": None})
    one.save(tmp_path / "file")
    other.load(tmp_path / "file")
    assert other.sample("t", 1).data["b"].tolist() == [2]
    with pytest.raises(ValueError, match="different layout"):
        of(Fifo()).load(tmp_path / "file")


def test_a_forged_file_is_refused_or_loads_and_works(tmp_path: Path) -> None:
    def fresh() -> Server:
        return Server(
            [table(sampler=Prioritized(0.7), max_size=7)], {"a": {}, "b": {"dtype": "int64"}}, 30, seed=0
        )

    def seen(server: Server) -> Any:
        return repr((server.items("t"), server.info()))

    def use(server: Server) -> None:
        client = Client(server)
        for number in range(9):
            with contextlib.suppress(ValueError):  # a forged part may be one that these items don't have
                client.insert({"a": number, "b": number}, {"t": 1.0})
            if server.info()["t"].size and server.items("t").info.priorities.any():
                sample = client.sample("t", 5, timeout=0)
                client.mutate_priorities("t", dict.fromkeys(sample.info.keys.tolist(), 2.0))
        server.reset("t")

    server = fresh()
    for number in range(9):
        Client(server).insert({"a": number, "b": number}, {"t": 1.0 + number % 3})
    server.save(tmp_path / "whole")
    assert trial(tmp_path / "whole", fresh, seen, use, step=17) > 60
