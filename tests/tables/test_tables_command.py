"""`tables serve` and `tables info`: a file that says what there is, signals, and what is printed."""

import multiprocessing
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any

import numpy as np
import pytest
from served import COLUMNS, free_address, message, plain, send, serving, until

from replay_tutorial.__main__ import main
from replay_tutorial.tables import Client, RemoteServer, Server, Table
from replay_tutorial.tables.command import ConfigError, create_server
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.selectors import Fifo, MaxHeap, Prioritized, Uniform
from replay_tutorial.tables.remote.addresses import KEY_VARIABLE

needs_signals = pytest.mark.skipif(os.name != "posix", reason="signals can't be sent there")

GOOD = """\
address = "127.0.0.1:0"
capacity = 1000
seed = 3
save = "tables.npz"

[columns]
obs = { shape = [2, 3], dtype = "float64" }
action = { dtype = "int64" }

[tables.replay]
sampler = { kind = "Prioritized", exponent = 0.6 }
remover = "Fifo"
max_size = 100
rate_limiter = { kind = "SampleToInsertRatio", samples_per_insert = 2, min_size = 3, error_buffer = [0, 12] }
max_times_sampled = 7
insert_on_sample = ["best"]

[tables.best]
sampler = "Uniform"
remover = "MaxHeap"
max_size = 5
rate_limiter = { kind = "MinSize", min_size = 1 }

[tables.rollouts]
kind = "queue"
max_size = 4

[tables.last]
kind = "stack"
max_size = 3
signature = { last = ["obs", "one"], action = "any" }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_a_file_describes_what_a_program_would(tmp_path: Path) -> None:
    server, address, save, _ = create_server(written(tmp_path, GOOD))
    assert (address, save) == ("127.0.0.1:0", tmp_path / "tables.npz")
    assert {name: (field.shape, str(field.dtype)) for name, field in server.fields.fields.items()} == {
        "obs": ((2, 3), "float64"),
        "action": ((), "int64"),
    }
    assert {name: (info.max_size, info.rate_limiter) for name, info in server.info().items()} == {
        "replay": (100, SampleToInsertRatio(2.0, 3, (0, 12))),
        "best": (5, MinSize(1)),
        "rollouts": (4, Queue(4)),
        "last": (3, Stack(3)),
    }
    described = [contents.config for contents in server._tables.values()]
    assert [table.sampler for table in described][:2] == [Prioritized(0.6), Uniform()]
    assert [table.remover for table in described][:2] == [Fifo(), MaxHeap()]
    assert [table.max_times_sampled for table in described] == [7, 0, 1, 1]
    assert described[0].hooks[0].target == "best"
    assert described[3].parts == {"last": ("obs", "one"), "action": ("action", "any")}
    assert create_server(written(tmp_path, GOOD), "127.0.0.1:5")[1] == "127.0.0.1:5"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"any"', "0", "tables.last: The signature .* 'action' with the length 0"),
        ('"any"', '"any", more = "one"', "refers to the column 'more'"),
        ('["best"]', '"best"', "tables.replay: insert_on_sample must be a list of tables, not 'best'"),
        ("capacity = 1000", 'capacity = "1000"', "capacity must be an integer"),
        ("capacity = 1000", "capacity = true", "capacity must be an integer"),
        ("capacity = 1000", "capacity = 0", "capacity must be between"),
        ("seed = 3", "save_every = -1", "save_every: must be from 0 to 1,000,000"),
        ("seed = 3", "save_every = 1e20", "save_every: must be from 0 to 1,000,000"),
        ('seed = 3\nsave = "tables.npz"', "save_every = 1", "save_every: .* set `save` too"),
        ("127.0.0.1:0", "127.0.0.1:65536", "the port must be between 0 and 65535"),
        ("seed = 3", "capacities = 1", r"The file: .*unknown keys \['capacities'\]; it may .*'capacity'"),
        ("seed = 3", "seed = 0.5", "ints for entropy not 0.5"),
        ('address = "127.0.0.1:0"', 'address = "http://x"', "address: .*is not an address"),
        ('address = "127.0.0.1:0"', "", "address: is missing.* --listen"),
        ('"float64"', '"float65"', "columns: .*'obs'.*float65"),
        ('"float64"', '"O"', "columns: .*'obs'.*must be numeric"),
        ('{ dtype = "int64" }', "{ shape = [-1] }", "columns: .*'action'"),
        ('{ dtype = "int64" }', "{ shapes = [] }", "columns: .*'action'.*shapes"),
        ('obs = { shape = [2, 3], dtype = "float64" }', "obs = 3", "columns: .*'obs'"),
        ('"Fifo"', '"FIFO"', "tables.replay.remover: kind must be one of Uniform, Fifo"),
        ('"Fifo"', "3", "tables.replay.remover: kind must be one of Uniform, Fifo"),
        ('{ kind = "Prioritized", exponent = 0.6 }', '"Prioritized"', "tables.replay.sampler: .*'exponent'"),
        ("exponent = 0.6", "exponent = 0.6, beta = 1", "tables.replay.sampler: .*'beta'"),
        ("exponent = 0.6", "exponent = -1", "tables.replay.sampler: exponent"),
        ("exponent = 0.6", 'exponent = "1"', "tables.replay.sampler: .*'str'"),
        ("[0, 12]", "[0, 1]", "tables.replay.rate_limiter: The band"),
        ("[0, 12]", '"wide"', "tables.replay.rate_limiter: "),
        ("max_size = 5", "max_size = 0", "tables.best: max_size"),
        ("max_size = 5", "max_size = 5\nmax = 1", "tables.best: .*'max'"),
        ("min_size = 1 ", "min_size = 6 ", "tables.best: The limiter requires min_size=6"),
        ("min_size = 1 ", "min_size = 0.5 ", "tables.best.rate_limiter: .*integer"),
        ('"queue"', '"heap"', "tables.rollouts: kind must be one of table, queue, stack"),
        ("max_size = 4", 'max_size = 4\nsampler = "Fifo"', "tables.rollouts: .*'sampler'"),
        ('["best"]', '["worst"]', r"InsertOnSample\('worst'\)"),
        ("[columns]", "[columns", "is not valid TOML"),
        ("[tables.last]", "[tables.more]\n[tables.last]", "tables.more: .*missing"),
        (GOOD, "capacity = 1", "The file: it must also contain columns and tables"),
        (GOOD, 'address = "127.0.0.1:0"\ncolumns = 3\n[tables]', "columns: .*not 3"),
        (GOOD, 'address = "127.0.0.1:0"\n[columns]\n[tables]', "fields is empty"),
        (GOOD, 'address = "127.0.0.1:0"\n[tables]\n[columns]\nobs = {}', "at least one table"),
    ],
)
def test_an_error_in_the_file_names_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=message):
        create_server(written(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.skipif(os.name != "posix", reason="there are no sockets in the file system")
def test_paths_are_relative_to_the_folder_of_the_file(short_folder: Path) -> None:
    without = written(short_folder, GOOD.replace('address = "127.0.0.1:0"', ""))
    assert create_server(without, "127.0.0.1:0")[1] == "127.0.0.1:0", "--listen is enough"
    _, address, save, _ = create_server(written(short_folder, GOOD.replace("127.0.0.1:0", "a.sock")))
    assert (address, save) == (str(short_folder / "a.sock"), short_folder / "tables.npz")
    assert create_server(written(short_folder, GOOD.replace("127.0.0.1:0", "/a.sock")))[1] == "/a.sock"
    assert create_server(written(short_folder, GOOD), "here.sock")[1] == "here.sock"


def run(arguments: list[str], out: int) -> None:
    """The command, as a process of its own with this output."""
    sys.stdout = os.fdopen(out, "w")
    code = main(arguments)
    sys.stdout.flush()
    os._exit(code)


@contextmanager
def started(folder: Path, text: str) -> Iterator[tuple[Any, Client, IO[str]]]:
    """A server in a process of its own, a client of it, and what it prints."""
    reading, writing = os.pipe()
    arguments = ["tables", "serve", str(written(folder, text)), "--listen", free_address(folder)]
    process = multiprocessing.get_context("fork").Process(target=run, args=(arguments, writing))
    process.start()
    os.close(writing)
    with os.fdopen(reading) as said:
        try:
            line = next(line for line in said if line.startswith("serving"))
            with RemoteServer(line.split()[-1]) as server:
                yield process, Client(server), said
        finally:
            process.kill()
            process.join()


@needs_signals
def test_a_server_that_is_ended_is_saved_and_goes_on_when_it_is_started_again(
    key: bytes, tmp_path: Path
) -> None:
    with started(tmp_path, GOOD) as (process, client, said):
        batch = {"obs": np.random.default_rng(1).random((4, 2, 3)), "action": np.arange(4)}
        client.insert_batch(batch, {"best": np.arange(4.0), "rollouts": None})
        before = client.items("best")
        process.terminate()
        assert said.read().splitlines() == [f"saved {tmp_path / 'tables.npz'}", "stopped"]
        process.join(300)
        assert process.exitcode == 0
    with started(tmp_path, GOOD) as (process, client, _):
        assert plain(client.items("best")) == plain(before)
        os.kill(process.pid, signal.SIGINT)
        process.join(300)
        assert process.exitcode == 0
    assert not Path(free_address(tmp_path)).exists()


@needs_signals
def test_a_server_on_the_network_prints_what_a_client_on_another_host_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start makes the keys."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    reading, writing = os.pipe()
    arguments = ["tables", "serve", str(written(tmp_path, GOOD)), "--listen", "tcp://0.0.0.0:0"]
    process = multiprocessing.get_context("fork").Process(target=run, args=(arguments, writing))
    process.start()
    os.close(writing)
    with os.fdopen(reading) as said:
        hint, place = said.readline(), said.readline()
        assert hint.startswith(f"clients on other hosts need: export {KEY_VARIABLE}=client-")
        assert stat.S_IMODE((tmp_path / ".replay_tutorial_key").stat().st_mode) == 0o600
        monkeypatch.setenv(KEY_VARIABLE, hint.strip().rpartition("=")[2])
        with RemoteServer(f"127.0.0.1:{place.rpartition(':')[2].strip()}") as server:
            assert server.info().keys() == {"replay", "best", "rollouts", "last"}
        process.terminate()
        process.join(60)


@needs_signals
def test_a_server_is_saved_while_it_runs(key: bytes, tmp_path: Path) -> None:
    with started(tmp_path, GOOD.replace("seed = 3", "save_every = 0.05")) as (process, client, _):
        client.insert({"obs": np.zeros((2, 3)), "action": 7}, {"best": 1.0})
        server, _, save, seconds = create_server(tmp_path / "config.toml")
        assert seconds == 0.05

        def is_saved() -> bool:
            assert process.is_alive()
            if save.exists():
                server.load(save)
            return server.info()["best"].size == 1

        until(is_saved)


@needs_signals
def test_signals_that_come_while_a_server_ends_do_not_keep_it_from_saving(key: bytes, tmp_path: Path) -> None:
    big = GOOD.replace("capacity = 1000", "capacity = 30_000").replace("max_size = 5", "max_size = 20_000")
    count, most = 20_000, 0
    data = {"obs": np.zeros((count, 2, 3)), "action": np.arange(count)}
    for attempt in range(100):
        folder, sent = tmp_path / str(attempt), 0
        folder.mkdir()
        with started(folder, big) as (process, client, _):
            client.insert_batch(data, {"best": np.ones(count)})
            while process.is_alive():
                os.kill(process.pid, [signal.SIGTERM, signal.SIGINT][sent % 2])
                sent += 1
                process.join(0.0005)
            assert process.exitcode == 0
        server, *_ = create_server(folder / "config.toml")
        server.load(folder / "tables.npz")
        assert server.items("best").data["action"].tolist() == list(range(count))
        most = max(most, sent)
        if most > 2:
            break  # otherwise, the machine stopped the test while the server ended
    assert most > 2


def test_a_file_that_cannot_be_used_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = GOOD.replace("capacity = 1000", "capacity = 1_000_000_000").replace("[2, 3]", "[1_000_000]")
    for text, fault in [
        (huge, "A capacity of 1,000,000,000 steps of 8,000,008 bytes requires 7,450,588 GiB"),
        (GOOD.replace("tables.npz", "no/such/folder.npz"), "tables serve: save: can't write"),
        (GOOD.replace("tables.npz", "."), "tables serve: save: can't write"),
    ]:
        assert main(["tables", "serve", str(written(tmp_path, text))]) == 2
        said = capsys.readouterr()
        assert fault in said.err and said.err.count("\n") == 1 and not said.out
    assert main(["tables", "serve", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err


def test_info_prints_a_line_for_each_table_and_who_waits(
    key: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server([Table.queue("rollouts", 4)], COLUMNS, 100)
    with serving(server, tmp_path) as endpoint, RemoteServer(endpoint.address) as handle:
        send(handle, message(1, 0, "rollouts", 4))
        late = Thread(target=send, args=(handle, message(2, 0, "rollouts", 1)))
        late.start()
        until(lambda: server.info()["rollouts"].waiting_inserts == 1)
        assert main(["tables", "info", endpoint.address]) == 0
        handle.sample("rollouts", 1)
        late.join()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == ["rollouts", "4", "/", "4", "4", *"0000", "1,", "0"]
    assert lines[2] == (
        "rollouts: 1 waiting to insert, for more samples: size 4, min_size 1; 4 inserts · 1 - "
        "0 samples = 4 (limits: at least 0 and at most 4); 0 deletes."
    )
    assert main(["tables", "info", endpoint.address]) == 2
    assert "tables info: There is no server at" in capsys.readouterr().err
